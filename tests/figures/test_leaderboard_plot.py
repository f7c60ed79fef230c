"""Picture of a leaderboard: a row for every method that learned, in both widths, the baseline's name bold."""

from __future__ import annotations

import itertools

import pytest
from boards import board, row, track
from matplotlib.axes import Axes
from matplotlib.text import Text

from staleharness.figures.leaderboard_tracks import draw_scores
from staleharness.figures.plot_layout import COLUMN, PAGE, to_bytes
from staleharness.statistics.leaderboard_scores import Leaderboard


def dots(ax: Axes, at: int) -> list[float]:
    """Scores of the row at a place, from the smallest K to the largest."""
    lines = [line for line in ax.lines if line.get_marker() == "o" and round(line.get_ydata()[0]) == at]
    return [float(line.get_xdata()[0]) for line in sorted(lines, key=lambda line: line.get_ydata()[0])]


@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_each_method_that_learned_has_a_row_and_intervals(width: float) -> None:
    rows = [row("ppo_clip", 0.9), row("spo", 0.5), row("impala", 0.1, has_learned=False), row("w", 0.7, kind="control")]
    figure = draw_scores(Leaderboard("B", (track("a", rows), track("b", rows[:2]))), width)
    assert [[text.get_text() for text in ax.get_yticklabels()] for ax in figure.axes] == [
        ["PPO-clip", "w", "SPO"],
        ["PPO-clip", "SPO"],
    ]
    for ax in figure.axes:
        assert dots(ax, 0) == pytest.approx([0.9 * 1.2, 0.9 * 1.1, 0.9])  # K = 1, 4, 16
        assert dots(ax, len(ax.get_yticks()) - 1) == pytest.approx([0.6, 0.55, 0.5])
        bars = [line.get_xdata() for line in ax.lines if line.get_alpha() and round(line.get_ydata()[0]) == 0]
        assert [[float(x) for x in bar] for bar in bars] == [pytest.approx([s - 0.05, s + 0.05]) for s in dots(ax, 0)]
        (dashed,) = (line for line in ax.lines if line.get_linestyle() == "--")
        assert list(dashed.get_xdata()) == pytest.approx([0.9, 0.9])
        styles = {text.get_text(): (text.get_fontweight(), text.get_style()) for text in ax.get_yticklabels()}
        assert styles["PPO-clip"] == ("bold", "normal") and styles.get("w", ("normal", "italic"))[1] == "italic"


@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_names_of_thirty_methods_do_not_overlap(width: float) -> None:
    figure = draw_scores(board(methods=30), width)
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = sorted((Text.get_window_extent(text) for text in ax.get_yticklabels()), key=lambda box: box.y0)
        assert len(boxes) == 30
        assert all(below.y0 + 0.75 * below.height <= above.y0 for below, above in itertools.pairwise(boxes))


def test_the_same_board_is_drawn_to_the_same_bytes() -> None:
    assert to_bytes(draw_scores(board(), PAGE), "svg") == to_bytes(draw_scores(board(), PAGE), "svg")


def test_a_board_without_a_ranking_is_an_empty_figure() -> None:
    assert draw_scores(Leaderboard("B", (track("a", []),)), PAGE).axes == []
