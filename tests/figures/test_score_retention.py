"""The picture of advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import second_line
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.registry import draw
from staleharness.figures.score_retention import GAP, TOP, draw_advice
from staleharness.logs.lag_log_reader import LagLog
from staleharness.pipeline.pipeline_summary import CapResult
from staleharness.statistics.advice import advise
from staleharness.statistics.results import Results, load

CAPS = [
    CapResult(0, 0.0, 100.0, "admission", "", 0.0),
    CapResult(1, 1.0, 50.0, "unit", "", 1.0),
    CapResult(None, 90.0, 49.0, "trainer", "", 90.0),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root: Path = tmp_path_factory.mktemp("stored")
    for env in ("Hopper-v5", "Walker2d-v5"):
        for label, fall in (("vaco", 0.9), ("spo", 0.3)):
            for k, share in ((1, 1.0), (4, fall)):
                for seed in range(3):
                    write_run(root, label, seed, env=env, capacity=k, sampled=1000 * share + seed)
    return load(root)


def test_lines_are_the_fits_and_points_what_was_measured(runs: Results) -> None:
    found = advise(runs)
    figure = draw_advice(found, "here")
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Hopper-v5", "Walker2d-v5"]
    for ax, env in zip(figure.axes, found.envs, strict=True):
        drawn = [line.get_xydata() for line in ax.lines]
        for method in found.on(env):
            line = np.column_stack([method.retention.lags, method.retention.fit])
            assert any(d.shape == line.shape and np.allclose(d, line) for d in drawn)
            assert any(len(d) == 1 and np.isclose(d[0, 1], method.retention.raw[1]) for d in drawn)
        low, high = ax.get_ylim()
        assert low < 0.3 and high > 1
    words = "\n".join(text.get_text() for text in figure.texts) + str(figure._suptitle)
    assert "n = 3 seeds" in words and "here: " in words and "95% bootstrap" in words


def test_a_pipeline_adds_a_row_with_a_point_per_cap_within_reach(runs: Results) -> None:
    figure = draw_advice(advise(runs, caps=CAPS), "here")
    assert len(figure.axes) == 4
    for ax in figure.axes[2:]:
        ends = [line for line in ax.lines if line.get_marker() not in ("None", None, "")]
        assert [len(line.get_xdata()) for line in ends] == [2, 2]
        (top,) = ax.child_axes
        assert [t.get_text() for t in top.get_xticklabels()] == ["0", "1–none"]


def test_names_of_caps_stand_below_the_title_of_their_panel(runs: Results) -> None:
    figure = draw_advice(advise(runs, caps=CAPS), "here")
    figure.draw_without_rendering()
    for ax in figure.axes[2:]:
        (top,) = ax.child_axes
        highest = max(label.get_window_extent().y1 for label in top.get_xticklabels())
        assert highest <= ax._left_title.get_window_extent().y0


def test_a_narrow_picture_has_a_row_for_each_environment(tmp_path: Path) -> None:
    for env in ("Ant-v5", "Hopper-v5", "Walker2d-v5"):
        for k in (1, 4):
            for seed in range(3):
                write_run(tmp_path, "vaco", seed, env=env, capacity=k, sampled=1000 / k + seed)
    figure = draw_advice(advise(load(tmp_path), caps=CAPS), "here", 3.5)
    panels = [(ax.get_title(loc="left"), ax.get_ylabel()) for ax in figure.axes]
    both = ("share kept", "IQM of the score")
    assert panels == [(env, label) for env in ("Ant-v5", "Hopper-v5", "Walker2d-v5") for label in both]


def test_the_mean_of_a_log_is_a_line_in_phases(runs: Results) -> None:
    log = LagLog("run.csv", "lag", "versions", np.array([1.0, 2.0]), np.array([3.0, 1.0]), "", 4)
    figure = draw_advice(advise(runs, log=log), "here", width=3.5)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SPO", "VACO"]
    for ax in figure.axes:
        assert any(np.allclose(line.get_xdata(), 1.25) for line in ax.lines)
        assert sum(bar.get_height() > 0 for bar in ax.patches) == 2


def test_the_share_kept_can_be_asked_for_by_name(runs: Results) -> None:
    table = runs.table(reps=50, engine="quick")
    figure = draw("share_kept", runs, table, keep=0.8)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Hopper-v5", "Walker2d-v5"]
    for ax in figure.axes:
        assert any(list(line.get_ydata()) == [0.8, 0.8] for line in ax.lines)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SPO", "VACO"]


def test_a_share_beyond_the_axis_has_its_number_at_the_top(tmp_path: Path) -> None:
    for label, share in (("vaco", 0.9), ("impala", 3.0)):
        for k, score in ((1, 1000.0), (4, 1000 * share)):
            for seed in range(3):
                write_run(tmp_path, label, seed, capacity=k, sampled=score)
    found = load(tmp_path)
    impala = next(m for m in advise(found).methods if m.curve.algorithm == "impala")
    figure = draw("share_kept", found)
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == [f"{impala.retention.raw[1]:.0%}"]
    assert ax.texts[0].xy[1] == TOP and ax.get_ylim()[1] < TOP + 0.1
    assert f"points with a number: above {TOP:.0%}" in second_line(figure)


def test_points_stand_near_their_own_lag_where_another_is_far_away(tmp_path: Path) -> None:
    labels = ["vaco", "spo", "impala", "a3po", "ppo_clip"]
    for label in labels:
        for k in (1, 2, 64):
            for seed in range(3):
                write_run(tmp_path, label, seed, capacity=k, phases=60)
    found = load(tmp_path)
    lags = advise(found).methods[0].curve.lags
    assert lags[2] > 15 * lags[1]
    (ax,) = draw("share_kept", found).axes
    points = [line.get_xdata() for line in ax.lines if line.get_linestyle() == "None"]
    assert len(points) == len(labels)
    for x in points:
        assert np.abs(x - lags[1:]).max() <= GAP * lags[1] * (len(labels) - 1) / 2 + 1e-9


def test_a_picture_names_methods_without_an_answer(tmp_path: Path) -> None:
    for k in (1, 4):
        for seed in range(3):
            write_run(tmp_path, "vaco", seed, capacity=k)
    write_run(tmp_path, "spo", 0, capacity=1)
    found = load(tmp_path)
    for figure in (draw_advice(advise(found), "here"), draw("share_kept", found), draw("slowdown", found)):
        words = second_line(figure)
        assert "no answer for spo on Hopper-v5" in words


def test_a_slowdown_that_is_a_bound_is_a_triangle(tmp_path: Path) -> None:
    rising = [100.0 * i for i in range(1, 9)]
    for label, share in (("vaco", 0.6), ("spo", 0.1)):
        for k, heights in ((1, rising), (4, [share * h for h in rising])):
            for seed in range(3):
                write_run(tmp_path, label, seed, capacity=k, curve=heights, phases=8, sampled=heights[-1])
    found = load(tmp_path)
    (ax,) = draw("slowdown", found, found.table(reps=50, engine="quick")).axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["VACO", "SPO"]  # the least slowed first
    points = {line.get_ydata()[0]: line for line in ax.lines if line.get_marker() not in ("None", None)}
    vaco, spo = points[0], points[1]
    assert spo.get_marker() == ">" and vaco.get_marker() != ">"
    assert vaco.get_xdata()[0] == pytest.approx(1 / 0.6)
    with pytest.raises(UserError, match="no slowdown at K=64 can be read"):
        draw("slowdown", found, k=64)
