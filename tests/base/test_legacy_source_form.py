"""Hashes of plugin files: options added later and renamed imports leave them alone."""

from __future__ import annotations

import ast

import pytest

from staleharness.base import legacy_source_form
from staleharness.base.legacy_source_form import _constant_value
from staleharness.base.plugin_code_hash import meaning_hash

PUBLISHED = """
from staleharness.objectives import ratio

class Base(Algorithm):
    clip: float = 0.2

    def policy_loss(self, d):
        weight = ratio(d.target_logp, d.behaviour_logp)
        return PolicyLoss(-weight * d.advantage, {"weight": weight})

class Child(Base):
    def proximal(self):
        return "behaviour"

class Sibling(Algorithm):
    penalty: float = 0.5

    def policy_loss(self, d):
        return d.advantage * 2 if self.penalty else d.advantage
"""


def edit(*changes: tuple[str, str]) -> str:
    text = PUBLISHED
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def hash_of(text: str, *changed: str) -> str:
    return meaning_hash(text.encode(), frozenset(changed))


FIELD = ("    clip: float = 0.2\n", "    clip: float = 0.2\n    penalty: float = later(0.0, before=0.0)\n")
LOSS = "        return PolicyLoss(-weight"
USES = {
    "declaration alone": (),
    "if": ((LOSS, f"        if self.penalty:\n            weight = weight + self.penalty * d.kl\n{LOSS}"),),
    "comparison": ((LOSS, f"        if self.penalty > 0 and d.kl > 0:\n            weight = weight * 2\n{LOSS}"),),
    "or": (("-weight *", "-(self.penalty or weight) *"),),
    "and not": (("-weight *", "-(not self.penalty and weight) *"),),
    "conditional": (("-weight *", "-(weight + self.penalty * d.kl if self.penalty else weight) *"),),
    "check": ((LOSS, f'        self.require("penalty", self.penalty >= 0, "0 or above")\n{LOSS}'),),
    "inherited": (('return "behaviour"', 'return "recompute" if self.penalty else "behaviour"'),),
}


@pytest.mark.parametrize("use", USES)
def test_an_option_added_later_leaves_the_hash_at_before(use: str) -> None:
    grown = edit(FIELD, *USES[use])
    assert hash_of(grown) == hash_of(PUBLISHED)
    assert hash_of(grown, "penalty") != hash_of(PUBLISHED), "where it is used, its code counts"


def test_code_that_runs_at_before_counts() -> None:
    kept = edit(FIELD, (LOSS, f"        if not self.penalty:\n            weight = 1\n{LOSS}"))
    assert hash_of(kept) != hash_of(PUBLISHED)
    assert hash_of(edit(FIELD, ("-weight *", "-weight * self.penalty *"))) != hash_of(PUBLISHED)


def test_an_option_of_another_value_before_takes_the_other_branch() -> None:
    field = (FIELD[0], FIELD[0] + '    mode: str = later("b", before="a")\n')
    grown = edit(field, (LOSS, f'        if self.mode == "b":\n            weight = weight * 2\n{LOSS}'))
    assert hash_of(grown) == hash_of(PUBLISHED) != hash_of(grown, "mode")
    assert hash_of(grown.replace('later("b"', 'later("c"'), "mode") == hash_of(grown, "mode"), "defaults may change"
    assert hash_of(grown.replace('before="a"', 'before="b"')) != hash_of(PUBLISHED), "before may not"


def test_an_edit_of_code_behind_an_option_expires_its_runs_alone() -> None:
    once, again = (edit(FIELD, USES["if"][0]).replace("* d.kl", term) for term in ("* d.kl", "* d.kl**2"))
    assert hash_of(once) == hash_of(again)
    assert hash_of(once, "penalty") != hash_of(again, "penalty")


def test_an_option_of_the_same_name_in_another_class_counts() -> None:
    grown = edit(FIELD)
    assert hash_of(grown.replace("d.advantage * 2 if", "d.advantage * 3 if")) != hash_of(grown)


RENAMED = "staleharness.objectives.importance"


@pytest.mark.parametrize(
    "changes",
    [
        [("import ratio", "import importance"), ("ratio(", "importance(")],
        [("import ratio", "import importance as ratio")],
    ],
    ids=["new name", "alias"],
)
def test_a_renamed_import_leaves_the_hash_alone(
    changes: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(legacy_source_form.EARLIER_NAMES, RENAMED, "ratio")
    assert hash_of(edit(*changes) + "# a text of its own") == hash_of(PUBLISHED)


@pytest.mark.parametrize(
    "line", ["from staleharness import objectives", "import staleharness.objectives as objectives"]
)
def test_a_renamed_attribute_of_a_module_leaves_the_hash_alone(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = f"{line}\nx = objectives.ratio(1) + other.importance"
    monkeypatch.setitem(legacy_source_form.EARLIER_NAMES, RENAMED, "ratio")
    assert hash_of(before.replace("objectives.ratio", "objectives.importance")) == hash_of(before)
    assert hash_of(before.replace("other.importance", "other.ratio")) != hash_of(before)


def test_another_function_under_an_unlisted_name_counts() -> None:
    assert hash_of(edit(("import ratio", "import other"), ("ratio(", "other("))) != hash_of(PUBLISHED)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5 == 0.5", True),
        ("not True", False),
        ("1 < 2 <= 2 != 3", True),
        ("'a' in ('a', 'b')", True),
        ("None is not None", False),
        ("-1 >= -2", True),
        ("[1, 2] == [1, 3]", False),
        ("3 not in (1, 2)", True),
        ("+1 > ~0", True),
        ("1 is None", False),
    ],
)
def test_constants_are_compared_as_python_does(text: str, value: bool) -> None:
    assert _constant_value(ast.parse(text, mode="eval").body) is value
