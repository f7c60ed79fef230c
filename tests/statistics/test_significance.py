"""Differences between methods: against scipy and statsmodels, and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run
from scipy.stats import f_oneway, ttest_rel
from statsmodels.stats.multitest import multipletests

from staleharness.figures.comparisons import spread_of
from staleharness.pages.report_contents import squares
from staleharness.statistics.results import Results
from staleharness.statistics.scores import deviations
from staleharness.statistics.significance import (
    compare_all_pairs,
    compare_with_baseline,
    f_ratio,
    hedges_g,
    holm,
    method_pairs,
    scores_by_seed,
)

RNG = np.random.default_rng(7)
SCORES = {
    label: dict(enumerate(level + RNG.normal(0, 0.1, 8)))
    for label, level in {"base": 0.5, "better": 0.9, "close": 0.55, "worse": 0.3}.items()
}
THREE_A, THREE_B = np.full(3, 0.1), np.full(3, 0.7)  # whose mean is 0.1 only but for rounding


def test_a_difference_is_the_paired_t_test_of_scipy() -> None:
    differences = compare_with_baseline(SCORES, "base")
    for d in differences:
        expected = ttest_rel(list(SCORES[d.a].values()), list(SCORES["base"].values()))
        low, high = expected.confidence_interval(0.95)
        assert (d.p, d.low, d.high) == pytest.approx((expected.pvalue, low, high)) and (d.b, d.n) == ("base", 8)
    assert {d.a: d.significant for d in differences} == {"better": True, "close": False, "worse": True}


@pytest.mark.long
def test_many_comparisons_are_corrected_as_statsmodels_does() -> None:
    for p in ([0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.2, 0.2, 1e-9], []):
        expected = multipletests(p, method="holm")[1] if p else []
        assert list(holm(p)) == pytest.approx(list(expected))
    pairs = compare_all_pairs(SCORES)
    assert len(pairs) == 6 and [d.holm for d in pairs] == pytest.approx(list(holm([d.p for d in pairs])))


def test_only_seeds_that_both_have_are_compared() -> None:
    scores = {"a": {0: 1.0, 1: 3.0, 2: 9.0}, "b": {1: 1.0, 2: 5.0, 3: 7.0}, "lonely": {0: 1.0}}
    (only,) = compare_all_pairs(scores)
    assert (only.a, only.b, only.n, only.mean) == ("a", "b", 2, 3.0)
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {2: 1.0, 3: 2.0}}
    assert spread_of(scores, "", "Mine-v0") == "Mine-v0: no two methods have two seeds in common"


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_constant_difference_has_the_p_of_the_sign_test(n: int, p: float) -> None:
    """Six of one sign are one chance in 32; two accuracies that are multiples of 1/8 often differ by the same."""
    base = {seed: 0.25 * seed for seed in range(n)}
    scores = {"base": base, "same": base, "shifted": {s: v + 0.5 for s, v in base.items()}}
    equal, shifted = compare_with_baseline(scores, "base")
    assert (equal.mean, equal.p, equal.significant) == (0.0, 1.0, False)
    assert (shifted.mean, shifted.p) == (0.5, p) and shifted.significant_alone == (p < 0.05)
    ends = (0.5, 0.5) if p < 0.05 else (None, None)
    assert (shifted.low, shifted.high) == ends and shifted.holm == min(1.0, 2 * p)


def test_the_f_ratio_is_that_of_an_analysis_of_variance() -> None:
    columns = [np.array(list(runs.values())) for runs in SCORES.values()]
    assert f_ratio(columns) == pytest.approx(f_oneway(*columns).statistic)
    assert f_ratio([THREE_A, THREE_B]) == float("inf") and np.isnan(f_ratio([THREE_A, THREE_A]))
    assert np.isnan(f_ratio([np.array([1.0, 2.0])])) and np.isnan(f_ratio([np.array([1.0]), np.array([2.0])]))
    same = dict.fromkeys(range(3), 0.1)
    assert spread_of({"a": same, "b": same}, "", "").startswith("all runs score the same; 0 of 1 pairs")


def test_scores_by_seed_of_a_capacity_and_environment(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, seed, env=env, capacity=k, sampled=10.0 * seed + k, phases=2)
        for label, env, k in (("a", "E", 1), ("a", "E", 4), ("b", "E", 4), ("b", "F", 4))
        for seed in (3, 5)
    ]
    scores = scores_by_seed(Results.of(runs).grid, 4, "E", "sampled")
    assert scores == {"a": {3: 34.0, 5: 54.0}, "b": {3: 34.0, 5: 54.0}}


def test_hedges_g_by_hand() -> None:
    a, b = np.array([3.0, 5.0, 7.0]), np.array([1.0, 2.0, 3.0])
    pooled = np.sqrt((8.0 + 2.0) / 4.0)
    assert hedges_g([a], [b]) == pytest.approx(3.0 / pooled * (1.0 - 3.0 / 15.0))
    assert hedges_g([a, a], [b, b]) == pytest.approx(-hedges_g([b], [a]))  # type: ignore[operator]
    assert hedges_g([a[:1]], [b[:1]]) is None and hedges_g([THREE_A], [THREE_B]) is None  # it was −3e15


def test_equal_scores_deviate_by_exactly_0() -> None:
    assert THREE_A.mean() != 0.1 and not deviations(THREE_A).any()
    assert deviations(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]


def test_a_pair_and_its_mirror_image_add_up_to_one(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, x, s, sampled=10.0 * i + 9.0 * s, phases=2) for i, x in enumerate("ab") for s in range(3)
    ]
    pair, mirror = method_pairs(Results.of(runs).grid, "sampled", reps=200)
    assert (pair["a"], pair["b"], pair["n_envs"]) == ("a", "b", 1)
    # 0, 9, 18 against 10, 19, 28: of nine pairs one is won, 18 over 10
    assert pair["probability"] == pytest.approx(1 / 9) and mirror["probability"] == pytest.approx(8 / 9)
    assert pair["low"] == pytest.approx(1.0 - mirror["high"]) and pair["effect"] == pytest.approx(-mirror["effect"])
    assert 0.0 <= pair["low"] <= pair["probability"] <= pair["high"] < 1.0


def test_one_run_has_no_interval_and_no_effect_size(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "a", 0, sampled=1.0, phases=2), write_run(tmp_path, "b", 0, sampled=2.0, phases=2)]
    first, _ = method_pairs(Results.of(runs).grid, "sampled")
    assert first["low"] is None and first["effect"] is None and first["probability"] == 0.0
    assert method_pairs(Results.of(runs[:1]).grid, "sampled") == [] and squares([], {}, {}) == []
