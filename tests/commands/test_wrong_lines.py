"""Wrong command lines by the hundred: each is one line on standard error, exit code 2, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from command_line import Cli
from each_case import check_each
from raising import raising

from staleharness.commands.shared.command_line_parser import flag_of, verbs

BUNDLE = str(Path(__file__).parents[2] / "results" / "reference" / "quick_hopper")
MISSING_FOLDER = "/proc/nowhere"  # no folder can be made there, whoever asks
S = ["sweep", "--dry", "--env", "Hopper"]
HOPPER = ["sweep", "--env", "Hopper"]
NO_NUMBER = ("nan", "inf", "-0x1", "1e400", "½")
LONG, DIGITS = "9" * 5000, "1" + "0" * 30
BRACKETS = "[" * 5000 + "]" * 5000
METHODS = "a]b[c spo[[x=1]] vaco[delta=2020-01-01] vaco[delta=0.1,delta=0.2] ppo_clip,ppo_clip[clip=0.2] пpo ../spo"
SETTINGS = "hidden=[] hidden=64 seed=3 epochs= =3 epochs=2,epochs=3 num_envs=1000000000000 threads=100000"
LINES: list[list[str]] = [
    # folders that cannot be
    [*S, "--out", MISSING_FOLDER],
    [*S, "--out", f"{MISSING_FOLDER}/a/b"],
    ["reproduce", "--fig", "3", "--dry", "--out", MISSING_FOLDER],
    ["run", "--env", "Hopper", "--algo", "spo", "--out", MISSING_FOLDER],
    ["pack", BUNDLE, MISSING_FOLDER],
    ["unpack", BUNDLE, MISSING_FOLDER],
    ["pipeline", "--out", MISSING_FOLDER],
    ["figures", "--paper", "vaco", "--out", MISSING_FOLDER],
    ["export", "csv", "--out", BUNDLE, "--to", MISSING_FOLDER],
    ["verify", BUNDLE, "--out", MISSING_FOLDER],
    ["new", "algorithm", "ok_name", "--folder", MISSING_FOLDER],
    ["compare", BUNDLE, BUNDLE],
    ["compare", BUNDLE, MISSING_FOLDER],
    ["advise", "--results", MISSING_FOLDER],
    ["report", "--out", MISSING_FOLDER],
    ["status", "--out", MISSING_FOLDER],
    ["config", "abc", "--out", MISSING_FOLDER],
    ["figures", "--bundles", MISSING_FOLDER],
    ["figures", "--bundles", "."],
    # lists with a hole
    *([*S, "--seeds", text] for text in ("1,,2", ",1", "1,2,", "1, ,2")),
    *([*S, "--k", text] for text in ("1,,8", ",8", "8,")),
    *([*S, "--algo", text] for text in ("spo,,vaco", "spo,", "vaco[delta=0.1,]", "vaco[,delta=0.1]", "vaco[,]")),
    *([*S, "--set", text] for text in ("learning_rate=1e-4,", ",epochs=2", "epochs=2,,minibatches=4")),
    [*S, "--lag", "geometric[decay=0.7,]"],
    ["sweep", "--dry", "--env", "Hopper,,Ant"],
    ["report", "--out", BUNDLE, "--k", "8,"],
    ["report", "--out", BUNDLE, "--where", "lag=oldest,"],
    ["pipeline", "--preset", "sync,,async"],
    ["pipeline", "--set", "cap=4,"],
    ["list", "--plugin", "a.py,,b.py"],
    # more than any machine holds
    *([*S, "--set", f"hidden=[{widths}]"] for widths in ("1000000000", "1000000,1000000", "64,9223372036854775807")),
    [*S, "--steps", "1e15", "--set", "num_steps=1e13"],
    [*S, "--steps", "1e15", "--set", "num_envs=1e12,num_steps=8"],
    [*HOPPER, "--k", "4", "--lag", "delay:2", "--steps", "1e12"],
    *([*HOPPER, "--lag", lag] for lag in (f"fixed:{LONG}", "areal:1e308", "partial:1e308", "llamarl:100000000")),
    *([*HOPPER, "--k", k] for k in (LONG, DIGITS, "1e-1")),
    *([*HOPPER, "--jobs", jobs] for jobs in ("-3", "1000000")),
    [*HOPPER, "--seeds", "1000000000"],
    [*HOPPER, "--device", "cuda:99999999999999999999"],
    *(["run", "--env", "Hopper", "--algo", "spo", f"--seed={seed}"] for seed in (DIGITS, "-1")),
    *(["pipeline", "--set", text] for text in ("cap=1e308", "slots=1000000000")),
    # names and settings that are none: NUL, half characters, escape sequences, a Cyrillic п, thousands of digits
    *(["sweep", "--env", env] for env in ("Hopper\0", "H" * 300, "\udcff", "os:Hoppper-v5")),
    *(["sweep", "--env", env] for env in ("Hopper-v2", "phys2d/CartPole-v1", "Blackjack-v1")),  # not to be made here
    *([*HOPPER, "--algo", algo] for algo in (*METHODS.split(), "spo\x1b[31m]")),
    *([*HOPPER, "--set", text] for text in SETTINGS.split()),
    *([*HOPPER, "--set", f"learning_rate={number}"] for number in ("0x" + "f" * 4000, BRACKETS)),
    *([*HOPPER, "--steps", steps] for steps in ("1,000", "1M", DIGITS)),
    # paths that are none
    *(
        [*HOPPER, "--out", path]
        for path in ("x" * 300, "a\0b", "~nobody-of-this-name/x", "/dev/null", "/dev/null/\x1b\n")
    ),
    *([*HOPPER, "--plugin", path] for path in (".", "~nobody-of-this-name/x.py", "a b.py")),
    *([*HOPPER, "--spec", path] for path in (".", "x" * 300)),
    *(["new", "algorithm", "ok_name", "--folder", path] for path in ("/dev/null/x", "a\0b")),
    *(["new", *words] for words in ([], ["algorithm", "--folder", "."], ["algorithm", "class"])),
    # words out of place, beside those of `grammar`
    *([*HOPPER, *words.split()] for words in ("-k 8", "--k 4 8", "--json maybe", "--no-json")),
    [""],
    ["--json"],
    # numbers that are none
    *([*S, flag, text] for flag in ("--k", "--seeds", "--steps", "--jobs") for text in NO_NUMBER),
    *([*S, "--set", f"learning_rate={text}"] for text in ("nan", "-nan", "inf", "-1", "0", "true", "[1]", "1e999")),
    *([*S, "--algo", f"vaco[delta={text}]"] for text in ("nan", "+nan", "inf", "true", "[0.1]", "''")),
    *(["pipeline", "--steps", text] for text in ("nan", "0", "-1", "1e30")),
    *(["pipeline", "--set", f"cap={text}"] for text in ("nan", "x", "-1")),
    *(["advise", "--results", BUNDLE, "--keep", text] for text in ("nan", "x", "2", "-1", "inf")),
    *(["advise", "--results", BUNDLE, "--zero", text] for text in ("nan", "x", "inf", "true")),
    *(["verify", BUNDLE, "--n", text] for text in ("nan", "0", "-1", "some")),
]


def grammar() -> Iterator[list[str]]:
    """Words out of place, for every verb."""
    for name, verb in verbs().items():
        places = ["x" for field in fields(verb.command) if field.default is MISSING]
        yield [name, *places, "too", "many"]
        yield [name, *places, "--nothing-of-this-name"]
        yield [name, *places, "--nothing=1"]
        yield [name, *places, "-x"]
        yield [name, *places, "--"]
        if places:
            yield [name, *places[1:]]
        for field in fields(verb.command):
            flag = flag_of(field.name)
            if field.default is MISSING:
                continue
            if isinstance(field.default, bool):
                yield [name, *places, f"{flag}=1"]
                yield [name, *places, flag, flag]
            else:
                yield [name, *places, flag]
                yield [name, *places, flag, flag, "x"]
                yield [name, *places, f"{flag}=x", f"{flag}=x"]
                yield [name, *places, flag.upper(), "x"]


WRONG = [*LINES, *grammar()]


@pytest.mark.parametrize("verb", sorted({line[0] for line in WRONG}))
def test_a_wrong_line_is_one_line_and_exit_code_2(verb: str, call: Cli) -> None:
    def check(line: list[str]) -> None:
        code, out, err = call(*line)
        assert (code, out) == (2, ""), err
        assert err.startswith("staleharness: ") and err.count("\n") == 1 and len(err) < 800, err
        assert err.rstrip("\n").isprintable()
        assert list(Path.cwd().iterdir()) == []

    check_each([line for line in WRONG if line[0] == verb], check, " ".join)


def test_a_dry_run_says_what_a_network_would_take(call: Cli) -> None:
    _, _, err = call(*S, "--set", "hidden=[1000000000]")
    assert "hidden=[1000000000]" in err and "a run takes at least" in err and "this machine has" in err


def test_a_study_of_too_many_runs_is_counted_and_refused(
    call: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f'env = "Hopper"\ncapacity = {list(range(1, 200_001))}\n')
    monkeypatch.setattr("staleharness.running.plan.resolve_environments", raising(AssertionError("it was made")))
    code, out, err = call("sweep", "--dry", "--spec", str(study))
    assert (code, out) == (2, "") and "the grid has 600,000 runs, more than 100,000" in err


def test_duplicates_of_a_long_axis_are_found_in_one_pass() -> None:
    from staleharness.errors import UserError
    from staleharness.running.methods_and_environments import check_unique

    class CountingFamily(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            CountingFamily.compared += 1
            return str(self) == other

    values = [CountingFamily(i) for i in range(300)]
    check_unique(values, "K")
    assert CountingFamily.compared < 3000
    with pytest.raises(UserError, match="K names 7 more than once"):
        check_unique([*values, CountingFamily(7)], "K")


@pytest.mark.parametrize("cell", ["1e308", "1e16", "-1", "inf"])
def test_a_log_of_impossible_lags_is_one_line(call: Cli, tmp_path: Path, cell: str) -> None:
    log = tmp_path / "lags.csv"
    log.write_text(f"lag\n1\n{cell}\n{cell}\n")
    code, out, err = call("advise", "--results", BUNDLE, "--log", str(log))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"LOG=lags.csv: '{cell}' in row 2 of 'lag' is not a lag (a number from 0 to 1e15)" in err
