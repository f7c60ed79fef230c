"""Targets of the page exist: each method with its options, each lag model."""

from __future__ import annotations

import re

import pytest
from places import ROOT

from staleharness.algorithm import ALGORITHMS
from staleharness.base.parsing import parse_choice
from staleharness.lag import parse_lag

PAGE = (ROOT / "docs" / "from_your_system.md").read_text(encoding="utf-8")
LOSSES, _, LAGS = PAGE.partition("\n## Lag\n")


def last_cells(text: str) -> list[str]:
    """Texts in the last column of the tables, without the heads, each once."""
    return list(dict.fromkeys(re.findall(r"\| `([^`|]+)` \|$", text, re.MULTILINE)))[1:]


@pytest.mark.parametrize("text", last_cells(LOSSES))
def test_each_translation_is_a_method_that_can_be_made(text: str) -> None:
    choice = parse_choice(text)
    assert ALGORITHMS[choice.name](**choice.options)


@pytest.mark.parametrize("text", last_cells(LAGS))
def test_each_lag_is_a_model_that_can_be_made(text: str) -> None:
    assert parse_lag(text, 8)


def test_each_of_the_six_systems_has_rows() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| ", LOSSES, re.MULTILINE)
    assert {"verl", "TRL", "prime-rl", "slime", "AReaL", "NeMo-RL"} <= set(rows)
