"""Methods told apart: against scipy and statsmodels, and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run
from scipy.stats import f_oneway, ttest_rel
from statsmodels.stats.multitest import multipletests

from staleharness.statistics.results import Results
from staleharness.statistics.significance import compare_all_pairs, compare_with_baseline, f_ratio, holm, scores_by_seed

RNG = np.random.default_rng(7)
SCORES = {
    label: dict(enumerate(level + RNG.normal(0, 0.1, 8)))
    for label, level in {"base": 0.5, "better": 0.9, "close": 0.55, "worse": 0.3}.items()
}


def test_a_difference_is_the_paired_t_test_of_scipy() -> None:
    for d in compare_with_baseline(SCORES, "base"):
        expected = ttest_rel(list(SCORES[d.a].values()), list(SCORES["base"].values()))
        low, high = expected.confidence_interval(0.95)
        assert (d.p, d.low, d.high) == pytest.approx((expected.pvalue, low, high)) and d.n == 8
        assert d.b == "base" and d.low < d.mean < d.high


def test_many_comparisons_are_corrected_as_statsmodels_does() -> None:
    for p in ([0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.2, 0.2, 1e-9], []):
        expected = multipletests(p, method="holm")[1] if p else []
        assert list(holm(p)) == pytest.approx(list(expected))
    made = compare_all_pairs(SCORES)
    assert len(made) == 6 and [d.holm for d in made] == pytest.approx(list(holm([d.p for d in made])))
    assert all(d.holm >= d.p for d in made)


def test_what_lies_far_apart_is_told_apart_and_what_is_close_is_not() -> None:
    told = {d.a: d.significant for d in compare_with_baseline(SCORES, "base")}
    assert told == {"better": True, "close": False, "worse": True}


def test_only_seeds_that_both_have_are_compared() -> None:
    scores = {"a": {0: 1.0, 1: 3.0, 2: 9.0}, "b": {1: 1.0, 2: 5.0, 3: 7.0}, "lonely": {0: 1.0}}
    (only,) = compare_all_pairs(scores)
    assert (only.a, only.b, only.n, only.mean) == ("a", "b", 2, 3.0)


def test_a_constant_gap_is_told_apart_by_its_signs_alone() -> None:
    """Six of one sign are one chance in 32; two accuracies that are multiples of 1/8 often differ by the same."""
    for n, p, told in ((2, 0.5, False), (3, 0.25, False), (5, 0.0625, False), (6, 0.03125, True)):
        same = {seed: 0.3 + 0.1 * seed for seed in range(n)}
        equal, apart = compare_with_baseline(
            {"base": same, "same": same, "shifted": {s: v + 0.1 for s, v in same.items()}}, "base"
        )
        assert (equal.mean, equal.p, equal.significant) == (0.0, 1.0, False)
        assert apart.mean == pytest.approx(0.1) and apart.p == p and (apart.p < 0.05) == told


def test_the_f_ratio_is_that_of_an_analysis_of_variance() -> None:
    columns = [np.array(list(runs.values())) for runs in SCORES.values()]
    assert f_ratio(columns) == pytest.approx(f_oneway(*columns).statistic)
    assert f_ratio([np.array([1.0, 1.0]), np.array([2.0, 2.0])]) == float("inf")
    assert np.isnan(f_ratio([np.array([1.0, 2.0])])) and np.isnan(f_ratio([np.array([1.0]), np.array([2.0])]))


def test_scores_are_read_by_seed_at_one_capacity_of_one_environment(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, seed, env=env, capacity=k, sampled=10.0 * seed + k, phases=2)
        for label, env, k in (("a", "E", 1), ("a", "E", 4), ("b", "E", 4), ("b", "F", 4))
        for seed in (3, 5)
    ]
    found = scores_by_seed(Results.of(runs).grid, 4, "E", "sampled")
    assert found == {"a": {3: 34.0, 5: 54.0}, "b": {3: 34.0, 5: 54.0}}
