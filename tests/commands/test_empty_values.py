"""An empty value, of a shell variable that is not set say, is refused: it means neither all nor none."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from command_line import Cli
from each_case import check_each
from raising import raising
from results_helper import write_run

import staleharness as sh
from staleharness.commands.shared.command_line_parser import flag_of, parse, verbs
from staleharness.errors import UserError


def command_line(verb: str, option: str, value: str) -> list[str]:
    """Words of a verb: one for each place, and the option or place with this value."""
    line = [verb]
    for field in fields(verbs()[verb].command):
        if field.default is MISSING:
            line.append(value if field.name == option else "x")
        elif field.name == option:
            line.append(f"{flag_of(option)}={value}")
    return line


@pytest.mark.parametrize("verb", verbs())
def test_no_option_of_any_command_takes_an_empty_value(verb: str) -> None:
    def check(option: str) -> None:
        for value in ("", " ", ",", " , "):
            with pytest.raises(UserError, match=f"^{verb}: .* is empty; give "):
                parse(command_line(verb, option, value))
        parse(command_line(verb, option, "x"))

    known = fields(verbs()[verb].command)
    check_each([field.name for field in known if not isinstance(field.default, bool)], check)


def test_a_variable_of_the_shell_that_is_not_set_starts_nothing(call: Cli) -> None:
    for words in (
        ["reproduce", "--paper", ""],
        ["figures", "--fig", ""],
        ["report", "--env", "", "--out", "x"],
        ["list", "--plugin", ","],
    ):
        code, out, err = call(*words)
        assert (code, out, err.count("\n")) == (2, "", 1) and f"{words[1]}={words[2]!r} is empty" in err
        assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("value", ["", " , "])
@pytest.mark.parametrize(
    "name",
    "env k algo seeds steps preset lag n model data device settings spec scale plugin out jobs runner runs_per_gpu "
    "memory slurm".split(),
)
def test_no_argument_of_a_sweep_takes_an_empty_text(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staleharness.running.plan_execution.execute_plan", raising(AssertionError("it was started")))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^{name}={value!r} is empty; "):
        sh.sweep(**{"env": "Pendulum", name: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["env", "k", "algo", "where"])
def test_no_filter_takes_an_empty_text_or_list(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "out", "spo", 0)
    results = sh.load(tmp_path / "out")
    for empty in ("", " , ", [], ()):
        if name == "where" and empty != "" and not isinstance(empty, str):
            continue
        with pytest.raises(UserError, match=name.upper()):
            results.select(**{name: empty})
    assert len(results.select(**{name: None})) == 1
