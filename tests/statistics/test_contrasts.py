"""Contrasts: jackknife, single seeds, coverage, outcomes of claims. (The t-test itself: test_t_intervals.)"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from staleharness.errors import UserError
from staleharness.pages.verdict_text import _cells
from staleharness.statistics.claims.claim_schema import ClaimPart, combine_outcomes, verdict
from staleharness.statistics.claims.part_tests import PartComparison, PartResult
from staleharness.statistics.scores import Array
from staleharness.statistics.t_tests_and_intervals import Contrast, Outcome, contrast


def difference(means: Array) -> float:
    return float(means[0] - means[1])


def test_share_of_another_mean_has_a_jackknife_interval() -> None:
    """2, 4, 6 over 1, 2, 2: leaving one out gives 10/4, 8/3, 6/3; pseudo-values are 3 × 2.4 less twice these."""
    made = contrast({"A": np.array([[2.0, 4.0, 6.0], [1.0, 2.0, 2.0]])}, lambda m: float(m[0] / m[1]), by_seed=True)
    pseudo = 3 * 2.4 - 2 * np.array([10 / 4, 8 / 3, 6 / 3])
    reach = stats.t.ppf(0.975, 2) * pseudo.std(ddof=1) / np.sqrt(3)
    assert made.value == pytest.approx(2.4) and (made.low, made.high) == pytest.approx((2.4 - reach, 2.4 + reach))


def test_one_seed_has_no_interval() -> None:
    one = contrast({"A": np.array([[1.0, 2.0], [0, 0]]), "B": np.array([[5.0], [0]])}, difference, by_seed=True)
    assert (one.value, one.low, one.high, one.p) == (3.25, None, None, None) and one.outcome("more") == "open"
    same = contrast({"A": np.array([[1.0, 2.0], [1.0, 2.0]])}, difference, by_seed=True)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0) and same.outcome("more") == "no"
    for n, p, outcome in ((2, 0.5, "open"), (6, 0.03125, "yes")):  # all apart by 0.1, but for rounding
        gaps = np.array([0.3 + 0.1 * np.arange(n), 0.2 + 0.1 * np.arange(n)])
        found = contrast({"A": gaps}, difference, by_seed=True)
        assert found.p == p and found.outcome("more") == outcome


@pytest.mark.parametrize(("n", "by_seed"), [(2, True), (3, True), (5, True), (5, False)])
def test_coverage_is_nominal(n: int, by_seed: bool) -> None:
    """A percentile interval of two values covers the truth half of the time."""
    rng = np.random.default_rng(n)
    covered = 0
    for _ in range(1000):
        made = contrast({"A": rng.normal(size=(2, n))}, difference, by_seed)
        assert made.low is not None and made.high is not None
        covered += made.low <= 0 <= made.high
    assert 0.93 < covered / 1000 < 0.97


def test_unpaired_difference_is_welch_s_test() -> None:
    x, y = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.5, 0.0, 1.5])
    found, welch = contrast({"A": [x, y]}, difference), stats.ttest_ind(x, y, equal_var=False)
    ends = welch.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(welch.pvalue) and found.n == (4, 3)


def test_unpaired_share_varies_by_each_mean_apart() -> None:
    """The variances of the jackknife by numerator and by denominator add up."""
    x, y = np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 2.0, 3.0])
    found = contrast({"A": [x, y]}, lambda m: float(m[0] / m[1]))
    top = (x / y.mean()).var(ddof=1) / 3
    ratios = [x.mean() / np.delete(y, i).mean() for i in range(4)]
    below = (4 * x.mean() / y.mean() - 3 * np.array(ratios)).var(ddof=1) / 4
    freedom = (top + below) ** 2 / (top**2 / 2 + below**2 / 3)
    reach = stats.t.ppf(0.975, freedom) * np.sqrt(top + below)
    assert (found.low, found.high) == pytest.approx((2 - reach, 2 + reach))


@pytest.mark.parametrize(
    ("be", "margin"), [("more", 0.0), ("less", 0.0), ("less", 0.3), ("more", -0.3), ("alike", 0.4), ("alike", 0.05)]
)
def test_p_of_an_outcome_is_below_5_percent_where_it_is_clear(be: str, margin: float) -> None:
    rng = np.random.default_rng(0)
    outcomes = set()
    for shift in np.linspace(-1.5, 1.5, 61):
        found = contrast({"A": [rng.normal(shift, 0.2, 6), rng.normal(0, 0.2, 5)]}, difference)
        p, outcome = found.p_beyond(be, margin), found.outcome(be, margin)
        assert p is not None and (p < 0.05) == (outcome != "open")
        outcomes.add(outcome)
    assert "no" in outcomes and "open" in outcomes


@pytest.mark.parametrize(
    ("low", "high", "be", "margin", "outcome"),
    [
        (0.1, 0.2, "more", 0.0, "yes"),
        (-0.1, 0.2, "more", 0.0, "open"),
        (-0.2, -0.1, "more", 0.0, "no"),
        (-0.2, -0.1, "less", 0.0, "yes"),
        (0.1, 0.2, "less", 0.0, "no"),
        (-0.2, 0.1, "less", 0.0, "open"),
        (0.1, 0.2, "more", 0.15, "open"),
        (0.1, 0.2, "more", 0.3, "no"),
        (-0.2, -0.1, "less", 0.15, "open"),
        (-0.04, 0.5, "more", -0.05, "yes"),
        (-0.06, 0.5, "more", -0.05, "open"),
        (-0.9, -0.06, "more", -0.05, "no"),
        (-0.01, 0.01, "alike", 0.02, "yes"),
        (-0.01, 0.03, "alike", 0.02, "open"),
        (0.03, 0.04, "alike", 0.02, "no"),
        (-0.04, -0.03, "alike", 0.02, "no"),
    ],
)
def test_outcome_of_an_interval(low: float, high: float, be: str, margin: float, outcome: Outcome) -> None:
    assert Contrast((low + high) / 2, low, high, 0.5, (5,), {}).outcome(be, margin) == outcome


def test_part_combines_its_comparisons() -> None:
    assert combine_outcomes(["yes", "yes"]) == "yes" and combine_outcomes(["yes", "open"]) == "open"
    assert combine_outcomes(["yes", "open", "no"]) == "no" and combine_outcomes([]) == "open"


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        (["yes", "yes"], "agrees"),
        (["yes", "open"], "partly"),
        (["yes", "no"], "partly"),
        (["no", "no"], "disagrees"),
        (["no", "open"], "disagrees"),
        (["open"], "cannot tell"),
        ([], ""),
    ],
)
def test_a_verdict_follows_from_the_parts(parts: list[Outcome], word: str) -> None:
    assert verdict(parts) == word


def test_incomplete_part_is_refused() -> None:
    for wrong, words in (
        ({"of": ("a",)}, "give `of`, the method"),
        ({"than": 1.0}, "give `of`, the method"),
        ({"of": ("a",), "over": ("b",), "beyond": True}, "beyond needs over and over_k"),
        ({"of": ("a",), "than": 1.0, "phases": (1,)}, "phases takes two numbers, the first phase"),
    ):
        with pytest.raises(UserError, match=words):
            ClaimPart("x", **wrong)  # type: ignore[arg-type]


def test_page_distinguishes_equal_differences_from_one_seed() -> None:
    for values, text in (
        ([[0.5, 0.75, 1.0], [0.25, 0.5, 0.75]], "the same in every seed"),
        ([[0.5], [0.25]], "one seed"),
    ):
        found = contrast({"A": np.array(values)}, difference, by_seed=True)
        row = PartComparison("a − b", found, found.outcome("more"))
        assert _cells(PartResult(ClaimPart("x", of=("a",), over=("b",)), [row]), row)[1] == f"0.25 [{text}]"


@pytest.mark.parametrize(
    ("gaps", "n", "low", "p"),
    [
        ([3.0, -1.0], 5, None, 1.0),  # five pairs each way
        ([3.0, 0.0, 0.0], 3, None, 0.25),  # three pairs and six ties
        ([3.0, 1.0], 3, 2.0, 2 / 2**6),
        ([0.0, 0.0], 3, 0.0, 1.0),
        ([1.0, -1.0], 3, None, 1.0),
    ],
)
def test_equal_differences_in_environments_use_the_sign_test(
    gaps: list[float], n: int, low: float | None, p: float
) -> None:
    seeds = np.arange(float(n))
    found = contrast({str(i): np.array([seeds + gap, seeds]) for i, gap in enumerate(gaps)}, difference, by_seed=True)
    assert (found.low, found.p) == (low, p)


def test_equal_runs_make_as_many_pairs_as_the_smaller_side_has() -> None:
    found = contrast({"A": [np.full(6, 1.0), np.full(3, 0.5)]}, difference)
    assert (found.p, found.low) == (0.25, None) and found.outcome("more") == "open"
