from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from drawn import all_figures, second_line, texts_outside
from results_helper import ALGORITHMS, write_grid, write_run

from staleharness.figures import metric_curves, palette, plot_layout, registry
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results, load
from staleharness.statistics.table import Table, distinct_aggregates
from staleharness.store.stored_run import StoredRun


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Table]:
    root = tmp_path_factory.mktemp("results")
    runs = write_grid(root, ("mine", "ppo_clip", "vaco"), envs=("A-v1", "B-v1"), capacities=(1, 4), phases=10)
    return Results.of(runs), stats.table(runs, reps=50)


def lines(ax: matplotlib.axes.Axes) -> dict[str, np.ndarray]:
    return {line.get_gid(): np.asarray(line.get_ydata()) for line in ax.lines if line.get_gid()}


# --- looks


def test_a_known_algorithm_keeps_its_colour_whoever_stands_beside_it():
    together = palette.styles(["zeta", "vaco", "alpha", "spo"])
    assert together["vaco"].colour == palette.styles(["vaco"])["vaco"].colour == palette.ALGORITHM_COLOURS["vaco"][0]


def test_all_known_algorithms_and_six_more_look_different():
    looks = palette.styles([*ALGORITHMS, *(f"other{i}" for i in range(6)), "vaco[delta=0.1]"])
    assert len({(s.colour, s.dashes) for s in looks.values()}) == len(looks)
    assert len({(s.marker, s.dashes) for s in looks.values()}) == len(looks)


def test_a_lone_variant_takes_its_algorithms_colour():
    one = palette.styles(["vaco[delta=0.1]"])
    two = palette.styles(["vaco[delta=0.1]", "vaco[delta=0.3]"])
    assert one["vaco[delta=0.1]"] == two["vaco[delta=0.1]"]
    assert one["vaco[delta=0.1]"].colour == palette.ALGORITHM_COLOURS["vaco"][0] != two["vaco[delta=0.3]"].colour


# --- what is drawn


def test_a_learning_curve_is_the_iqm_over_seeds_at_each_evaluation(tmp_path: Path):
    curves = [[0.0, 10.0, 20.0], [0.0, 20.0, 40.0], [0.0, 30.0, 90.0], [0.0, 90.0, 95.0]]
    runs = [write_run(tmp_path, "vaco", s, sampled=c[-1], curve=c, phases=5) for s, c in enumerate(curves)]
    figure = registry.draw("learning_curves", Results.of(runs), stats.table(runs, reps=50))
    (line,) = figure.axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), [2048, 3 * 2048, 5 * 2048])
    np.testing.assert_allclose(line.get_ydata(), [0, 25, 65])


def test_curves_of_unequal_steps_share_their_common_range(tmp_path: Path):
    runs = [
        write_run(tmp_path, "vaco", 0, curve=[0.0, 4.0], phases=5),
        write_run(tmp_path, "vaco", 1, curve=[0.0, 2.0], phases=3, settings={"steps": 5 * 2048}),
    ]
    (line,) = registry.draw("learning_curves", Results.of(runs), stats.table(runs, reps=50)).axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), [2048, 3 * 2048])
    np.testing.assert_allclose(line.get_ydata(), [0.0, 2.0])


def test_every_environment_and_capacity_has_its_panel(results):
    figure = registry.draw("learning_curves", *results)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["A-v1, K = 1", "A-v1, K = 4", "B-v1, K = 1", "B-v1, K = 4"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() != figure.axes[2].get_ylim()


def test_the_aggregate_curve_ends_at_the_tables_iqm(results):
    runs, table = results
    figure = registry.draw("aggregate_curves", runs, table)
    for ax, k in zip(figure.axes, (1, 4), strict=True):
        ends = sorted(float(y[-1]) for y in lines(ax).values())
        assert ends == pytest.approx(sorted(r["iqm"] for r in table.rows if r["capacity"] == k))


def test_score_against_capacity_draws_the_tables_iqm_and_intervals(results):
    runs, table = results
    ax = registry.draw("score_against_capacity", runs, table).axes[0]
    drawn = {round(float(y), 9) for line in ax.lines for y in line.get_ydata()}
    for row in table.rows:
        assert {round(row[k], 9) for k in ("iqm", "iqm_low", "iqm_high")} <= drawn
    assert ax.get_xscale() == "log"


def test_aggregate_scores_draw_each_estimate_inside_its_interval(results):
    runs, table = results
    figure = registry.draw("aggregate_scores", runs, table)
    names = distinct_aggregates(table)
    assert names == ["iqm", "median"]  # of two environments the median is the mean, and no score is above 1
    for ax, name in zip(figure.axes, names, strict=True):
        assert [p.get_x() for p in ax.patches] == [r[f"{name}_low"] for r in table.rows]
        ends = [p.get_x() + p.get_width() for p in ax.patches]
        assert ends == pytest.approx([r[f"{name}_high"] for r in table.rows])
        assert [float(line.get_xdata()[0]) for line in ax.lines] == [r[name] for r in table.rows]


def test_the_lag_histogram_shows_shares_of_all_decisions(results):
    runs, table = results
    ax = registry.draw("lag_histogram", runs, table).axes[1]
    total = sum(sum(r.record["lag_histogram"].values()) for r in runs if r.record["spec"]["capacity"] == 4)
    zero = sum(r.record["lag_histogram"]["0"] for r in runs if r.record["spec"]["capacity"] == 4)
    assert sum(p.get_height() for p in ax.patches) == pytest.approx(1.0)
    assert ax.patches[0].get_height() == pytest.approx(zero / total)


def test_diagnostics_are_means_over_runs_in_equal_bins(tmp_path: Path):
    runs = write_grid(tmp_path, ("vaco",), phases=250, seeds=2)
    ax = registry.draw("staleness", Results.of(runs), stats.table(runs, reps=50)).axes[0]
    (y,) = lines(ax).values()
    assert len(y) == metric_curves.BINS
    assert y.mean() == pytest.approx(np.mean([r.metrics()["tv_data"].mean() for r in runs]), rel=0.02)


def test_a_diagnostic_that_no_run_measured_is_an_empty_panel(tmp_path: Path):
    run = write_run(tmp_path, "vaco", 0)
    frame = run.metrics().assign(ess_data=None)  # as JSON's null arrives
    frame.to_parquet(run.path / "metrics.parquet")
    figure = registry.draw("staleness", Results.of([run]), stats.table([run]))
    assert [len(y) for y in lines(figure.axes[1]).values()] == [0]


def test_one_run_has_a_curve_without_a_band(tmp_path: Path):
    runs = [write_run(tmp_path, "vaco", 0)]
    figure = registry.draw("learning_curves", Results.of(runs), stats.table(runs))
    assert len(figure.axes[0].lines) == 1 and not figure.axes[0].collections


def test_every_figure_says_n_interval_and_score(results):
    runs, table = results
    for name, figure in all_figures(runs, table).items():
        said = second_line(figure)
        if name not in ("lag_histogram", "staleness"):
            assert "n = 3" in said and "95% " in said and "sampled returns" in said, name


@pytest.mark.parametrize("width", [plot_layout.PAGE, plot_layout.COLUMN])
@pytest.mark.long
def test_no_text_of_a_figure_hangs_over_its_edge(results, width: float):
    runs, table = results
    for name, figure in all_figures(runs, table, width).items():
        assert texts_outside(figure, ticks=True) == [], name


# --- bytes and state


@pytest.mark.long
def test_figures_are_the_same_bytes_in_any_process_and_order(tmp_path: Path):
    runs = write_grid(tmp_path, ("spo", "vaco"), phases=4, seeds=2)
    program = """
import sys
from test_figures import digests
from staleharness.store.store import Store
print(*digests(Store(sys.argv[1]).read_all()[::-1]), sep=chr(10))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == digests(runs)


def digests(runs: list[StoredRun]) -> list[str]:
    """Name, kind and sha256 of every figure as SVG and of one in every format."""
    made = all_figures(Results.of(runs), stats.table(runs, reps=50))
    wanted = [(name, "svg") for name in made] + [("lag_histogram", "pdf"), ("lag_histogram", "png")]
    return [f"{n} {kind} {hashlib.sha256(plot_layout.to_bytes(made[n], kind)).hexdigest()}" for n, kind in wanted]


def test_drawing_leaves_matplotlib_as_it_was_and_never_loads_pyplot(results):
    runs, table = results
    with matplotlib.rc_context({"font.size": 33, "svg.hashsalt": "mine"}):
        before = dict(matplotlib.rcParams)
        plot_layout.to_bytes(registry.draw("aggregate_scores", runs, table), "svg")
        assert dict(matplotlib.rcParams) == before
    program = """
import sys
from staleharness.figures.registry import FIGURES
assert len(FIGURES) > 20
print(*(m in sys.modules for m in sys.argv[1:]))
"""
    command = [sys.executable, "-c", program, "matplotlib.pyplot", "torch", "gymnasium", "mujoco"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 4


def test_names_with_special_characters_are_drawn(tmp_path: Path):
    names = ["$\\alpha$", "_hidden", "<b>&amp;", "名前", "x" * 60]
    runs = [write_run(tmp_path, n, 0, sampled=float(i)) for i, n in enumerate(names)]
    runs += [write_run(tmp_path, "spo", 0, capacity=4)]
    figure = registry.draw("learning_curves", load(str(tmp_path)), stats.table(runs))
    svg = plot_layout.to_bytes(figure, "svg").decode()
    texts = {t.text.strip() for t in ElementTree.fromstring(svg).iter() if t.tag.endswith("text") and t.text}
    assert {"$\\alpha$", "_hidden", "<b>&amp;", "名前"} <= texts
    assert plot_layout.to_bytes(figure, "png")


def test_many_methods_stay_at_their_capacity_and_on_the_page(tmp_path: Path):
    for i in range(26):
        for k in (1, 2):
            write_run(tmp_path, f"method_{i}", capacity=k, sampled=100.0 + i)
    figure = registry.draw("score_against_capacity", load(tmp_path))
    (ax,) = figure.axes
    points = np.concatenate([line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2])
    assert (np.abs(np.log2(points) - np.round(np.log2(points))) <= 0.3).all()
    figure.draw_without_rendering()
    names = [text.get_window_extent() for text in ax.texts if text.get_text().startswith("method")]
    assert len(names) == 26 and min(box.y0 for box in names) > 0 and max(box.y1 for box in names) < figure.bbox.y1
