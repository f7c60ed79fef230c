"""Aggregates and bootstrap intervals: by hand, and against rliable bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from places import ROOT
from rliable import library, metrics

from staleharness.statistics import bootstrap
from staleharness.statistics.bootstrap import fast_interval, stable_seed


def test_the_iqm_of_eight_scores_is_the_mean_of_the_middle_four():
    assert bootstrap.iqm(np.array([100.0, 1, 2, 3, 4, 5, 6, -50])) == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_the_iqm_of_three_scores_is_their_mean():
    assert bootstrap.iqm(np.array([0.0, 1.0, 5.0])) == pytest.approx(2.0)


def test_aggregates_worked_by_hand_on_two_tasks():
    # Task means 0.5 and 1.25; pooled and sorted: 0, 0.5, 1, 2, so the middle two are 0.5 and 1.
    got = bootstrap.aggregates(np.array([0.0, 1.0]), np.array([0.5, 2.0]))
    assert got == pytest.approx([0.75, 0.875, 0.875, 1 - np.mean([0.0, 1.0, 0.5, 1.0])])


def test_the_median_is_over_task_means_and_not_over_runs():
    columns = [np.array([0.0, 0.0, 9.0]), np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])]
    assert bootstrap.aggregates(*columns)[1] == pytest.approx(2.0)  # task means 3, 1, 2


def test_optimality_gap_caps_scores_at_one():
    assert bootstrap.aggregates(np.array([5.0, 0.5]))[3] == pytest.approx(0.25)


@pytest.mark.parametrize("runs, tasks", [(2, 1), (3, 1), (3, 5), (10, 2), (7, 3)])
def test_aggregates_are_those_of_rliable(runs: int, tasks: int):
    matrix = np.random.default_rng([runs, tasks]).normal(size=(runs, tasks))
    columns = list(matrix.T)
    theirs = [
        metrics.aggregate_iqm(matrix),
        metrics.aggregate_median(matrix),
        metrics.aggregate_mean(matrix),
        metrics.aggregate_optimality_gap(matrix),
    ]
    np.testing.assert_allclose(bootstrap.aggregates(*columns), theirs, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(bootstrap.rliable_points(*columns), theirs)


def test_improvement_equals_rliables_and_counts_ties_half():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (4, 3)).astype(float), rng.integers(0, 5, (6, 3)).astype(float)
    assert bootstrap.improvement(list(x.T), list(y.T)) == pytest.approx(metrics.probability_of_improvement(x, y))
    assert bootstrap.improvement([np.array([1.0, 2.0])], [np.array([1.0, 3.0])]) == pytest.approx((0.5 + 0 + 1 + 0) / 4)


def test_resampled_improvement_equals_improvement_of_resamples():
    draw = np.random.default_rng(5)
    x, y = ([draw.integers(0, 9, n).astype(float) for n in sizes] for sizes in ((7, 4), (5, 6)))
    rng = np.random.default_rng(1)
    wanted = bootstrap.improvement(bootstrap.resample(x, 300, rng), bootstrap.resample(y, 300, rng))
    found = bootstrap.resampled_improvement(x, y, 300, np.random.default_rng(1))
    assert np.array_equal(found, wanted) and wanted.std() > 0.05


def test_the_interval_is_rliables_own_under_the_same_seed():
    matrix = np.random.default_rng(1).normal(size=(5, 3))
    low, high = bootstrap.rliable_interval(bootstrap.aggregates, list(matrix.T), name=("a", 8), reps=300)
    np.random.seed(bootstrap.stable_seed("a", 8))  # noqa: NPY002
    _, theirs = library.get_interval_estimates(
        {"a": matrix}, lambda m: np.array([metrics.aggregate_iqm(m), metrics.aggregate_median(m)]), reps=300
    )
    np.testing.assert_allclose(np.array([low[:2], high[:2]]), theirs["a"], atol=1e-14)


@pytest.mark.parametrize("sizes", [(5,), (3, 3, 3), (20, 20), (4, 10, 7), (1, 6)], ids=str)
def test_resamples_equal_rliables_bit_for_bit(sizes: tuple[int, ...]):
    columns = [np.random.default_rng(t).normal(size=n) for t, n in enumerate(sizes)]
    ours = bootstrap.rliable_resamples(columns, 40, seed=17)
    if len(set(sizes)) == 1:
        theirs = library.StratifiedBootstrap(np.stack(columns, axis=1))
    else:
        theirs = library.StratifiedIndependentBootstrap(*[c[:, None] for c in columns])
    np.random.seed(17)  # noqa: NPY002
    for rep, (drawn, _) in enumerate(theirs.bootstrap(40)):
        tasks = list(drawn[0].T) if len(drawn) == 1 else [d[:, 0] for d in drawn]
        for task, wanted in enumerate(tasks):
            np.testing.assert_array_equal(ours[task][rep], wanted)


@pytest.mark.parametrize("sizes", [(10, 10, 10), (4, 10, 7)], ids=["equal", "unequal"])
def test_quick_bootstrap_agrees_with_rliable(sizes: tuple[int, ...]):
    rng = np.random.default_rng(2)
    columns = [rng.normal(t, 1.0, n) for t, n in enumerate(sizes)]
    reps = 4000
    theirs = bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("x",), reps=reps)
    ours = bootstrap.fast_interval(bootstrap.aggregates, columns, name=("y",), reps=reps)
    # Standard error of a 2.5 % quantile of R normal draws: 2.67 standard deviations / sqrt(R).
    spread = bootstrap.aggregates(*bootstrap.resample(columns, reps, rng)).std(axis=0)
    error = 2.67 * spread / np.sqrt(reps)
    for a, b in zip(theirs, ours, strict=True):
        assert (np.abs(a - b) < 4 * np.sqrt(2) * error).all()


def test_coverage_with_few_seeds_is_as_in_the_report():
    said = {3: 0.74, 5: 0.83, 10: 0.89, 20: 0.93}  # percent in report.html.j2, under [low, high]
    rng = np.random.default_rng(0)
    for n, share in said.items():
        samples = rng.normal(size=(1000, n))
        weights = rng.multinomial(n, [1 / n] * n, size=600) / n  # of 600 resamples, the same for all experiments
        low, high = bootstrap.percentiles(weights @ samples.T)
        assert ((low <= 0) & (high >= 0)).mean() == pytest.approx(share, abs=0.04)
    page = (ROOT / "staleharness" / "pages" / "templates" / "report.html.j2").read_text()
    assert all(f"{100 * share:.0f} % with {n}" in page for n, share in said.items())


def test_resampling_stays_within_tasks_and_not_across_them():
    columns = [np.zeros(5), np.ones(5)]  # the mean of resamples within tasks can only be one half
    for interval in (bootstrap.rliable_interval, bootstrap.fast_interval):
        low, high = interval(bootstrap.aggregates, columns, name=("z",), reps=200)
        assert low[2] == high[2] == pytest.approx(0.5)


def test_the_global_numpy_generator_is_left_alone():
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for columns in ([np.arange(4.0)], [np.arange(4.0), np.arange(3.0)]):
        bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("a",), reps=50)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_intervals_ignore_the_state_of_the_global_generator():
    columns = [np.random.default_rng(0).normal(size=6)]
    results = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        results.append(bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("a",), reps=100))
    np.testing.assert_array_equal(results[0], results[1])


def test_a_band_around_curves_resamples_whole_runs():
    curves = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
    curves = curves * [1.0, 2.0, 4.0]
    middle, low, high = bootstrap.curve_band([curves], name=("c",), reps=500)
    assert middle == pytest.approx([1.5, 3.0, 6.0])
    np.testing.assert_allclose(low, low[0] * np.array([1, 2, 4]))  # the same resamples at every point
    np.testing.assert_allclose(high, high[0] * np.array([1, 2, 4]))
    assert low[0] < 1.5 < high[0]


def test_a_task_of_one_run_leaves_the_curve_without_a_band() -> None:
    tasks = [np.zeros((1, 3)), np.arange(9.0).reshape(3, 3)]
    middle, low, high = bootstrap.curve_band(tasks, name=("c",), reps=20)
    assert middle.shape == (3,) and low is None and high is None


def test_a_band_has_the_ends_of_the_iqms_of_its_resamples() -> None:
    tasks = [np.random.default_rng(n).normal(size=(n, 3)) for n in (5, 4)]
    _, low, high = bootstrap.curve_band(tasks, name=("c",), reps=40)
    rng = np.random.default_rng(stable_seed("c"))
    drawn = [t[rng.integers(len(t), size=(40, len(t)))] for t in tasks]  # [reps, runs, points] of each task
    iqms = bootstrap.iqm(np.moveaxis(np.concatenate(drawn, axis=1), 1, -1))
    np.testing.assert_allclose([low, high], np.percentile(iqms, [2.5, 97.5], axis=0))


def test_a_seed_is_a_function_of_the_whole_name() -> None:
    names = [("iqm", "vaco", 1), ("iqm", "vaco", 8), ("iqm", "spo", 1), ("median", "vaco", 1)]
    assert len({stable_seed(*name) for name in names}) == len(names)
    assert stable_seed("iqm", "vaco", 1) == 1966699404  # as of published tables
    assert all(0 <= stable_seed(*name) < 2**32 for name in names)


def test_cells_with_the_same_scores_have_intervals_of_their_own() -> None:
    columns = [np.random.default_rng(0).normal(size=7)]

    def mean(*drawn: np.ndarray) -> np.ndarray:
        return drawn[0].mean(axis=-1)[..., None]

    intervals = [fast_interval(mean, columns, name=("mean", label), reps=50) for label in ("a", "a", "b")]
    lows = [float(low[0]) for low, _ in intervals]
    assert lows[0] == lows[1] != lows[2]
