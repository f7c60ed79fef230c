"""Score at each K of a leaderboard's methods: a panel per track, a row per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..statistics.leaderboard_scores import Leaderboard, LeaderboardRow, Track
from .palette import Style, styles, with_names
from .plot_layout import FAINT, INK, PAGE, gid, label_edges, plot_settings
from .plot_marks import REFERENCE_LINE, row_axis

ROW, HEAD = 0.165, 0.55  # inches of a row, and of a panel's title and axis
SHADES = ("#A9BBD0", "#5E84AE", "#123A63")  # of the capacities, the last the darkest
CONTROL = "#9A5B00"  # names of width controls
SPREAD = 0.5  # of a row's height, between the dots of the smallest and the largest K


def track_looks(tracks: Sequence[Track]) -> dict[str, Style]:
    """Style of each method on any of the tracks, by name."""
    rows = [row for track in tracks for row in track.rows]
    titles = {row.name: row.label for row in rows if row.kind == "control"}
    return with_names(styles(row.name for row in rows), titles)


def draw_scores(board: Leaderboard, width: float = PAGE, names: Sequence[str] | None = None) -> Figure:
    """Draw the score of each method that learned at each K, with its interval; dashed: the baseline at the largest K.

    Panels are below each other, each with the rows of its track from the best to the worst. names: the rows to draw, in
    that order; a wide figure then has its panels side by side, with the names at the left of all.
    """
    looks = track_looks(board.tracks)
    tracks = [track for track in board.tracks if track.ranking]
    if not tracks:
        return Figure(figsize=(width, HEAD))
    side_by_side = names is not None and width >= PAGE
    rows = [list(names or ()) if side_by_side else _names_on(track, names) for track in tracks]
    heights = [len(track_rows) * ROW + HEAD for track_rows in rows]
    height = (max(heights) if side_by_side else sum(heights)) + 0.4
    with plot_settings():
        figure = Figure(figsize=(width, height), layout="constrained")
        title = f"{board.title}: score at each capacity K of the buffer"
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, gid="figure-title")
        shape = (1, len(tracks)) if side_by_side else (len(tracks), 1)
        ratios = {} if side_by_side else {"height_ratios": heights}
        axes = list(figure.subplots(*shape, squeeze=False, gridspec_kw=ratios).flat)
        for i, (ax, track, track_rows) in enumerate(zip(axes, tracks, rows, strict=True)):
            ax.set_gid(f"panel-{i}")
            _draw_track(ax, track, track_rows, looks)
            if i and side_by_side:
                ax.set_yticklabels([])
        label_edges(axes, "score", "")
        ks = sorted({k for track in tracks for k in track.ks})
        dots = [
            Line2D([], [], marker="o", linestyle="", markersize=4, color=_shade(ks, k), label=f"K = {k}") for k in ks
        ]
        options: dict[str, Any] = {"ncols": len(ks), "handletextpad": 0.1, "columnspacing": 1.0}
        options |= {"frameon": False, "loc": "outside upper right" if side_by_side else "outside lower right"}
        figure.legend(handles=dots, **options)
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
        figure.set_layout_engine(None)
    return figure


def _names_on(track: Track, names: Sequence[str] | None) -> list[str]:
    on_track = [row.name for row in track.ranking]
    return on_track if names is None else [name for name in names if name in on_track]


def _draw_track(ax: Axes, track: Track, names: Sequence[str], looks: Mapping[str, Style]) -> None:
    rows = {row.name: row for row in track.ranking}
    for at, name in enumerate(names):
        if name in rows:
            _draw_row(ax, at, rows[name], track.ks, looks[name])
    baseline = next((row for row in track.ranking if row.label == track.baseline), None)
    if baseline is not None and (score := baseline.capacities[track.ks[-1]].score) is not None:
        ax.axvline(score.value, **{**REFERENCE_LINE, "linestyle": "--"})
    row_axis(ax, [looks[name].name for name in names])
    ax.grid(axis="y", visible=True, linewidth=0.4)
    for text, name in zip(ax.get_yticklabels(), names, strict=True):
        text.set_gid(gid(looks[name]))
        if name in rows and rows[name].kind == "control":
            text.set(style="italic", color=CONTROL)
        if name in rows and rows[name].label == track.baseline:
            text.set(fontweight="bold", color=INK)
    ax.set_title(track.title, loc="left", color=FAINT, fontsize=8)


def _draw_row(ax: Axes, at: int, row: LeaderboardRow, ks: Sequence[int], look: Style) -> None:
    """Draw the scores of a row, the smallest K a little above the largest so that intervals do not hide each other."""
    for i, k in enumerate(ks):
        score = row.capacities[k].score if k in row.capacities else None
        if score is None:
            continue
        y = at + SPREAD * (i / max(1, len(ks) - 1) - 0.5)
        if score.low is not None and score.high is not None:
            ax.plot([score.low, score.high], [y, y], color=_shade(ks, k), linewidth=1.6, alpha=0.5, gid=gid(look))
        ax.plot(score.value, y, marker="o", markersize=3.2, color=_shade(ks, k), gid=gid(look))


def _shade(ks: Sequence[int], k: int) -> str:
    return SHADES[-1] if k == ks[-1] else SHADES[min(ks.index(k), len(SHADES) - 2)]
