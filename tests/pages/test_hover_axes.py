"""Axes of panels say what a place in a picture is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_grid

from staleharness.figures.plot_layout import label_edges, panels, percent_axis, steps_axis
from staleharness.figures.registry import draw
from staleharness.pages.figure_embedding import hover_axes
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table

TABLE = Table([], [], {"sizes": [(4, 8192)], "dates": ["2026-11-20"]})


def read(figure: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in hover_axes(figure)]


def test_a_place_in_the_picture_is_worth_what_matplotlib_says() -> None:
    """A point of the data lies where its share of box and ends puts it, on linear and logarithmic axes."""
    with panels("T", "", [0, 1], TABLE, 7.0, 2.0) as (figure, axes):
        axes[0].plot([0, 1000], [-2.0, 3.0])
        axes[1].plot([1, 100], [0.0, 1.0])
        axes[1].set_xscale("log")
        label_edges(axes, "steps", "score")
    height = 72 * figure.get_figheight()
    for ax, about, (x, y) in zip(axes, read(figure), [(250.0, 1.5), (10.0, 0.25)], strict=True):
        pixel = ax.transData.transform((x, y)) * 72 / figure.dpi
        left, top, right, bottom = about["box"]
        (x0, x1), (y0, y1) = about["x"]["ends"], about["y"]["ends"]
        share = (pixel[0] - left) / (right - left)
        value = x0 * (x1 / x0) ** share if about["x"].get("log") else x0 + share * (x1 - x0)
        assert value == pytest.approx(x, rel=2e-3)
        up = (bottom - (height - pixel[1])) / (bottom - top)
        assert y0 + up * (y1 - y0) == pytest.approx(y, abs=5e-3)
    assert [about["x"].get("log") for about in read(figure)] == [None, 1]


def test_labels_come_from_the_edge_of_the_grid_and_units_from_ticks() -> None:
    with panels("T", "", range(4), TABLE, 7.0, 1.5, 2) as (figure, axes):
        for i, ax in enumerate(axes):
            ax.plot([0, 1], [0, 1])
            ax.set_title(f"panel\n{i}", loc="left")
            steps_axis(ax)
            percent_axis(ax)
        label_edges(axes, "steps", "share")
        axes[3].set_xlabel("other")
        axes[1].set_yticks([0, 1], labels=["PPO", "VACO"])
    found = read(figure)
    assert [a["title"] for a in found] == ["panel 0", "panel 1", "panel 2", "panel 3"]
    assert [a["x"]["label"] for a in found] == ["steps", "other", "steps", "other"]
    assert {a["y"]["label"] for a in found} == {"share"}
    assert [a["y"].get("unit") for a in found] == ["%", None, "%", "%"]
    assert found[1]["y"]["names"] == [[0.0, "PPO"], [1.0, "VACO"]]


def test_a_fixed_tick_of_capacity_has_its_text(tmp_path: Path) -> None:
    results = Results.of(write_grid(tmp_path, ("ppo_clip", "vaco"), capacities=(1, 4, 16), phases=4, seeds=2))
    table = results.table(reps=50)
    (about,) = read(draw("score_against_capacity", results, table))
    assert about["x"]["names"] == [[1.0, "1"], [4.0, "4"], [16.0, "16"]] and about["x"]["log"] == 1
