"""Verdict on a claim in words: the comparison that stands for a part."""

from __future__ import annotations

from staleharness.pages.verdict_text import deciding_comparison
from staleharness.statistics.claims.part_tests import PartComparison


def test_the_worst_comparison_decides() -> None:
    yes, sure = (PartComparison(text, None, "yes", holm=p) for text, p in (("a", 0.04), ("b", 0.001)))
    open_ = PartComparison("c", None, "open", holm=0.5)
    no, surely_no = (PartComparison(text, None, "no", holm=p) for text, p in (("d", 0.04), ("e", 0.001)))
    assert deciding_comparison([sure, yes]) is yes
    assert deciding_comparison([yes, open_, sure]) is open_
    assert deciding_comparison([open_, no, surely_no, yes]) is surely_no
