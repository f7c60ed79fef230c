"""Retention of the synchronous score: shares of means, the fit over lag, the budget and its interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run
from scipy.optimize import isotonic_regression
from scipy.stats import trim_mean

from staleharness.statistics.bootstrap import iqm, stable_seed
from staleharness.statistics.lag_curve import LagCurve
from staleharness.statistics.retained_share import Retention, retention
from staleharness.statistics.scores import Array, random_returns
from staleharness.statistics.staleness_budget import Limit, antitonic, crossings, retention_curve, shares
from staleharness.store.run_grid import RunGrid, grid

HOPPER = 15.23  # a random policy's return


def _grid(root: Path, scores: dict[tuple[str, int], list[float]]) -> RunGrid:
    return grid(
        write_run(root, label, seed, capacity=k, sampled=HOPPER + score)
        for (label, k), of_seeds in scores.items()
        for seed, score in enumerate(of_seeds)
    )


def test_retention_is_counted_from_a_random_policy(tmp_path: Path) -> None:
    """(score − random) at K = 8 and K = 1: 250 of 1,000."""
    assert random_returns(["Hopper-v5"], "sampled") == {"Hopper-v5": HOPPER}
    found = _grid(tmp_path, {("vaco", 1): [900.0, 1100.0], ("vaco", 8): [200.0, 300.0]})
    kept = retention(found, "vaco", 8, "sampled")
    assert kept is not None and kept.low is not None and kept.high is not None
    assert kept.share == pytest.approx(0.25) and kept.low < 0.25 < kept.high
    assert retention(found, "vaco", 1, "sampled") == Retention(1.0, None, None)


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    found = _grid(tmp_path, {("vaco", 1): [1000.0], ("vaco", 8): [500.0]})
    assert retention(found, "vaco", 8, "sampled") == Retention(pytest.approx(0.5), None, None)


@pytest.mark.parametrize(("gain", "learnt"), [(99.0, False), (101.0, True)])
def test_method_with_little_gain_has_no_retention(tmp_path: Path, gain: float, learnt: bool) -> None:
    found = _grid(tmp_path, {("spo", 1): [1000.0], ("vaco", 1): [gain], ("vaco", 8): [50.0]})
    assert (retention(found, "vaco", 8, "sampled") is not None) == learnt


def test_retention_needs_a_method_that_learnt(tmp_path: Path) -> None:
    found = _grid(tmp_path, {("vaco", 1): [-5.0], ("vaco", 8): [-50.0]})
    assert retention(found, "vaco", 8, "sampled") is None
    assert retention(found, "vaco", 4, "sampled") is None


def test_accuracies_are_counted_from_zero(tmp_path: Path) -> None:
    found = grid(
        write_run(tmp_path, "vaco", 0, kind="language", env="gsm8k", capacity=k, sampled=score)
        for k, score in ((1, 0.5), (8, 0.4))
    )
    kept = retention(found, "vaco", 8, "sampled", accuracy=True)
    assert kept == Retention(pytest.approx(0.8), None, None)


LAGS = np.array([0.0, 1.5, 7.0])


def curve(*scores: list[float], lags: Array = LAGS, seeds: list[tuple[int, ...]] | None = None) -> LagCurve:
    columns = tuple(np.array(s) for s in scores)
    return LagCurve(
        "vaco",
        "Hopper-v5",
        (1, 4, 16)[: len(scores)],
        lags,
        None,
        columns,
        tuple(seeds or [tuple(range(len(s))) for s in scores]),
        0.0,
        "a score of 0",
        ((),) * len(scores),
    )


def test_the_fit_is_the_isotonic_regression_of_scipy() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal((50, 6)), rng.integers(3, 10, size=6).astype(float)
    mine = antitonic(values, weights)
    for row, fitted in zip(values, mine, strict=True):
        assert fitted == pytest.approx(isotonic_regression(row, weights=weights, increasing=False).x)


def test_shares_begin_at_one_never_rise_and_do_not_exceed_one() -> None:
    found = shares(np.array([[10.0, 9.0, 9.4], [10.0, 12.0, 5.0], [-1.0, 4.0, 2.0]]), np.array([5.0, 5.0, 5.0]))
    assert found == pytest.approx(np.array([[1, 0.92, 0.92], [1, 1, 0.5], [1, 1, 1]]))


@pytest.mark.parametrize(
    "fitted, budget",
    [
        ([1, 1, 1], np.inf),
        ([1, 0.95, 0.95], np.inf),  # exactly enough is enough
        ([1, 0.94, 0.2], -np.inf),
        ([1, 1, 0.9], 1.5 + 5.5 / 2),
        ([1, 0.95, 0.5], 1.5),
    ],
    ids=str,
)
def test_the_budget_is_where_the_line_falls_below(fitted: list[float], budget: float) -> None:
    assert crossings(np.array([fitted], dtype=float), LAGS, 0.95)[0] == pytest.approx(budget)


def test_a_budget_at_an_end_of_the_data_is_a_bound() -> None:
    flat = retention_curve(curve([10.0] * 5, [10.0] * 5, [9.9] * 5)).budget()
    assert {limit.words for limit in flat} == {"at least 7.0 (largest measured)"}
    steep = retention_curve(curve([10.0] * 5, [5.0] * 5, [1.0] * 5)).budget()
    assert {limit.words for limit in steep} == {"below 1.5 (smallest measured)"}
    between = retention_curve(curve([10.0] * 5, [10.0] * 5, [8.0] * 5)).budget()
    assert {limit.words for limit in between} == {"2.9"}
    assert [limit.sign() for limit in (flat[0], steep[0], between[0])] == ["≥ 7.0", "< 1.5", "2.9"]


@pytest.mark.parametrize(
    "limit, allowed, forbidden",
    [
        (Limit(3.0), [0.5, 3.0], [3.1]),
        (Limit(3.0, "below"), [], [3.0, 4.0]),  # and 2.0 is neither
        (Limit(3.0, "at least"), [3.0], []),  # and 4.0 is neither
    ],
    ids=str,
)
def test_what_a_limit_allows_and_forbids(limit: Limit, allowed: list[float], forbidden: list[float]) -> None:
    lags = [0.5, 2.0, 3.0, 3.1, 4.0]
    assert all(limit.allows(lag) for lag in allowed) and all(limit.forbids(lag) for lag in forbidden)
    assert not any(limit.allows(lag) and limit.forbids(lag) for lag in lags)


def test_interval_equals_a_slow_reference() -> None:
    rng = np.random.default_rng(3)
    stored = curve(*(list(level + rng.standard_normal(5)) for level in (10, 9.8, 8)))
    found = retention_curve(stored, reps=200)
    places = np.random.default_rng(stable_seed("budget", "vaco", "Hopper-v5")).integers(5, size=(200, 5))
    budgets = []
    for place, fitted in zip(places, found.replicates, strict=True):
        iqms = [trim_mean(scores[place], 0.25) for scores in stored.scores]
        ratio = np.array(iqms[1:]) / iqms[0]
        slow = np.minimum(isotonic_regression(ratio, increasing=False).x, 1)
        assert fitted == pytest.approx([1, *slow])
        if slow[0] < 0.95:
            budgets.append(-np.inf)
        elif slow[1] >= 0.95:
            budgets.append(np.inf)
        else:
            budgets.append(float(np.interp(-0.95, [-slow[0], -slow[1]], [1.5, 7.0])))
    budgets.sort()
    low, high = budgets[4], budgets[194]  # the 5th and the 195th of 200: 2.5 % and 97.5 %
    ends = found.budget()[1:]
    for end, slow_end in zip(ends, (low, high), strict=True):
        bound = {-np.inf: 1.5, np.inf: 7.0}.get(slow_end, slow_end)
        assert end.lag == pytest.approx(bound) and (end.kind == "=") == np.isfinite(slow_end)
    assert {low, high} != {-np.inf, np.inf}


def test_seeds_of_all_settings_are_resampled_together() -> None:
    scores = [8.0, 9.0, 10.0, 11.0, 30.0]
    half = [s / 2 for s in scores]
    together = retention_curve(curve(scores, half, half))
    assert together.resampling == "paired" and np.ptp(together.replicates[:, 1]) == pytest.approx(0)
    apart = retention_curve(curve(scores, half, half, seeds=[tuple(range(5)), tuple(range(5, 10)), tuple(range(5))]))
    assert apart.resampling == "independent" and np.ptp(apart.replicates[:, 1]) > 0.1


def test_share_is_interpolated_and_none_beyond_the_data() -> None:
    found = retention_curve(curve([10.0] * 3, [8.0] * 3, [2.0] * 3))
    assert found.at(0.0) == pytest.approx((1, 1, 1))
    assert found.at(0.75) == pytest.approx((0.9, 0.9, 0.9))
    assert found.at(4.25) == pytest.approx((0.5, 0.5, 0.5))
    assert found.at(7.0) == pytest.approx((0.2, 0.2, 0.2))
    assert found.at(7.01) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "spread", "by_fit", "by_raw"), [(5, 0.25, 0.88, 0.76), (20, 0.25, 0.95, 0.89), (3, 0.1, 0.74, 0.70)]
)
def test_coverage_of_budget_intervals_is_as_in_the_docs(
    seeds: int, spread: float, by_fit: float, by_raw: float
) -> None:
    """The simulation of docs/advise.md: seven lags; `spread` is the standard deviation as a share of the score."""
    rng = np.random.default_rng(1)
    lags = np.array([0, 0.5, 1, 2, 4, 8, 16])
    truth = np.exp(-((lags / 40) ** 1.5))
    budget = crossings(truth[None], lags, 0.95)[0]
    covered, raw_covered, fits, raws = [], [], [], []
    for _ in range(2000):
        noise = np.sqrt(0.2) * rng.standard_normal((seeds, 1)) + np.sqrt(0.8) * rng.standard_normal((seeds, 7))
        x = truth + spread * noise
        places = rng.integers(seeds, size=(400, seeds))
        drawn = np.stack([iqm(x[:, j][places]) for j in range(7)], axis=-1)
        mine = np.array([iqm(x[:, j]) for j in range(7)])[None]
        for coverage, estimates, read in (
            (covered, fits, lambda v: shares(v, np.full(7, float(seeds)))),
            (raw_covered, raws, lambda v: v / v[:, :1]),
        ):
            low, high = np.percentile(crossings(read(drawn), lags, 0.95), (2.5, 97.5), method="inverted_cdf")
            coverage.append(low <= budget <= high)
            estimates.append(np.clip(crossings(read(mine), lags, 0.95)[0], 0.5, 16))
    assert np.mean(covered) == pytest.approx(by_fit, abs=0.02)
    assert np.mean(raw_covered) == pytest.approx(by_raw, abs=0.02)
    assert budget / 2 < np.median(fits) < budget and np.median(raws) < 0.6 * budget
    if (seeds, spread) == (5, 0.25):
        assert np.median(fits) == pytest.approx(3.9, abs=0.3) and np.median(raws) == pytest.approx(0.9, abs=0.1)


def test_intervals_stand_around_the_points_and_not_the_line() -> None:
    """A share above 1 has an interval around itself, though the line stops at 1."""
    scores = (np.array([10.0, 11.0, 9.0]), np.array([20.0, 22.0, 21.0]))
    seeds = ((0, 1, 2), (0, 1, 2))
    lags = np.array([0.0, 2.0])
    found = retention_curve(LagCurve("a", "E-v1", (1, 4), lags, None, scores, seeds, 0.0, "0", ((), ())))
    low, high = found.interval_of_points()
    assert found.fit.tolist() == [1.0, 1.0] and found.raw[1] == pytest.approx(2.1)
    assert low[1] < found.raw[1] < high[1] and low[1] > 1.5 and low[0] == high[0] == 1.0
