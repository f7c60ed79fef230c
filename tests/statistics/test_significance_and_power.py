"""Differences between methods: against scipy and statsmodels, and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run
from scipy.stats import f_oneway, ttest_ind
from statsmodels.stats.multitest import multipletests

from staleharness.errors import UserError
from staleharness.figures.comparisons import spread_of
from staleharness.figures.palette import styles
from staleharness.pages.report_tables import squares
from staleharness.statistics.results import Results
from staleharness.statistics.scores import deviations
from staleharness.statistics.significance_and_power import (
    compare_all_pairs,
    compare_with_baseline,
    f_ratio,
    final_scores,
    hedges_g,
    holm,
    improvement_over,
    method_pairs,
)
from staleharness.store.run_grid import grid

RNG = np.random.default_rng(7)
SCORES = {
    label: level + RNG.normal(0, 0.1, 8 - i)
    for i, (label, level) in enumerate({"base": 0.5, "better": 0.9, "close": 0.55, "worse": 0.3}.items())
}
THREE_A, THREE_B = np.full(3, 0.1), np.full(3, 0.7)  # whose computed mean differs from 0.1 by rounding


def test_a_difference_is_welchs_t_test_of_scipy() -> None:
    differences = compare_with_baseline(SCORES, "base")
    for d in differences:
        expected = ttest_ind(SCORES[d.a], SCORES["base"], equal_var=False)
        low, high = expected.confidence_interval(0.95)
        assert (d.p, d.low, d.high) == pytest.approx((expected.pvalue, low, high)) and d.b == "base"
    assert {d.a: d.significant for d in differences} == {"better": True, "close": False, "worse": True}


@pytest.mark.long
def test_many_comparisons_are_corrected_as_statsmodels_does() -> None:
    for p in ([0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.2, 0.2, 1e-9], []):
        expected = multipletests(p, method="holm")[1] if p else []
        assert list(holm(p)) == pytest.approx(list(expected))
    pairs = compare_all_pairs(SCORES)
    assert len(pairs) == 6 and [d.holm for d in pairs] == pytest.approx(list(holm([d.p for d in pairs])))


def test_methods_with_the_same_results_count_once_in_the_correction() -> None:
    """Copies are one computation: their tests are one, and they have none against each other."""
    copies = SCORES | {"copy of base": SCORES["base"], "copy of worse": SCORES["worse"]}
    plain = {d.a: d.holm for d in compare_with_baseline(SCORES, "base")}
    found = {d.a: d.holm for d in compare_with_baseline(copies, "base")}
    expected = plain | {"copy of base": 1.0, "copy of worse": plain["worse"]}
    assert found == {label: pytest.approx(p) for label, p in expected.items()}
    of_pairs = {(d.a, d.b): d.holm for d in compare_all_pairs(SCORES)}
    found_pairs = {(d.a, d.b): d.holm for d in compare_all_pairs(copies)}
    assert len(found_pairs) == 15 and found_pairs["base", "copy of base"] == 1.0
    assert {pair: found_pairs[pair] for pair in of_pairs} == {k: pytest.approx(p) for k, p in of_pairs.items()}
    chance = SCORES | {"other seeds": SCORES["worse"][::-1]}  # equal scores of other seeds are no copy
    p_plain = [d.p for d in compare_with_baseline(chance, "base")]
    assert [d.holm for d in compare_with_baseline(chance, "base")] == pytest.approx(list(holm(p_plain)))


def test_a_pair_needs_two_runs_on_both_sides() -> None:
    scores = {"a": np.array([1.0, 3.0, 9.0]), "b": np.array([1.0, 4.0]), "lonely": np.array([1.0])}
    (only,) = compare_all_pairs(scores)
    assert (only.a, only.b, only.mean) == ("a", "b", pytest.approx(13 / 3 - 2.5))
    lonely = {"a": np.array([1.0]), "b": np.array([1.0, 2.0])}
    assert spread_of(lonely, "", "Mine-v0") == "Mine-v0: no two methods have two runs each"


@pytest.mark.parametrize(("n", "p"), [(2, 1 / 3), (3, 0.1), (4, 1 / 35)])
def test_runs_without_spread_have_the_p_of_the_rank_test(n: int, p: float) -> None:
    """Four runs of 0.5 and four of 1 are two of the 70 ways to split them."""
    levels = {"base": 0.5, "same": 0.5, "shifted": 1.0, "far": 2.0}
    equal, shifted, _ = compare_with_baseline({label: np.full(n, level) for label, level in levels.items()}, "base")
    assert (equal.mean, equal.p, equal.significant) == (0.0, 1.0, False)
    assert (shifted.mean, shifted.p) == (0.5, pytest.approx(p))
    assert (shifted.low, shifted.high) == (None, None) and shifted.holm == min(1.0, 2 * shifted.p)


def test_the_f_ratio_is_that_of_an_analysis_of_variance() -> None:
    columns = list(SCORES.values())
    assert f_ratio(columns) == pytest.approx(f_oneway(*columns).statistic)
    assert f_ratio([THREE_A, THREE_B]) == float("inf") and np.isnan(f_ratio([THREE_A, THREE_A]))
    assert np.isnan(f_ratio([np.array([1.0, 2.0])])) and np.isnan(f_ratio([np.array([1.0]), np.array([2.0])]))
    assert spread_of({"a": THREE_A, "b": THREE_A}, "", "").startswith("all runs score the same; 0 of 1 pairs")


def test_final_scores_of_a_capacity_and_environment(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, seed, env=env, capacity=k, sampled=10.0 * seed + k, phases=2)
        for label, env, k in (("a", "E", 1), ("a", "E", 4), ("b", "E", 4), ("b", "F", 4))
        for seed in (3, 5)
    ]
    scores = final_scores(Results.of(runs).grid, 4, "E", "sampled")
    assert {label: x.tolist() for label, x in scores.items()} == {"a": [34.0, 54.0], "b": [34.0, 54.0]}


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


def test_pairs_of_many_methods_are_counted_and_not_drawn(tmp_path: Path) -> None:
    labels = [f"m{i:02d}" for i in range(13)]
    looks = styles(labels)
    runs = [write_run(tmp_path, label, 0, sampled=float(i), phases=2) for i, label in enumerate(labels)]
    (table,) = squares(method_pairs(Results.of(runs).grid, "sampled", reps=10), looks, {})
    assert len(table["labels"]) == 13 and table["lines"] == []
    (table,) = squares(method_pairs(Results.of(runs[:12]).grid, "sampled", reps=10), looks, {})
    assert len(table["lines"]) == 12


def test_improvement_over_a_baseline_is_at_equal_capacity(tmp_path: Path) -> None:
    scored = {("ppo_clip", 1): (1.0, 2.0), ("ppo_clip", 8): (5.0, 6.0), ("vaco", 8): (5.5, 7.0), ("spo", 1): (0.0, 3.0)}
    runs = [write_run(tmp_path, a, s, capacity=k, sampled=v) for (a, k), vs in scored.items() for s, v in enumerate(vs)]
    spo, vaco = improvement_over(grid(runs), "ppo_clip", "sampled", reps=200)
    assert (spo["algorithm"], spo["capacity"], spo["probability"]) == ("spo", 1, 0.5)
    assert (vaco["algorithm"], vaco["capacity"], vaco["probability"]) == ("vaco", 8, 0.75)
    assert 0.0 <= vaco["low"] <= 0.75 <= vaco["high"] == 1.0
    with pytest.raises(UserError, match="did you mean 'ppo_clip'"):
        improvement_over(grid(runs), "ppo_clp", "sampled")
