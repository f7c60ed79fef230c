"""Picture of the leaderboard's table: scores at each capacity, a row for each method and a panel for each track."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from staleharness.figures.plot_elements import REFERENCE_LINE, row_axis
from staleharness.figures.plot_layout import FAINT, INK, PAGE, plot_settings
from staleharness.statistics.leaderboard import Leaderboard, LeaderboardRow, Track
from staleharness.statistics.method_labels import display_label

ROW, HEAD = 0.165, 0.55  # inches of a row, and of a panel's title and axis
SHADES = ("#A9BBD0", "#5E84AE", "#123A63")  # of the capacities, the last the darkest
CONTROL = "#9A5B00"  # names of width controls


def draw_scores(board: Leaderboard, names: Sequence[str], width: float = PAGE) -> Figure:
    """Draw the rows called `names`, in that order. Panels are side by side with the names at the left of all, or, in a
    narrow figure, below each other, each with its own rows.

    Dots: scores at each K, the largest with its interval; dashed line: the baseline there.
    """
    tracks = [track for track in board.tracks if track.ranking]
    side_by_side = width >= PAGE
    rows = [list(names) if side_by_side else _rows_of(track, names) for track in tracks]
    heights = [len(track_rows) * ROW + HEAD for track_rows in rows]
    height = (max(heights) if side_by_side else sum(heights)) + 0.4
    with plot_settings():
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(f"{board.title}: score at each capacity K of the buffer", x=0.01, ha="left", fontsize=9)
        shape = (1, len(tracks)) if side_by_side else (len(tracks), 1)
        ratios = {} if side_by_side else {"height_ratios": heights}
        axes = figure.subplots(*shape, squeeze=False, gridspec_kw=ratios).flat
        for i, (ax, track, track_rows) in enumerate(zip(axes, tracks, rows, strict=True)):
            _draw_track(ax, track, track_rows)
            if i and side_by_side:
                ax.set_yticklabels([])
        ks = sorted({k for track in tracks for k in track.ks})
        dots = [
            Line2D([], [], marker="o", linestyle="", markersize=4, color=_shade(ks, k), label=f"K = {k}") for k in ks
        ]
        options: dict[str, Any] = {"ncols": len(ks), "handletextpad": 0.1, "columnspacing": 1.0, "frameon": False}
        options["loc"] = "outside upper right" if side_by_side else "outside lower right"
        figure.legend(handles=dots, **options)
    return figure


def _rows_of(track: Track, names: Sequence[str]) -> list[str]:
    on_track = {row.name for row in track.ranking}
    return [name for name in names if name in on_track]


def _draw_track(ax: Axes, track: Track, names: Sequence[str]) -> None:
    rows = {row.name: row for row in track.ranking}
    for at, name in enumerate(names):
        if name in rows:
            _draw_row(ax, at, rows[name], track.ks)
    baseline = next((row for row in track.ranking if row.label == track.baseline), None)
    if baseline is not None and (score := baseline.capacities[track.ks[-1]].score) is not None:
        ax.axvline(score.value, **{**REFERENCE_LINE, "linestyle": "--"})
    row_axis(ax, [display_label(rows[name].label if name in rows else name) for name in names])
    ax.grid(axis="y", visible=True, linewidth=0.4)
    for text, name in zip(ax.get_yticklabels(), names, strict=True):
        if name in rows and rows[name].kind == "control":
            text.set(style="italic", color=CONTROL)
        if name in rows and rows[name].label == track.baseline:
            text.set(fontweight="bold", color=INK)
    ax.set_title(track.title, loc="left", color=FAINT, fontsize=8)


def _draw_row(ax: Axes, at: int, row: LeaderboardRow, ks: Sequence[int]) -> None:
    scores = {k: row.capacities[k].score for k in ks if k in row.capacities}
    values = {k: score.value for k, score in scores.items() if score is not None}
    ax.plot([min(values.values()), max(values.values())], [at, at], color="#D5DCE5", linewidth=1.0, zorder=1)
    last = scores.get(ks[-1])
    if last is not None and last.low is not None and last.high is not None:
        ax.plot([last.low, last.high], [at, at], color=_shade(ks, ks[-1]), linewidth=2.2, alpha=0.45, zorder=2)
    for k, value in values.items():
        ax.plot(value, at, marker="o", markersize=3.8, color=_shade(ks, k), zorder=3)


def _shade(ks: Sequence[int], k: int) -> str:
    return SHADES[-1] if k == ks[-1] else SHADES[min(ks.index(k), len(SHADES) - 2)]
