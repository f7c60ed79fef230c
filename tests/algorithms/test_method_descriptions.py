"""Descriptions of methods: family, cost and mechanisms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_specs import small_control

from staleharness.algorithm import ALGORITHMS
from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.base.plugins import builtin_folder, source_file
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.language.spec import LanguageSpec
from staleharness.running.plugin_listing import as_text, catalogue
from staleharness.statistics.row_diagnostics import MECHANISMS
from staleharness.testing import example_decisions
from staleharness.training.loop import simulation_of
from staleharness.training.method_descriptions import (
    OTHER,
    MethodEntry,
    describe,
    entry_of,
    extra_passes,
    families,
    warnings_of,
)

BUILT_IN = [name for name in ALGORITHMS if Path(source_file(ALGORITHMS[name])).parent == builtin_folder("algorithms")]
HERE = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=8)
TOKENS = LanguageSpec(env="word-problems", algorithm="ppo_clip", capacity=8)
SMALL = small_control(2, 2, 16, algorithm="decoupled_ppo", epochs=1, minibatches=1)


# --- its entry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_method_has_an_entry(name: str) -> None:
    entry = entry_of(ALGORITHMS[name])
    assert entry.family in families(ALGORITHMS[name])
    assert all((entry.level, entry.transform, entry.trust_region, entry.anchor, entry.traps))


def test_no_entry_remains_of_a_method_that_is_gone() -> None:
    import tomllib

    tables = tomllib.loads((builtin_folder("algorithms") / "methods.toml").read_text())
    assert set(tables["methods"]) == set(BUILT_IN)
    assert set(tables["families"]) == {entry_of(ALGORITHMS[name]).family for name in BUILT_IN}


def variants(name: str) -> list[Any]:
    """The method at its defaults and with each choice of each option that has choices."""
    from typing import Literal, get_args, get_origin

    cls = ALGORITHMS[name]
    made = [cls()]
    for key, hint in cls.hyper_parameter_types().items():
        if get_origin(hint) is Literal:
            made += [cls(**{key: choice}) for choice in get_args(hint)]
    return made


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_method_reports_is_explained_and_nothing_else_is(name: str) -> None:
    reported: set[str] = set()
    for algorithm in variants(name):
        record = replace(example_decisions(), state=algorithm.init_state())
        reported |= set(algorithm.policy_loss(record).diagnostics)
    assert set(entry_of(ALGORITHMS[name]).touches) == reported


IDEA = '''
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
@ALGORITHMS.register("my_idea")
@dataclass(frozen=True)
class Idea(Algorithm):
    """One line."""
    @property
    def proximal(self):
        return "recompute"
    def policy_loss(self, d):
        raise AssertionError("it is described, not trained")
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], type[Any]]:
    """`my_idea`, with the text given as the `methods.toml` beside it."""
    from staleharness.base.plugins import Registry

    fresh: Registry[Any] = Registry("algorithms")
    monkeypatch.setattr("staleharness.algorithm.ALGORITHMS", fresh)
    monkeypatch.setattr("staleharness.running.plugin_listing.ALGORITHMS", fresh)

    def make(places: str) -> type[Any]:
        (tmp_path / "idea.py").write_text(IDEA)
        if places:
            (tmp_path / "methods.toml").write_text(places)
        monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "idea.py"))
        return fresh["my_idea"]

    return make


def test_a_plugin_without_a_family_is_listed_under_other(plugin: Any) -> None:
    assert entry_of(plugin("")) == MethodEntry(anchor="π_prox, the learner at the start of the phase")
    text = as_text(catalogue())
    assert re.search(r"\nother\b.*\n\n  my_idea: One line\.\n.*anchor π_prox.*\n.*1 forward per phase", text)
    assert text.index("\nother") > text.index("\nbaseline")


def test_a_plugin_may_bring_its_place_and_a_family_of_its_own(plugin: Any) -> None:
    cls = plugin('[families]\nnew = "does a new thing"\n[methods.my_idea]\nfamily = "new"\nlevel = "token"\n')
    assert entry_of(cls) == MethodEntry(family="new", level="token")
    assert "\nnew: does a new thing\n" in as_text(catalogue())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[methods.my_idea]\nlevels = "token"', "methods.my_idea: unknown option 'levels'"),
        ("[methods.my_idea]\nlevel = 3", "methods.my_idea: level=3 is not a string"),
        ('[methods.my_idea]\nfamily = "clip"', "family 'clip'; the file has: none"),
        ("[methods", "cannot be read"),
    ],
)
def test_a_place_that_cannot_be_read_is_said_with_its_file(plugin: Any, text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        entry_of(plugin(text))
    assert words in str(error.value) and "methods.toml" in str(error.value)


def test_the_list_shows_every_method_once_under_its_family() -> None:
    content = catalogue()
    assert json.loads(json.dumps(content)) == content
    text = as_text(content).partition("\nlag models ")[0]  # one of which may have a method's name
    for entry in content["algorithms"]:
        assert text.count(f"\n  {entry['name']}: ") == 1
        if entry["name"] in BUILT_IN:
            above = text[: text.index(f"\n  {entry['name']}: ")]
            heads = re.findall(r"^(\w+): ", above, re.MULTILINE)
            assert heads[-1] == entry["family"] == entry_of(ALGORITHMS[entry["name"]]).family


# --- what it costs, and what a run records of it ------------------------------------------------------------------


def test_passes_depend_on_the_kind_of_run() -> None:
    vaco, decoupled = ALGORITHMS["vaco"](), ALGORITHMS["decoupled_ppo"]()
    two = replace(TOKENS, minibatches=2)
    assert [extra_passes(vaco, s).per_phase for s in (HERE, TOKENS, two)] == [0, 0, 1]
    assert [extra_passes(decoupled, s).per_phase for s in (HERE, TOKENS, two)] == [0, 1, 1]
    assert str(extra_passes(ALGORITHMS["ppo_clip"]())) == "none"
    assert str(extra_passes(ALGORITHMS["tba"]())) == "1 forward per gradient step"
    assert str(extra_passes(ALGORITHMS["vcpo"]())) == "completions one by one"


def test_the_simulation_of_control_knows_what_it_must_say() -> None:
    simulation = simulation_of(SMALL)
    simulation.close()
    assert simulation.warnings == warnings_of(ALGORITHMS["decoupled_ppo"](), SMALL) != []
    assert simulation.method == describe(ALGORITHMS["decoupled_ppo"](), SMALL)
    assert simulation.method["passes"] == "none"
    assert json.loads(json.dumps(simulation.method)) == simulation.method


# --- its mechanisms -----------------------------------------------------------------------------------------------


def test_every_built_in_mechanism_has_a_row() -> None:
    shares = {"clipped", "masked", "vetoed", "truncated", "rho_truncated", "filter_active"}
    reported = {d for name in BUILT_IN for d in entry_of(ALGORITHMS[name]).touches}
    assert shares <= reported and {f"algorithm/{s}" for s in shares} <= set(MECHANISMS)


def test_the_family_of_a_method_without_a_place_is_other() -> None:
    assert MethodEntry().family == OTHER
