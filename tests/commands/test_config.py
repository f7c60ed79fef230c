"""`config`: settings of a run or a study, and what differs; `completion`: a script that a shell takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from staleharness.commands.completion import flags, script
from staleharness.store.store import Store

Call = Callable[..., tuple[Any, str, str]]
BUNDLE = str(ROOT / "results" / "reference" / "vaco_delta")


def test_the_settings_of_a_study_and_what_differs_between_two(call: Call) -> None:
    delta, rho = (str(ROOT / "experiments" / f"vaco_{name}.toml") for name in ("delta", "rho_bar"))
    code, text, _ = call("config", delta)
    assert code == 0 and "env = HalfCheetah-v5" in text and "hyper.delta = " in text
    code, text, _ = call("config", delta, "--diff", rho)
    assert code == 0 and "hyper.rho_bar: 1.0 -> 0.5" in text.splitlines() and "env" not in text
    assert call("config", delta, "--diff", delta)[1] == "nothing differs\n"


def test_the_settings_of_stored_runs(call: Call) -> None:
    first, second, *_ = sorted(Store(BUNDLE).read_all(), key=lambda run: run.id)
    code, text, _ = call("config", first.id, "--out", BUNDLE, "--json")
    assert code == 0 and json.loads(text)["seed"] == first.seed
    code, text, _ = call("config", first.id, "--diff", second.id, "--out", BUNDLE, "--json")
    found = json.loads(text)
    assert found and all(a != b for a, b in found.values())
    for what in ("", "zzz"):
        code, text, errors = call("config", what, "--out", BUNDLE)
        assert (code, text) == (2, "") and errors.count("\n") == 1


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    (tmp_path / "c.sh").write_text(script("bash"))

    def completed(*words: str) -> list[str]:
        asked = f'source {tmp_path}/c.sh; COMP_WORDS=({" ".join(words)} ""); COMP_CWORD={len(words)}; '
        done = subprocess.run(
            ["bash", "-c", f'{asked}_staleharness; echo "${{COMPREPLY[@]}}"'], capture_output=True, text=True
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout.split()

    assert completed("staleharness") == list(flags())
    assert set(completed("staleharness", "sweep")) == set(flags()["sweep"]) >= {"--env", "--dry", "--help"}


def test_every_shell_is_told_every_command(call: Call) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, text, _ = call("completion", shell)
        assert code == 0 and all(name in text for name in flags())
    code, _, errors = call("completion", "tcsh")
    assert code == 2 and "'tcsh'" in errors
