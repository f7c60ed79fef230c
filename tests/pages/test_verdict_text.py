"""Verdict on a claim in words: the comparison that stands for a part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from staleharness.pages.verdict_text import deciding_comparison, interval_text
from staleharness.statistics.claims.part_tests import PartComparison
from staleharness.statistics.t_tests_and_intervals import Contrast


def test_the_worst_comparison_decides() -> None:
    yes, sure = (PartComparison(text, None, "yes", holm=p) for text, p in (("a", 0.04), ("b", 0.001)))
    open_ = PartComparison("c", None, "open", holm=0.5)
    no, surely_no = (PartComparison(text, None, "no", holm=p) for text, p in (("d", 0.04), ("e", 0.001)))
    assert deciding_comparison([sure, yes]) is yes
    assert deciding_comparison([yes, open_, sure]) is open_
    assert deciding_comparison([open_, no, surely_no, yes]) is surely_no


@pytest.mark.parametrize(
    ("low", "p", "n", "words"),
    [
        (0.1, 0.03, (3, 3), "0.20 [0.10, 0.30]"),
        (None, 1.0, (3, 3), "0.20 [the same in every seed]"),
        (None, None, (3, 1), "0.20 [one seed]"),
        (None, None, (3, 3), "0.20 [a seed has 0]"),
    ],
)
def test_a_difference_without_an_interval_says_why(
    low: float | None, p: float | None, n: tuple[int, ...], words: str
) -> None:
    result: Any = SimpleNamespace(part=SimpleNamespace(ratio=False, what="score"))
    contrast = Contrast(0.2, low, None if low is None else 0.3, p, n, {"Hopper-v5": 0.2})
    assert interval_text(result, contrast) == words
