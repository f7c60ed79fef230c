"""A plugin's class that is not written as its kind has to be is one line when the plugin is read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from known_plugins import loaded_plugins

import staleharness as sh
from staleharness.lag import LAGS

ALGORITHM = '''
from __future__ import annotations
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss

@ALGORITHMS.register("{name}")
{above}
class Mine{base}:
    """A method of one's own."""
    {field}
    def {loss}(self, d):
        return PolicyLoss(-d.target_logp * d.advantage)
{more}
'''
USUAL = {
    "above": "@dataclass(frozen=True)",
    "base": "(Algorithm)",
    "field": "cap: float = 1.0",
    "loss": "policy_loss",
    "more": "",
}
PICKY = """
    def __post_init__(self):
        super().__post_init__()
        assert self.cap < 2, "too large"
"""
WRONG = {
    "union": ({"field": "cap: float | None = None"}, "cap is of type float | None; a field must be a bool, int,"),
    "tuple": ({"field": "cap: tuple[int, ...] = ()"}, "cap is of type tuple[int, ...]; a field must be a bool"),
    "unknown": ({"field": "cap: Cap = 1.0"}, "the type of a field is unknown: name 'Cap' is not defined"),
    "needed": ({"field": "cap: float"}, "Mine cannot be made with its defaults: TypeError"),
    "picky": ({"field": "cap: float = 3.0", "more": PICKY}, "with its defaults: AssertionError: too large"),
    "text": ({"field": "cap: float = 'one'"}, "its defaults do not go together"),
    "bare": ({"base": ""}, "Mine does not extend Algorithm; write class Mine(Algorithm)"),
    "undecorated": ({"above": ""}, "Mine has the field cap but is not a dataclass; write @dataclass(frozen=True)"),
    "misspelt": ({"loss": "polcy_loss"}, "Mine does not define policy_loss(self, decisions), the loss that"),
    "two words": ({}, "the name 'two words' in algorithms cannot be typed"),
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """No plugin of a test outlives it."""
    with loaded_plugins():
        yield


def write(folder: Path, name: str, **changed: str) -> Path:
    path = folder / f"{name.replace(' ', '_')}.py"
    path.write_text(ALGORITHM.format(name=name, **{**USUAL, **changed}))
    return path


@pytest.mark.parametrize("name", WRONG)
def test_a_class_of_another_shape_is_refused_in_one_line(name: str, tmp_path: Path, call: Cli) -> None:
    changed, said = WRONG[name]
    path = write(tmp_path, name, **changed)
    for words in (["list"], ["sweep", "--env", "bit-chain", "--algo", name, "--dry"]):
        code, _, errors = call(*words, "--plugin", str(path))
        assert code == 2 and said in errors and errors.count("\n") == 1, errors


EXITING = """
    def __post_init__(self):
        super().__post_init__()
        if self.cap > 2:
            raise SystemExit(7)
"""


@pytest.mark.parametrize("name, said", [("choosy", "AssertionError: too large"), ("exiting", "SystemExit: 7")])
def test_an_option_refused_by_a_plugin_is_one_line(name: str, said: str, tmp_path: Path, call: Cli) -> None:
    path = write(tmp_path, name, more=PICKY if name == "choosy" else EXITING)
    words = ["sweep", "--env", "bit-chain", "--dry", "--plugin", str(path), "--algo"]
    assert call(*words, name)[0] == 0
    code, _, errors = call(*words, f"{name}[cap=3]")
    assert (code, errors) == (2, f"staleharness: ALGO={name}: {said}\n")


ENDING = """
import sys
from staleharness.chain.task import ChainTask
from staleharness.task import ENVS

@ENVS.register("ending")
class Ending(ChainTask):
    ids = {"ending": "ends the program when a run is planned"}

    @classmethod
    def check(cls, spec):
        sys.exit(0)
"""


def test_a_plugin_that_ends_the_program_anywhere_else_is_one_line(tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "ending.py"
    path.write_text(ENDING)
    code, out, errors = call("sweep", "--env", "ending", "--dry", "--plugin", str(path))
    assert (code, out) == (2, "")
    assert errors == "staleharness: a plugin ended the command with SystemExit(0)\n"


TEXT = {"field": "how: str = 'plain'\n    cap: float = 1.0"}


@pytest.mark.parametrize("typed", ["nan", '"nan"', '"1"', '"true"', "other"])
def test_a_text_option_is_any_word_and_its_label_parses_back(typed: str, tmp_path: Path, call: Cli) -> None:
    path = str(write(tmp_path, "texts", **TEXT))

    def plan(algo: str) -> Any:
        return sh.plan(env="bit-chain", algo=algo, seeds=1, plugin=path)

    (run,) = plan(f"texts[how={typed}]").runs
    assert run.spec.hyper["how"] == typed.strip('"')
    assert [(again.run_id, again.label) for again in plan(run.label).runs] == [(run.run_id, run.label)]


def test_a_number_for_a_text_option_says_how_it_is_typed(tmp_path: Path, call: Cli) -> None:
    path = str(write(tmp_path, "texts", **TEXT))
    code, _, errors = call("sweep", "--env", "bit-chain", "--dry", "--plugin", path, "--algo", "texts[how=1]")
    assert code == 2 and 'how=1 is not a string; write "1", in double quotes' in errors


def test_an_environment_that_is_no_task_is_refused(tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "place.py"
    path.write_text("from staleharness.task import ENVS\n@ENVS.register('place')\nclass Place:\n    ids = {'a': 'b'}\n")
    code, _, errors = call("list", "--plugin", str(path))
    assert code == 2 and "Place does not extend Task; write class Place(Task)" in errors


RAISING = """
from dataclasses import dataclass
import numpy as np
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
from staleharness.lag import LAGS, LagModel, keep

class Newest(LagModel):
    def assign(self, draw): return keep(np.full(draw.slots, draw.phase))
    def probabilities(self, phase, capacity): return {phase: 1.0}

@LAGS.register("wide")
@dataclass(frozen=True)
class Wide(Newest):
    def probabilities(self, phase, capacity): return {[0, 1][capacity]: 1.0}

@LAGS.register("picky")
@dataclass(frozen=True)
class Picky(Newest):
    def check(self, capacity): raise RuntimeError("not\\nhere")

@ALGORITHMS.register("keyed")
@dataclass(frozen=True)
class Keyed(Algorithm):
    @property
    def proximal(self): return {}["proximal"]
    def policy_loss(self, d): return PolicyLoss(-d.target_logp * d.advantage)

@LAGS.register("remote")
@dataclass(frozen=True)
class Remote(Newest):
    def check(self, capacity): raise ConnectionError("licence server is away")

@LAGS.register("filed")
@dataclass(frozen=True)
class Filed(Newest):
    def check(self, capacity): open(".")

@LAGS.register("greedy")
@dataclass(frozen=True)
class Greedy(Newest):
    def check(self, capacity): raise OSError(24, "Too many open files")
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lag", "wide"], "IndexError: list index out of range (raising.py, line 15)"),
        (["--lag", "picky"], "RuntimeError: not here (raising.py, line 20)"),
        (["--algo", "keyed"], "KeyError: 'proximal' (raising.py, line 26)"),
        (["--lag", "remote"], "ConnectionError: licence server is away (raising.py, line 32)"),
        (["--lag", "filed"], "IsADirectoryError: [Errno 21] Is a directory: '.' (raising.py, line 37)"),
    ],
)
def test_an_error_of_a_plugin_at_planning_is_one_line(words: list[str], said: str, tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "raising.py"
    path.write_text(RAISING)
    code, _, errors = call("sweep", "--env", "bit-chain", "--k", "4", "--dry", "--plugin", str(path), *words)
    assert (code, errors) == (2, f"staleharness: a plugin raised {said}\n")


def test_a_machine_s_trouble_inside_a_plugin_is_no_fault_of_it(tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "raising.py"
    path.write_text(RAISING)
    code, _, errors = call("sweep", "--env", "bit-chain", "--dry", "--plugin", str(path), "--lag", "greedy")
    assert code == 2 and errors.startswith("staleharness: too many open files; run fewer things at a time")


def test_an_unreadable_file_of_a_built_in_model_is_named(
    tmp_path: Path, call: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lags.csv"
    file.write_text("lag\n1\n")

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(sys.modules[LAGS["log"].__module__], "digest", refuse)
    code, _, errors = call("sweep", "--env", "bit-chain", "--dry", "--k", "2", "--lag", f"log:{file}")
    assert (code, errors) == (2, f"staleharness: {file}: Permission denied\n")


ASSIGN, SCHEDULE = ("    def assign(self, draw): return 1\n", "    def schedule(self, demand): return 1\n")


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ("    def oldest(self, phase): return phase\n", "neither assign(self, draw) nor schedule(self, demand)"),
        (ASSIGN + SCHEDULE, "both assign(self, draw) and schedule(self, demand)"),
    ],
)
def test_a_lag_model_has_one_source_of_versions(methods: str, words: str, tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "idle.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom staleharness.lag import LAGS, LagModel\n@LAGS.register('idle')\n"
        f"@dataclass(frozen=True)\nclass Idle(LagModel):\n{methods}"
    )
    code, _, errors = call("sweep", "--env", "bit-chain", "--lag", "idle", "--dry", "--plugin", str(path))
    words = f"Idle defines {words}"
    assert code == 2 and f"{path}: " in errors and words in errors and errors.count("\n") == 1, errors


TASK = """
from staleharness.language.task import LanguageTask
from staleharness.task import ENVS

@ENVS.register("rhymes")
class Rhymes(LanguageTask):
    ids = {"rhymes": "words that rhyme"}

    def problems(self, spec, split):
        return []

    def model(self, spec, progress):
        return spec.model
"""


@pytest.mark.parametrize(
    "right, wrong, said",
    [
        ("def problems", "def problem", "Rhymes does not define problems(self, spec, split)"),
        ("def model", "def modle", "Rhymes does not define model(self, spec, progress)"),
        (
            '{"rhymes": "words that rhyme"}',
            '["rhymes"]',
            "ids is not a dictionary of strings, such as {'my-task': 'one line'}",
        ),
        ("ids = ", "idz = ", "Rhymes lists no environment; write ids = {'my-task': 'one line'}"),
    ],
)
def test_a_task_without_its_parts_is_refused(right: str, wrong: str, said: str, tmp_path: Path, call: Cli) -> None:
    path = tmp_path / "rhymes.py"
    path.write_text(TASK.replace(right, wrong))
    code, _, errors = call("sweep", "--env", "rhymes", "--dry", "--plugin", str(path))
    assert code == 2 and f"{path}: " in errors and said in errors and errors.count("\n") == 1, errors


def test_workers_find_a_relative_plugin_path(tmp_path: Path, call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each works in the folder of its own run."""
    path = write(Path.cwd(), "nearby")
    monkeypatch.setenv("STALEHARNESS_PLUGINS", os.path.relpath(path))
    tiny = ["--seeds", "1", "--steps", "2", "--set", "batch=8,horizon=8,evaluations=1"]
    code, _, errors = call("sweep", "--env", "bit-chain", "--algo", "nearby", *tiny)
    assert code == 0, errors
