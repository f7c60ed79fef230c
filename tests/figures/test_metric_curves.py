"""Environments and curves with unequal numbers of runs, or with names of their own, match their captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.learning_curves import sampling_error
from staleharness.figures.metric_curves import binned_mean, draw_spread
from staleharness.figures.palette import styles
from staleharness.figures.plot_layout import plot_settings
from staleharness.figures.registry import draw
from staleharness.statistics.method_labels import display_label
from staleharness.statistics.result_comparison import compare_runs
from staleharness.statistics.results import Results, load
from staleharness.statistics.row_diagnostics import diagnostics, in_bins
from staleharness.statistics.t_tests_and_intervals import contrast


def unequal(root: Path) -> Results:
    """Two runs on one environment and six on the other, where a column is 1 (less or more noise) instead of 0."""
    for env, n, height in (("Hopper-v5", 2, 0.0), ("Walker2d-v5", 6, 1.0)):
        for seed in range(n):
            column: Any = {"tv_data": [height + 0.001 * seed] * 4}
            curve = [0.0, 100.0 * height + seed]
            write_run(root, "vaco", seed, env=env, phases=4, sampled=curve[-1], curve=curve, columns=column)
    return load(root)


def test_line_and_band_weigh_environments_equally(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    runs = list(unequal(tmp_path))
    _, line = binned_mean(runs, "tv_data")
    assert line == pytest.approx(0.5, abs=0.002)  # it was 0.75, the mean over runs, outside of the band
    with plot_settings():
        ax = Figure().subplots()
        draw_spread(ax, runs, "tv_data", styles(["vaco"])["vaco"])
    (band,) = ax.collections
    low, high = band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()
    assert low < line[0] < high and (low + high) / 2 == pytest.approx(line[0])
    tasks: dict[str, list[float]] = {}
    for run in runs:
        tasks.setdefault(str(run.spec["env"]), []).append(float(binned_mean([run], "tv_data")[1][0]))
    same = contrast({env: np.array([each]) for env, each in tasks.items()}, lambda means: float(means[0]))
    assert (low, high) == pytest.approx((same.low, same.high))  # the interval of a verdict on it
    _, in_report = diagnostics(runs).staleness["tv_data"]
    assert in_report == pytest.approx(line)


def test_phases_that_fill_the_buffer_are_in_no_mean(tmp_path: Path) -> None:
    columns: Any = {"clipped": [0.0, 0.0, 0.2, 0.4], "tv_data": [0.0, 0.0, 0.1, 0.3], "steps": [0, 0, 10, 20]}
    write_run(tmp_path, "vaco", phases=4, settings={"fill_phases": 2}, columns=columns)
    runs = list(load(tmp_path))
    found = diagnostics(runs)
    assert found.mechanisms["clipped"] == pytest.approx((0.3, 0.4))  # the summary of a run has this mean, too
    for steps, values in (found.staleness["tv_data"], binned_mean(runs, "tv_data")):
        assert (steps.tolist(), values.tolist()) == ([10.0, 20.0], [0.1, 0.3])


def test_equal_numbers_of_runs_are_a_plain_mean_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    curves = [(np.arange(5.0), rng.normal(size=5)) for _ in range(6)]
    _, y = in_bins(curves, list("aaabbb"))
    assert y.tolist() == (np.sum([c for _, c in curves], axis=0) / 6).tolist()
    assert [len(part) for part in in_bins([], [])] == [0, 0]


def test_the_share_that_reached_a_score_ends_at_the_share_at_the_end(tmp_path: Path) -> None:
    results = unequal(tmp_path)
    figure = draw("steps_to_threshold", results, results.table(reps=50, engine="quick"), threshold=0.9)
    curve, end = figure.axes
    heights = np.asarray(curve.lines[0].get_ydata(), dtype=float)
    share = float(np.asarray(end.lines[-1].get_ydata(), dtype=float)[-1])
    assert heights[-1] == pytest.approx(share) == pytest.approx((1 / 2 + 1 / 6) / 2)  # the curve ended at 2 of 8
    assert np.all(np.diff(heights) >= 0)


def test_pairs_of_runs_are_those_of_the_same_seed(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "vaco", seed, sampled=100.0 + seed, phases=4) for seed in range(8)]
    notes = compare_runs(runs[:5], runs[3:], reps=50).notes
    assert "2 of 2 pairs of runs are identical bit for bit" in notes  # it was 2 of 5


def test_a_comparison_weighs_environments_equally(tmp_path: Path) -> None:
    """B is higher by 5 on each; pooled over runs it was lower, as most of its runs are on the lower one."""
    sides = {}
    for side, counts in (("a", {"Hopper-v5": 2, "Walker2d-v5": 5}), ("b", {"Hopper-v5": 5, "Walker2d-v5": 2})):
        sides[side] = [
            write_run(tmp_path / side, "vaco", seed, env=env, phases=4, sampled=height + seed + 5 * (side == "b"))
            for env, height in (("Hopper-v5", 100.0), ("Walker2d-v5", 500.0))
            for seed in range(counts[env])
        ]
    made = compare_runs(sides["a"], sides["b"], reps=50, normalise="raw")
    (row,) = made.rows
    assert row["scale"] == "mean of IQMs, raw" and row["difference"] == pytest.approx(5.0)
    assert (row["a"], row["b"]) == pytest.approx(((100.5 + 502) / 2, (107 + 505.5) / 2))
    assert any("each environment weighs the same: vaco K=8" in note for note in made.notes)
    equal = compare_runs(sides["a"], sides["a"], reps=50, normalise="raw")
    assert equal.rows[0]["scale"] == "IQM, raw" and not any("weighs" in note for note in equal.notes)


@pytest.mark.parametrize("figure", ["share_kept", "slowdown"])
def test_curves_that_join_labels_are_drawn_under_their_own_names(figure: str, tmp_path: Path) -> None:
    for label, lag, mean in (("fixed:0", "fixed:0", 0.0), ("fixed:2", "fixed:2", 2.0)):
        for seed in range(3):
            said = {"summary": {"lag_mean": mean, "tv_data": 0.1, "ess_data": 0.9, "clipped": 0.1}}
            top = 1000.0 - 100 * mean + seed
            write_run(
                tmp_path,
                f"vaco[delta=0.1,lag={label}]",
                seed,
                capacity=4,
                sampled=top,
                curve=[top / 2, top],
                phases=4,
                settings={"lag": lag},
                said=said,
            )
    drawn = draw(figure, load(tmp_path), k=4) if figure == "slowdown" else draw(figure, load(tmp_path))
    names = [t.get_text() for ax in drawn.axes for t in ax.get_yticklabels()]
    names += [t.get_text() for legend in drawn.legends for t in legend.get_texts()]
    assert "VACO, δ = 0.1" in names


def test_a_curve_with_its_lag_model_has_a_name() -> None:
    assert display_label("vaco (oldest)") == "VACO (oldest)"
    assert display_label("vaco[delta=0.8] N=4 (oldest)") == "VACO, δ = 0.8, N = 4 (oldest)"


def test_a_band_of_what_is_never_negative_ends_at_0(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    for seed, value in enumerate((0.0, 0.0, 0.3, 0.0, 0.1)):
        write_run(tmp_path, "vaco", seed, phases=4, columns={"clipped": [value] * 4, "change": [value - 0.1] * 4})
    for column, ends_at_0 in (("clipped", True), ("change", False)):
        with plot_settings():
            ax = Figure().subplots()
            draw_spread(ax, list(load(tmp_path)), column, styles(["vaco"])["vaco"])
        low = ax.collections[0].get_paths()[0].vertices[:, 1].min()
        assert low == 0.0 if ends_at_0 else low < -0.1


def test_one_accuracy_has_the_interval_of_its_problems(tmp_path: Path) -> None:
    """A standard error of 0.05 at 0.2, that is of 0.125 √(p (1 − p))."""
    of: Any = {"kind": "language", "env": "word-problems", "capacity": 1, "phases": 4}
    write_run(tmp_path, "tis", 0, deterministic=0.5, **of)
    results = load(tmp_path)
    (run,) = results
    summary = run.record["summary"] | {"untrained/deterministic": 0.2, "untrained/deterministic_error": 0.05}
    evaluated = replace(run, record={**run.record, "summary": summary})
    table = results.table(reps=50, engine="quick")
    assert sampling_error(evaluated, table) == pytest.approx(0.05 / 0.4)
    assert sampling_error(run, table) is None or "untrained/deterministic" in run.record["summary"]
    returns = write_run(tmp_path / "b", "spo", 0, env="Pendulum-v1", sampled=30.0, phases=4)
    returns.record["summary"] |= {"untrained/sampled": 0.2, "untrained/sampled_error": 0.05}
    assert sampling_error(returns, Results.of([returns]).table(reps=50, normalise="raw")) is None


def test_each_method_has_a_panel_with_the_others_in_grey(tmp_path: Path) -> None:
    for label in ("vaco", "ppo_clip", "spo"):
        for seed in range(5):
            write_run(tmp_path, label, seed, phases=4, curve=[1.0, 2.0 + seed])
    figure = draw("curves_by_method", load(tmp_path))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["PPO-clip", "SPO", "VACO"]
    for ax in figure.axes:
        assert sum(line.get_color() == "#C8C8C8" for line in ax.lines) == 2 and len(ax.collections) == 1


def test_a_bound_stands_behind_every_estimate(tmp_path: Path) -> None:
    """At K = 4 one method needs twice the steps; the other never gets there, after 1.3 times the steps."""
    for seed in range(5):
        write_run(tmp_path, "a", seed, capacity=1, phases=8, curve=[20.0, 60.0, 100.0, 100.0], sampled=100.0 + seed)
        write_run(tmp_path, "a", seed, capacity=4, phases=8, curve=[20.0, 20.0, 30.0, 100.0], sampled=100.0 + seed)
        write_run(tmp_path, "b", seed, capacity=1, phases=8, curve=[20.0, 20.0, 60.0, 100.0], sampled=100.0 + seed)
        write_run(tmp_path, "b", seed, capacity=4, phases=8, curve=[20.0, 20.0, 20.0, 20.0], sampled=20.0 + seed)
    (ax,) = draw("slowdown", load(tmp_path), k=4).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    (arrow,) = [line for line in ax.lines if line.get_marker() == ">"]
    (bound,) = [line for line in ax.lines if line.is_dashed() and len(set(line.get_ydata())) == 1]
    assert arrow.get_xdata()[0] == bound.get_xdata()[1] > 0.9 * ax.get_xlim()[1] > bound.get_xdata()[0]


def test_a_metric_that_no_run_has_names_the_nearest(tmp_path: Path) -> None:
    results = unequal(tmp_path)
    words = r"metric='tv_date' is measured in none of these runs; did you mean 'tv_data'"
    for figure in ("metric_over_training", "metric_over_time"):
        with pytest.raises(UserError, match=words):
            draw(figure, results, metric="tv_date", name="x")
    with pytest.raises(UserError, match=words):
        draw("rows_over_training", results, rows={"TV": ["tv_date"]}, name="x")


def test_a_metric_of_some_phases_is_drawn_at_their_times(tmp_path: Path) -> None:
    columns: Any = {"tv_data": [None, 1.0, None, 3.0]}
    for seed in range(2):
        write_run(tmp_path, "vaco", seed, phases=4, columns=columns)
    (ax,) = draw("metric_over_time", load(tmp_path), metric="tv_data", name="TV").axes
    (line,) = (line for line in ax.lines if len(line.get_xdata()))
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([4.0, 8.0], [1.0, 3.0])
