"""Runs that all score the same, and gaps that are the same in every seed: nothing is certain or infinite."""

from __future__ import annotations

import numpy as np
import pytest
from corrections import _gap

from staleharness.figures.baseline_tests import spread_of
from staleharness.pages.verdict_texts import _cells
from staleharness.statistics.claims import part_tests
from staleharness.statistics.claims.claim import ClaimPart
from staleharness.statistics.claims.contrast import contrast
from staleharness.statistics.power import p_value, spread
from staleharness.statistics.scores import Array, deviations
from staleharness.statistics.significance import compare_with_baseline, f_ratio, hedges_g


def constant(value: float, n: int) -> Array:
    return np.full(n, value)


def difference(means: Array) -> float:
    return float(means[0] - means[1])


def test_equal_scores_have_no_deviation_whatever_rounding_makes_of_their_mean() -> None:
    assert constant(0.1, 3).mean() != 0.1 and not deviations(constant(0.1, 3)).any()
    assert deviations(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]


def test_runs_without_spread_have_no_effect_size_and_no_spread() -> None:
    assert hedges_g([constant(0.1, 3)], [constant(0.2, 3)]) is None  # it was −3e15
    assert spread([constant(0.1, 3), constant(0.7, 5)]) == 0.0


def test_runs_without_spread_are_told_apart_by_their_number_alone() -> None:
    assert p_value(constant(0.1, 3), constant(0.2, 3)) == 0.1  # 2 of the 20 ways to deal out six runs
    assert p_value(constant(0.1, 5), constant(0.2, 5)) == pytest.approx(2 / 252)
    assert p_value(constant(0.7, 3), constant(0.7, 5)) == 1.0  # rounding made it 0.29


def test_methods_that_all_score_the_same_have_no_f_ratio() -> None:
    for value in (0.5, 0.1, 0.7):
        assert np.isnan(f_ratio([constant(value, 3), constant(value, 3)]))
    assert f_ratio([constant(0.1, 3), constant(0.7, 3)]) == float("inf")
    same = dict.fromkeys(range(3), 0.1)
    assert spread_of({"a": same, "b": same}, "", "").startswith("all runs score the same; 0 of 1 pairs")


def test_methods_without_two_seeds_in_common_are_not_said_to_have_one_run() -> None:
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {2: 1.0, 3: 2.0}}
    assert spread_of(scores, "", "Mine-v0") == "Mine-v0: no two methods have two seeds in common"


def test_too_few_seeds_that_differ_by_the_same_have_no_interval_beside_their_p() -> None:
    for n, known in ((3, False), (5, False), (6, True)):
        base = {seed: 0.25 * seed for seed in range(n)}
        (d,) = compare_with_baseline({"base": base, "shifted": {s: v + 0.5 for s, v in base.items()}}, "base")
        assert (d.low is not None and d.high is not None) == d.significant_alone == known
        assert _gap(d, 1) == ("**+0.5 [0.5, 0.5]**" if known else "+0.5 [–]")


def test_a_page_says_that_seeds_differ_by_the_same_and_not_that_there_is_one() -> None:
    def said(values: list[list[float]]) -> str:
        made = contrast({"A": np.array(values)}, difference)
        row = part_tests.PartComparison("a − b", made, made.outcome("more"))
        return _cells(part_tests.PartResult(ClaimPart("x", of=("a",), over=("b",)), [row]), row)[1]

    assert said([[0.5, 0.75, 1.0], [0.25, 0.5, 0.75]]) == "0.25 [the same in every seed]"
    assert said([[0.5], [0.25]]) == "0.25 [one seed]"


def test_gaps_of_several_environments_are_judged_by_the_signs_of_their_pairs() -> None:
    def at(gaps: list[float], n: int) -> tuple[float | None, float | None]:
        seeds = np.arange(float(n))
        made = contrast({str(i): np.array([seeds + gap, seeds]) for i, gap in enumerate(gaps)}, difference)
        return made.low, made.p

    assert at([3.0, -1.0], 5) == (None, 1.0)  # five pairs each way
    assert at([3.0, 0.0, 0.0], 3) == (None, 0.25)  # three pairs and six ties
    assert at([3.0, 1.0], 3) == (2.0, 2 / 2**6)
    assert at([0.0, 0.0], 3) == (0.0, 1.0)
    assert at([1.0, -1.0], 3) == (None, 1.0)
