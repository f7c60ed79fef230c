"""Odd input is taken as meant, or is one line and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from staleharness.commands.shared import train_and_report
from staleharness.store.store import Store

Call = Callable[..., tuple[Any, str, str]]

LONG = "9" * 5000
H = ["sweep", "--env", "Hopper"]
ODD: dict[str, list[str]] = {
    "no environment": ["sweep"],
    "an empty environment": ["sweep", "--env", ""],
    "commas for an environment": ["sweep", "--env", " , "],
    "a NUL in an environment": ["sweep", "--env", "Hopper\0"],
    "a long environment": ["sweep", "--env", "H" * 300],
    "bytes that are no text": ["sweep", "--env", "\udcff"],
    "a module for an environment": ["sweep", "--env", "os:Hoppper-v5"],
    "an environment that gymnasium has retired": ["sweep", "--env", "Hopper-v2"],
    "an environment that lacks a library": ["sweep", "--env", "phys2d/CartPole-v1"],
    "an environment of pictures or tuples": ["sweep", "--env", "Blackjack-v1"],
    "a comma for a capacity": [*H, "--k", ","],
    "an empty capacity": [*H, "--k", ""],
    "a negative capacity": [*H, "--k", "-1"],
    "a capacity of 5000 digits": [*H, "--k", LONG],
    "a capacity of 31 digits": [*H, "--k", "1" + "0" * 30],
    "half a capacity": [*H, "--k", "1e-1"],
    "a thousand million seeds": [*H, "--seeds", "1000000000"],
    "no number for seeds": [*H, "--seeds", ""],
    "steps with a comma": [*H, "--steps", "1,000"],
    "steps in millions": [*H, "--steps", "1M"],
    "steps of 31 digits": [*H, "--steps", "1" + "0" * 30],
    "an empty algorithm": [*H, "--algo", ""],
    "brackets the wrong way": [*H, "--algo", "a]b[c"],
    "brackets in brackets": [*H, "--algo", "spo[[x=1]]"],
    "a date for a number": [*H, "--algo", "vaco[delta=2020-01-01]"],
    "no number for a number": [*H, "--algo", "vaco[delta=nan]"],
    "infinity for a number": [*H, "--algo", "vaco[delta=inf]"],
    "an option twice": [*H, "--algo", "vaco[delta=0.1,delta=0.2]"],
    "one method under two names": [*H, "--algo", "ppo_clip,ppo_clip[clip=0.2]"],
    "an escape sequence": [*H, "--algo", "spo\x1b[31m]"],
    "a Cyrillic letter": [*H, "--algo", "пpo"],
    "a path for an algorithm": [*H, "--algo", "../spo"],
    "infinity for a setting": [*H, "--set", "learning_rate=inf"],
    "no layers": [*H, "--set", "hidden=[]"],
    "a number for a list": [*H, "--set", "hidden=64"],
    "a setting that has its own flag": [*H, "--set", "seed=3"],
    "a setting without a value": [*H, "--set", "epochs="],
    "a value without a setting": [*H, "--set", "=3"],
    "a setting twice": [*H, "--set", "epochs=2,epochs=3"],
    "more environments than steps": [*H, "--set", "num_envs=1000000000000"],
    "more threads than any machine": [*H, "--set", "threads=100000"],
    "an empty lag": [*H, "--lag", ""],
    "a lag of 5000 digits": [*H, "--lag", f"fixed:{LONG}"],
    "a bound of 308 digits": [*H, "--lag", "areal:1e308"],
    "batches of 308 digits": [*H, "--lag", "partial:1e308"],
    "a delay of a hundred million": [*H, "--lag", "llamarl:100000000"],
    "a delay line of a thousand million rows": [*H, "--k", "4", "--lag", "delay:2", "--steps", "1e12"],
    "a setting of 4000 hexadecimal digits": [*H, "--set", f"learning_rate=0x{'f' * 4000}"],
    "a setting of a thousand brackets": [*H, "--set", f"learning_rate={'[' * 5000}{']' * 5000}"],
    "an empty device": [*H, "--device", ""],
    "a GPU of 20 digits": [*H, "--device", "cuda:99999999999999999999"],
    "an empty preset": [*H, "--preset", ""],
    "an empty folder name": [*H, "--out", ""],
    "a long folder name": [*H, "--out", "x" * 300],
    "a NUL in a folder name": [*H, "--out", "a\0b"],
    "a folder of nobody": [*H, "--out", "~nobody-of-this-name/x"],
    "a device for a folder": [*H, "--out", "/dev/null"],
    "steering in a folder name": [*H, "--out", "/dev/null/\x1b[31m\n"],
    "minus three jobs": [*H, "--jobs", "-3"],
    "a million jobs": [*H, "--jobs", "1000000"],
    "a folder without plugins": [*H, "--plugin", "."],
    "a plugin of nobody": [*H, "--plugin", "~nobody-of-this-name/x.py"],
    "a plugin that is not there": [*H, "--plugin", "a b.py"],
    "a folder for a spec": [*H, "--spec", "."],
    "an empty spec": [*H, "--spec", ""],
    "a long spec": [*H, "--spec", "x" * 300],
    "an empty normalisation": [*H, "--normalise", ""],
    "a word too many": [*H, "extra"],
    "one dash": [*H, "-k", "8"],
    "a flag without its value": [*H, "--k"],
    "a flag for a value": [*H, "--k", "--dry"],
    "a list with spaces": [*H, "--k", "4", "8"],
    "a flag twice": [*H, "--k=8", "--k=4"],
    "a switch with a value": [*H, "--json=yes"],
    "a switch and a word": [*H, "--json", "maybe"],
    "a switch that is no flag": [*H, "--no-json"],
    "a capital flag": [*H, "--K", "8"],
    "two dashes": [*H, "--"],
    "an empty command": [""],
    "a flag for a command": ["--json"],
    "a seed of 31 digits": ["run", "--env", "Hopper", "--algo", "spo", "--seed", "1" + "0" * 30],
    "a negative seed": ["run", "--env", "Hopper", "--algo", "spo", "--seed=-1"],
    "a cap of 308 digits": ["pipeline", "--set", "cap=1e308"],
    "a thousand million slots": ["pipeline", "--set", "slots=1000000000"],
    "no results to report": ["report", "--out", "nowhere"],
    "no results to count": ["status", "--out", "nowhere"],
    "a word for status": ["status", "x"],
    "an unknown flag of list": ["list", "--jsn"],
    "nothing new": ["new"],
    "new without a name": ["new", "algorithm"],
    "new without a name but a folder": ["new", "algorithm", "--folder", "."],
    "new with a name too many": ["new", "algorithm", "x", "y"],
    "a keyword for a name": ["new", "algorithm", "class"],
    "a folder that cannot be made": ["new", "algorithm", "ok_name", "--folder", "/dev/null/x"],
    "a NUL in a folder": ["new", "algorithm", "ok_name", "--folder", "a\0b"],
}


@pytest.mark.parametrize("oddity", ODD)
def test_an_oddity_is_one_line_and_writes_nothing(oddity: str, call: Call) -> None:
    code, text, errors = call(*ODD[oddity])
    assert (code, text) == (2, ""), errors
    assert errors.startswith("staleharness: ") and errors.count("\n") == 1
    assert errors.rstrip("\n").isprintable()
    assert len(errors) < 700
    assert list(Path.cwd().iterdir()) == []


def test_odd_but_meant_is_taken(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(command: Any, planned: Any, store: Store, *more: Any) -> int:
        seen.append((planned.runs[0].spec, store.root))
        return 0

    monkeypatch.setattr(train_and_report, "execute", note)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for words in (
        ["--env", "hopper\n", "--k", " 8 ", "--steps", "1e6", "--out", "~/a b"],
        ["--env=Hopper-v5", "--k=8", "--set", "steps=1e6", "--out", str(tmp_path / "a b")],
        ["--env", "HOPPER", "--k", "8", "--steps", "1_000_000", "--algo", "a3po[]", "--out", str(tmp_path / "link")],
    ):
        assert call("sweep", *words)[0] == 0
    assert len({spec.to_json() for spec, _ in seen}) == 1
    assert [root for _, root in seen] == [tmp_path / "a b", tmp_path / "a b", tmp_path / "link"]
