"""Drawings of papers' figures: each number against hand-worked cases or another library."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import quick, second_line
from matplotlib.figure import Figure
from results_helper import write_grid, write_run
from scipy.stats import t as student_t

from staleharness.errors import UserError
from staleharness.figures import (
    comparisons,
    curves_and_summary,
    learning_curves,
    metric_curves,
    option_scores,
    palette,
    plot_marks,
)
from staleharness.statistics import aggregate as stats
from staleharness.statistics import scores
from staleharness.statistics.results import Results
from staleharness.store.run_grid import grid


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (comparisons, curves_and_summary):
        monkeypatch.setattr(module, "REPS", 200)


def lines(ax) -> dict[str, np.ndarray]:
    return {line.get_gid(): np.asarray(line.get_ydata()) for line in ax.lines if line.get_gid()}


# --- comparisons


def test_a_profile_is_rliables() -> None:
    from rliable import library

    matrix = np.random.default_rng(0).random((5, 3))
    taus = np.linspace(0, 1, 11)
    theirs = library.create_performance_profile({"x": matrix}, taus, reps=10)[0]["x"]
    np.testing.assert_allclose(comparisons.profile(list(matrix.T), taus), theirs)


def test_a_profile_weighs_tasks_equally_however_many_runs_they_have() -> None:
    tasks = [np.array([1.0]), np.array([0.0, 0.0, 0.0])]
    assert comparisons.profile(tasks, np.array([0.5])).tolist() == [0.5]


def test_differences_pair_runs_of_one_seed(tmp_path: Path) -> None:
    for seed, (ours, theirs) in enumerate([(30.0, 10.0), (60.0, 20.0), (110.0, None)]):
        write_run(tmp_path, "vaco", seed, sampled=ours, capacity=1)
        if theirs is not None:
            write_run(tmp_path, "ppo_clip", seed, sampled=theirs, capacity=1)
    runs = read(tmp_path)
    (pairs,) = comparisons.pairs(grid(runs), quick(runs), "vaco", "ppo_clip", 1)
    np.testing.assert_allclose(pairs, [0.2, 0.4])  # of the range 10 to 110; seed 2 has no partner
    figure = comparisons.paired_differences(Results.of(runs), quick(runs))
    assert any(np.allclose(line.get_xdata(), [0.3, 0.3]) for line in figure.axes[0].lines)


def read(root: Path) -> list:
    from staleharness.store.store import Store

    return Store(root).read_all()


def test_a_baseline_without_runs_is_named(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=3)
    with pytest.raises(UserError, match="baseline='ppo_clip' has no run"):
        comparisons.paired_differences(Results.of(runs), quick(runs))


# --- training


def test_a_run_counts_from_the_first_evaluation_at_the_threshold(tmp_path: Path) -> None:
    curves = [[0.0, 60.0, 40.0, 100.0], [0.0, 20.0, 50.0, 60.0], [0.0, 10.0, 20.0, 30.0]]
    runs = [write_run(tmp_path, "vaco", s, sampled=c[-1], curve=c, phases=4) for s, c in enumerate(curves)]
    table = quick(runs)  # worst 30, best 100: half-way is 65
    figure = curves_and_summary.steps_to_threshold(Results.of(runs), table)
    (line,) = [line for line in figure.axes[0].lines if line.get_gid()]
    assert line.get_xdata().tolist() == [0, 4 * 2048, 4 * 2048]
    np.testing.assert_allclose(line.get_ydata(), [0, 1 / 3, 1 / 3])


def test_the_end_of_a_metric_is_a_mean_over_last_phases(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("vaco",), seeds=2, phases=20)
    row = curves_and_summary._end_row(grid(runs), "vaco", 8, "tv_end", (0.9, 1.0), 0)
    expected = np.mean([r.metrics()["tv_end"].iloc[-2:].mean() for r in runs])
    assert row["end"] == pytest.approx(expected) and row["end_low"] <= row["end"] <= row["end_high"]


def test_the_end_of_a_metric_leaves_out_the_filling_phases(tmp_path: Path) -> None:
    """The last half of 4 phases of the budget, after 2 filling ones, are its phases 2 and 3."""
    for seed in range(2):
        columns = {"tv_end": [9.0, 9.0, 1.0, 2.0, 3.0, 5.0]}
        write_run(tmp_path, "vaco", seed, phases=6, settings={"fill_phases": 2}, columns=columns)
    runs = read(tmp_path)
    row = curves_and_summary._end_row(grid(runs), "vaco", 8, "tv_end", (0.5, 1.0), 0)
    assert row["end"] == pytest.approx(4.0)
    assert curves_and_summary._end_row(grid(runs), "vaco", 8, "tv_end", (0.0, 1.0), 0)["end"] == pytest.approx(2.75)
    assert curves_and_summary._span(grid(runs), (0.5, 1.0)) == "2 to 3"


def test_methods_without_the_metric_are_left_out(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=4)
    for run in runs[:2]:
        run.metrics().drop(columns="tv_end").to_parquet(run.path / "metrics.parquet")
    figure = curves_and_summary.metric_over_training(
        Results.of(runs), quick(runs), metric="tv_end", name="TV", line=0.1
    )
    (box,) = figure.legends
    assert [t.get_text() for t in box.get_texts()] == ["VACO"]


def test_a_few_of_many_methods_stand_around_their_capacity() -> None:
    looks = dict(list(palette.styles(list("abcdefg")).items())[-2:])
    rows = [{"algorithm": a, "capacity": k, "v": 1.0, "v_low": None, "v_high": None} for a in looks for k in (1, 4)]
    ax = Figure().subplots()
    ends = plot_marks.points_against_capacity(ax, looks, rows, "v", (1, 4))
    assert math.prod(x for _, x, _ in ends) == pytest.approx(16.0)  # as far to the left as to the right
    assert max(x for _, x, _ in ends) < ax.get_xlim()[1]


def test_the_area_beside_the_curves_is_the_tables(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), capacities=(1, 4), seeds=2, phases=6)
    table = quick(runs)
    ax = curves_and_summary.score_and_area(Results.of(runs), table).axes[-1]
    drawn = {float(y) for line in ax.lines for y in line.get_ydata()}
    assert {r["auc"] for r in table.rows} <= drawn


def write_weights(root: Path, label: str, seed: int, k: int, high: list[float]) -> None:
    columns = {"weight_max": high, "weight_min": [1 / x for x in high]}
    write_run(root, label, seed, capacity=k, phases=2, columns=columns)


def test_rows_over_training_are_geometric_means_with_bands(tmp_path: Path) -> None:
    for k in (1, 4):
        write_weights(tmp_path, "vaco", 0, k, [2.0 * k, 4.0])
        write_weights(tmp_path, "vaco", 1, k, [4.0 * k, 8.0])
        write_run(tmp_path, "spo", 0, capacity=k, phases=2)
    runs = read(tmp_path)
    options = {"rows": {"w": ["weight_max", "weight_min"], "TV": ["tv_end"]}, "name": "weights", "unit": "w"}
    figure = metric_curves.rows_over_training(Results.of(runs), quick(runs), logarithmic=True, line=1.0, **options)
    assert [ax.get_title("left") for ax in figure.axes] == ["w, K = 1", "w, K = 4", "TV, K = 1", "TV, K = 4"]
    high, low = [line for line in figure.axes[1].lines if line.get_gid()]
    assert [*high.get_xdata()] == [2048, 4096] and [*high.get_ydata()] == pytest.approx([128**0.5, 32**0.5])
    assert [*low.get_ydata()] == pytest.approx([128**-0.5, 32**-0.5])  # geometric means of 8 and 16, 4 and 8
    band = figure.axes[1].collections[0].get_paths()[0].vertices[:, 1]
    # Of two runs a factor of 2 apart, half of ln 2 is the standard error.
    reach = 2 ** (student_t.ppf(0.975, 1) / 2)
    assert band.max() == pytest.approx(128**0.5 * reach) and band.min() == pytest.approx(32**0.5 / reach)
    assert len([line for line in figure.axes[2].lines if line.get_gid()]) == 2  # of the TV, one for each method
    assert len({ax.get_ylim() for ax in figure.axes}) == 1 and figure.axes[0].get_yscale() == "log"
    options["rows"] = {"w": ["weight_max"]}
    (box,) = metric_curves.rows_over_training(Results.of(runs), quick(runs), **options).legends
    assert [t.get_text() for t in box.get_texts()] == ["VACO"]


def test_rows_with_separate_axes_have_the_level_in_the_last(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("vaco",), capacities=(1, 4), seeds=1, phases=2)
    options = {"rows": {"steps": ["gradient_steps"], "share": ["clipped"]}, "name": "x", "line": 1.0}
    figure = metric_curves.rows_over_training(Results.of(runs), quick(runs), one_axis=False, **options)
    steps, steps_4, share, share_4 = (ax.get_ylim() for ax in figure.axes)
    assert steps == steps_4 and share == share_4 and steps[1] > 10 * share[1]
    levels = [[line.get_ydata() for line in ax.lines if not line.get_gid()] for ax in figure.axes]
    assert levels == [[], [], [[1.0, 1.0]], [[1.0, 1.0]]]


def test_on_a_narrow_page_the_rows_of_a_capacity_stand_side_by_side(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("vaco",), capacities=(1, 4, 8), seeds=1, phases=2)
    options = {"rows": {"a": ["tv_end"], "b": ["clipped"]}, "name": "x", "unit": "x"}
    figure = metric_curves.rows_over_training(Results.of(runs), quick(runs), 3.5, **options)
    titles = [ax.get_title("left").replace("\n", " ") for ax in figure.axes]
    assert titles == ["a, K = 1", "b, K = 1", "a, K = 4", "b, K = 4", "a, K = 8", "b, K = 8"]


def test_seconds_of_a_part_of_a_phase_can_be_a_row(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "vaco", seed, phases=2) for seed in (0, 1)]
    for run, seconds in zip(runs, ([0.1, 0.3], [0.3, 0.5]), strict=True):
        pd.DataFrame({"proximal": seconds}).to_parquet(run.path / "timing.parquet")
    options = {"rows": {"proximal step": ["seconds/proximal"]}, "name": "time", "unit": "seconds"}
    figure = metric_curves.rows_over_training(Results.of(runs), quick(runs), **options)
    (line,) = [line for line in figure.axes[0].lines if line.get_gid()]
    assert [*line.get_ydata()] == pytest.approx([0.2, 0.4])
    assert "on Test CPU" in second_line(figure)


# --- names


def test_a_figure_may_call_an_algorithm_by_another_name(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=4)
    table = quick(runs)
    table.settings["names"] = {"spo": "quadratic pull"}
    assert {s.name for s in palette.looks_of(table).values()} == {"quadratic pull", "VACO"}
    (ax,) = learning_curves.learning_curves(Results.of(runs), table).axes
    assert {t.get_text() for t in ax.texts} == {"quadratic pull", "VACO"}
    (box,) = curves_and_summary.score_and_area(Results.of(runs), table).legends
    assert [t.get_text() for t in box.get_texts()] == ["quadratic pull", "VACO"]


# --- ablations


def test_an_options_value_is_read_from_the_run_not_its_label(tmp_path: Path) -> None:
    a = write_run(tmp_path, "vaco", 0, settings={"hyper": {"delta": 0.2}})
    b = write_run(tmp_path, "vaco[delta=0.4]", 0, settings={"hyper": {"delta": 0.4}})
    c = write_run(tmp_path, "spo", 0, settings={"learning_rate": 0.1})
    assert option_scores.option_values([a, b, c], "delta") == {"vaco": 0.2, "vaco[delta=0.4]": 0.4}
    assert option_scores.option_values([a, b, c], "learning_rate") == {"spo": 0.1}
    with pytest.raises(UserError, match="option='rho': no run here has it"):
        option_scores.option_values([a], "rho")


def test_a_line_over_an_option_is_the_iqm_by_value(tmp_path: Path) -> None:
    levels = {0.05: 10.0, 0.2: 50.0, 0.8: 30.0}
    for delta, level in levels.items():
        for seed in (0, 1):
            label = "vaco" if delta == 0.2 else f"vaco[delta={delta}]"
            write_run(tmp_path, label, seed, sampled=level + seed, settings={"hyper": {"delta": delta}})
    runs = read(tmp_path)
    ax = option_scores.score_against_option(Results.of(runs), quick(runs), option="delta", name="δ").axes[0]
    *_, line = ax.lines
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2])
    np.testing.assert_allclose(line.get_ydata(), [(v + 0.5 - 10) / 41 for v in levels.values()])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.05", "0.2", "0.8"] and ax.get_xlabel() == "δ"


def test_two_options_make_a_grid_of_panels(tmp_path: Path) -> None:
    level = {(k, h, b): 0.001 * k + 0.01 * h + 0.0001 * b for k in (1, 4) for h in (2, 8) for b in (16, 64)}
    for (k, h, b), y in level.items():
        for seed in (0, 1):
            for name, extra in (("seq_is", 0.0), ("tis", 0.5)):
                label = f"{name}[batch={b},horizon={h}]"
                own = {"kind": "chain", "settings": {"batch": b, "horizon": h}}
                write_run(tmp_path, label, seed, capacity=k, sampled=y + extra, phases=3, **own)
    runs = read(tmp_path)
    figure = option_scores.score_against_two_options(
        Results.of(runs), quick(runs), option="batch", across="horizon", name="B", across_name="H"
    )
    titles = [ax._left_title.get_text() for ax in figure.axes]
    assert titles == ["H = 2, K = 1", "H = 8, K = 1", "H = 2, K = 4", "H = 8, K = 4"]
    for ax, (k, h) in zip(figure.axes, [(1, 2), (1, 8), (4, 2), (4, 8)], strict=True):
        drawn = [line.get_ydata() for line in ax.lines if line.get_marker() != "None"]
        np.testing.assert_allclose(drawn, [[level[k, h, b] + extra for b in (16, 64)] for extra in (0.0, 0.5)])
        assert [t.get_text() for t in ax.get_xticklabels()] == ["16", "64"]
    (box,) = figure.legends
    assert [t.get_text() for t in box.get_texts()] == ["sequence IS", "TIS"]


# --- scores as they are


def test_normalise_raw_leaves_scores_alone(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "vaco", seed, sampled=0.25 * (seed + 1)) for seed in (0, 1)]
    (row,) = stats.table(runs, normalise="raw", reps=50, engine="quick").rows
    assert row["iqm"] == pytest.approx(0.375)
    scale = scores.normaliser("raw", grid(runs), "sampled")
    assert scale.note == "the scores as they are" and not scale.degenerate
