"""Picture of a leaderboard: every method that learned, in both widths, the baseline thick."""

from __future__ import annotations

import itertools

import pytest
from boards import board, row, track
from matplotlib.text import Text

from staleharness.figures.leaderboard_tracks import draw_tracks
from staleharness.figures.plot_layout import COLUMN, PAGE, to_bytes
from staleharness.statistics.leaderboard import Leaderboard


@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_each_method_that_learned_has_a_line_and_a_name(width: float) -> None:
    rows = [row("ppo_clip", 0.9), row("spo", 0.5), row("impala", 0.1, has_learned=False)]
    figure = draw_tracks(Leaderboard("B", (track("a", rows), track("b", rows[:2]))), width)
    assert len(figure.axes) == 2
    for ax in figure.axes:
        lines = [line for line in ax.lines if line.get_marker() not in ("None", "")]
        assert [len(line.get_xdata()) for line in lines] == [3, 3]
        assert lines[0].get_linewidth() > lines[1].get_linewidth()
        heights = [float(line.get_ydata()[-1]) for line in lines]
        assert heights == pytest.approx([0.9, 0.5])  # K = 16
        assert [note.get_text() for note in ax.texts] == ["SPO", "PPO-clip"]  # from below


def test_names_of_thirty_methods_do_not_overlap() -> None:
    figure = draw_tracks(board(methods=30), PAGE)
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = sorted((Text.get_window_extent(note) for note in ax.texts), key=lambda box: box.y0)
        assert len(boxes) == 30
        assert all(below.y0 + 0.75 * below.height <= above.y0 for below, above in itertools.pairwise(boxes))


def test_the_same_board_is_drawn_to_the_same_bytes() -> None:
    assert to_bytes(draw_tracks(board(), PAGE), "svg") == to_bytes(draw_tracks(board(), PAGE), "svg")


def test_panels_of_many_methods_have_the_whole_width() -> None:
    for methods, columns in ((8, 2), (9, 1)):
        axes = draw_tracks(board(methods=methods), PAGE).axes
        assert {ax.get_gridspec().ncols for ax in axes} == {columns}
