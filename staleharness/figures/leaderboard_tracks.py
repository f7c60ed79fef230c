"""Score against K of a leaderboard's methods, a panel per track."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..statistics.leaderboard import Leaderboard, LeaderboardRow, Track
from .palette import Style, styles, with_names
from .plot_elements import draw_interval, draw_line, level_line, log_axis
from .plot_layout import FAINT, PAGE, label_edges, names_at_ends, plot_settings

ROW = 0.155  # inches of height for each name at the right
LEAST_HEIGHT = 2.4  # inches of a panel
MOST_ROWS = 8  # of panels side by side
STEP, WIDEST = 0.15, 0.9  # between neighbours at one K and between the outermost, in doublings of K


def track_looks(tracks: Sequence[Track]) -> dict[str, Style]:
    """Style of each method on any of the tracks, by name."""
    rows = [row for track in tracks for row in track.rows]
    titles = {row.name: row.label for row in rows if row.kind == "control"}
    return with_names(styles(row.name for row in rows), titles)


def draw_tracks(board: Leaderboard, width: float = PAGE) -> Figure:
    """Score against K of all methods that learned; one panel per track, below each other where they need the width.

    The baseline's line is thick. Methods are named at the right, in the order of their scores at the largest K.
    """
    looks = track_looks(board.tracks)
    tracks = [track for track in board.tracks if track.ranking]
    is_wide = width >= PAGE and all(len(track.ranking) <= MOST_ROWS for track in tracks)
    columns = len(tracks) if is_wide else 1
    lines = -(-len(tracks) // max(1, columns))
    height = max([LEAST_HEIGHT, *(ROW * len(track.ranking) for track in tracks)])
    with plot_settings():
        figure = Figure(figsize=(width, lines * (height + 0.5) + 0.25))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
        figure.suptitle(" ", fontsize=7)  # room for the title, which a page prints as a heading
        figure.text(
            0.005, 1 - 0.03 / figure.get_figheight(), board.title, va="top", fontweight="bold", gid="figure-title"
        )
        axes = [figure.add_subplot(lines, max(1, columns), i + 1, gid=f"panel-{i}") for i in range(len(tracks))]
        for ax, track in zip(axes, tracks, strict=True):
            _draw_track(ax, track, looks, height)
        if axes:
            label_edges(axes, "K, capacity of the policy buffer", "score")
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
        figure.set_layout_engine(None)
    return figure


def _draw_track(ax: Axes, track: Track, looks: Mapping[str, Style], height: float) -> None:
    ends = []
    for at, row in enumerate(track.ranking):
        look = looks[row.name]
        places, values = _points(row, track, at)
        for x, k in zip(places, values, strict=True):
            score = row.capacities[k].score
            if score is not None and score.low is not None and score.high is not None:
                draw_interval(ax, look, [x, x], [score.low, score.high], 1.6, 0.3)
        thick = 2.4 if row.label == track.baseline else 1.0
        draw_line(ax, look, places, list(values.values()), marker=4, linewidth=thick)
        if values:
            ends.append((row.name, places[-1], list(values.values())[-1]))
    level_line(ax, 0.0)
    ax.set_title(track.title, loc="left", color=FAINT)
    log_axis(ax, track.ks)
    ax.set_xlim(min(track.ks) / 2**0.6, max(track.ks) * 2**0.6)
    names_at_ends(ax, ends, looks, height)


def _points(row: LeaderboardRow, track: Track, at: int) -> tuple[list[float], dict[int, float]]:
    """Places on the axis, side by side so that intervals do not hide each other, and the score by K."""
    values = {k: r.score.value for k in track.ks if (r := row.capacities.get(k)) is not None and r.score is not None}
    others = max(1, len(track.ranking) - 1)
    shift = 2 ** (min(WIDEST, STEP * others) * (at / others - 0.5))
    return [k * shift for k in values], values
