"""Texts of a figure: titles that fit, lines that break at words, notes in free corners."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from places import ROOT

from staleharness.figures import plot_layout
from staleharness.figures.palette import Style, styles
from staleharness.figures.plot_marks import name_identical_lines
from staleharness.statistics.table import Table


@pytest.mark.parametrize(
    ("length", "size", "shown"), [(45, 9.0, 45), (50, 8.19, 50), (54, 9 * 45.5 / 54, 54), (60, 7.5, 54)]
)
def test_a_long_title_is_smaller_before_it_is_cut(length: int, size: float, shown: int) -> None:
    figure = Figure(figsize=(3.5, 2))
    text = figure.text(0, 1, "", gid="figure-title")
    plot_layout.retitle(figure, "x" * length)
    assert text.get_fontsize() == pytest.approx(size) and len(text.get_text()) == shown
    assert text.get_text().endswith("…") == (shown < length)


def test_an_equation_stays_on_one_line() -> None:
    assert plot_layout._wrap("kept at K = 16, n = 5 seeds", 12) == ["kept at", "K = 16,", "n = 5 seeds"]


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_note_stands_in_the_corner_that_lines_leave_free(corner: tuple[int, int], scale: str) -> None:
    right, low = corner
    looks = {name: Style(i, "#000000", "o", (), name) for i, name in enumerate("ab")}
    ax = Figure().add_subplot()
    # through the three other corners: along the side across, then along the one below or above
    free, far = 1 - low, 1 - right  # of the corner: its height, and the side across
    path = [(far, free), (far, low), (right, low)]
    x, y = np.array(path, dtype=float).T
    for look in looks.values():
        ax.plot(x, 10.0**y, gid=plot_layout.gid(look))
    ax.set_yscale(scale)
    name_identical_lines(ax, looks)
    (note,) = ax.texts
    assert note.get_text() == "a = b"
    assert (note.get_ha() == "right", note.get_va() == "bottom") == (bool(right), bool(low))


def test_reduced_colours_keep_the_picture_and_its_metadata() -> None:
    figure = Figure(figsize=(2, 1))
    ax = figure.add_subplot()
    ax.plot([0, 1], color="#D55E00")
    wide = plot_layout.to_bytes(figure, "png", "from here")
    small = plot_layout.reduce_colours(wide)
    assert len(small) < len(wide) and plot_layout.reduce_colours(wide) == small
    before, after = (Image.open(io.BytesIO(data)) for data in (wide, small))
    assert after.mode == "P" and after.text == {"Source": "from here"} and after.size == before.size
    apart = np.abs(np.asarray(before.convert("RGB"), float) - np.asarray(after.convert("RGB"), float))
    assert apart.mean() < 1 and apart.max() < 40


def test_a_picture_below_its_title_is_cut_and_nothing_else_moves() -> None:
    def picture(title: str, whole: bool) -> np.ndarray:
        figure = Figure(figsize=(3.0, 2.0), dpi=144)
        figure.add_subplot().plot([0, 1], [1, 0])
        figure.text(0.005, 0.99, title, va="top", gid="figure-title")
        with Image.open(io.BytesIO(plot_layout.to_bytes(figure, "png", title=whole))) as image:
            return np.array(image.convert("RGB"))

    whole, cut = picture("", True), picture("A title", False)
    removed = len(whole) - len(cut)
    assert removed / len(whole) == pytest.approx(plot_layout.TITLE_HEIGHT / (2.0 * 72), abs=1 / len(whole))
    assert (whole[removed:] == cut).all()


def test_reduced_colours_keep_those_of_methods() -> None:
    """A dot of one method must not take the colour of another, however many shades the rest of the picture has."""
    wide = (ROOT / "docs" / "gallery" / "vaco" / "budget.png").read_bytes()
    before, after = (
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)
        for data in (wide, plot_layout.reduce_colours(wide))
    )
    assert np.abs(after - before).max() < 24  # of 255, at any pixel


def test_a_long_legend_takes_no_room_from_the_panels() -> None:
    settings = {"sizes": [(32, 64)], "dates": ["2026-11-22"]}
    table = cast("Table", SimpleNamespace(draft=False, settings=settings))

    def height_of_a_panel(methods: int) -> float:
        looks = styles(f"method {i}" for i in range(methods))
        with plot_layout.panels("t", "s", "ab", table=table, columns=1, height=1.45, width=3.5) as (figure, axes):
            plot_layout.legend(figure, looks)
        return float(axes[0].get_position().height * figure.get_figheight())

    assert height_of_a_panel(27) == pytest.approx(height_of_a_panel(6), rel=0.1)
