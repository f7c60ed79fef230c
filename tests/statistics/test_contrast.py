"""Differences seed by seed: the paired t-test, shares, environments, and what an interval says of a claim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from staleharness.errors import UserError
from staleharness.statistics.claims.claim import ClaimPart, Outcome, combine_outcomes, verdict
from staleharness.statistics.claims.contrast import Contrast, contrast
from staleharness.statistics.scores import Array


def difference(means: Array) -> float:
    return float(means[0] - means[1])


def test_a_difference_of_means_on_one_environment_is_the_paired_t_test() -> None:
    a, b = np.array([3.0, 5.0, 4.0, 8.0]), np.array([1.0, 4.0, 4.5, 5.0])
    made = contrast({"A": np.stack([a, b])}, difference)
    said = stats.ttest_rel(a, b)
    ends = said.confidence_interval(0.95)
    assert made.value == pytest.approx((a - b).mean()) and made.p == pytest.approx(said.pvalue)
    assert (made.low, made.high) == pytest.approx((ends.low, ends.high)) and made.n == 4


def test_environments_count_alike_and_their_spreads_are_pooled_by_hand() -> None:
    """Differences 1, 3 and 0, 0, 6: means 2 and 2, variances of the mean 1 and 4, so 5/4 over four."""
    made = contrast({"A": np.array([[1.0, 3.0], [0, 0]]), "B": np.array([[0.0, 0, 6.0], [0, 0, 0]])}, difference)
    error, freedom = np.sqrt(5 / 4), (5 / 4) ** 2 / ((1 / 4) ** 2 / 1 + 1.0**2 / 2)
    reach = stats.t.ppf(0.975, freedom) * error
    assert made.value == 2.0 and made.n == 5 and dict(made.envs) == {"A": 2.0, "B": 2.0}
    assert (made.low, made.high) == pytest.approx((2 - reach, 2 + reach))
    assert made.p == pytest.approx(2 * stats.t.sf(2 / error, freedom))


def test_a_share_of_another_mean_has_the_interval_of_its_jackknife() -> None:
    """Of 2, 4, 6 over 1, 2, 2: leaving one out gives 10/4, 8/3, 6/3; pseudo-values are 3 × 2.4 less twice these."""
    made = contrast({"A": np.array([[2.0, 4.0, 6.0], [1.0, 2.0, 2.0]])}, lambda m: float(m[0] / m[1]))
    pseudo = 3 * 2.4 - 2 * np.array([10 / 4, 8 / 3, 6 / 3])
    reach = stats.t.ppf(0.975, 2) * pseudo.std(ddof=1) / np.sqrt(3)
    assert made.value == pytest.approx(2.4) and (made.low, made.high) == pytest.approx((2.4 - reach, 2.4 + reach))


def test_one_seed_has_no_interval_and_no_spread_has_none_to_speak_of() -> None:
    one = contrast({"A": np.array([[1.0, 2.0], [0, 0]]), "B": np.array([[5.0], [0]])}, difference)
    assert (one.value, one.low, one.high, one.p) == (3.25, None, None, None) and one.outcome("more") == "open"
    same = contrast({"A": np.array([[1.0, 2.0], [1.0, 2.0]])}, difference)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0) and same.outcome("more") == "no"
    for n, p, outcome in ((2, 0.5, "open"), (6, 0.03125, "yes")):  # all apart by 0.1, but for rounding
        gaps = np.array([0.3 + 0.1 * np.arange(n), 0.2 + 0.1 * np.arange(n)])
        found = contrast({"A": gaps}, difference)
        assert found.p == p and found.outcome("more") == outcome


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_holds_the_truth_as_often_as_it_says(n: int) -> None:
    """Where a percentile interval of two values holds it half of the time."""
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(1000):
        made = contrast({"A": rng.normal(size=(2, n))}, difference)
        assert made.low is not None and made.high is not None
        held += made.low <= 0 <= made.high
    assert 0.93 < held / 1000 < 0.97


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
def test_what_an_interval_says_of_a_claim(low: float, high: float, be: str, margin: float, outcome: Outcome) -> None:
    assert Contrast((low + high) / 2, low, high, 0.5, 5, {}).outcome(be, margin) == outcome


def test_a_part_holds_where_each_comparison_does_and_fails_where_one_does() -> None:
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


def test_a_part_says_what_it_compares() -> None:
    for wrong, words in (
        ({"of": ("a",)}, "say of whom"),
        ({"than": 1.0}, "say of whom"),
        ({"of": ("a",), "over": ("b",), "beyond": True}, "beyond needs over and over_k"),
        ({"of": ("a",), "than": 1.0, "phases": (1,)}, "phases are the first"),
    ):
        with pytest.raises(UserError, match=words):
            ClaimPart("x", **wrong)  # type: ignore[arg-type]
