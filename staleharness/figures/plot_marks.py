"""Marks that several figures share: lines, points and intervals, over the capacity or in rows of names."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..statistics.scores import Array
from .palette import Style
from .plot_layout import FAINT, INK, gid, short_label

UNTRAINED_NOTE = "; dotted: the untrained policy"  # in the second line of a figure that shows its level
REFERENCE_LINE: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "linestyle": (0, (1, 2))}  # a level to compare with
End = tuple[str, float, float]  # of an algorithm's line: label, x, y


def level_line(ax: Axes, height: float) -> None:
    """Draw a dotted line across the panel; nothing if `height` is not a number."""
    if math.isfinite(height):
        ax.axhline(height, **REFERENCE_LINE)


def log_axis(ax: Axes, ticks: Sequence[float] | None = None) -> None:
    """Make x logarithmic, labelled with plain numbers at `ticks`, by default at 1, 2 and 5 times the powers of ten."""
    ax.set_xscale("log", base=10 if ticks is None else 2)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if ticks is None else FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def draw_line(
    ax: Axes, look: Style, x: Sequence[float] | Array, y: Sequence[float] | Array, *, marker: float = 0, **pen: Any
) -> None:
    """Draw a line in the colour and dashes of an algorithm, with its markers of size `marker`, 0 for none."""
    if marker:
        pen = {"marker": look.marker, "markersize": marker, "markeredgecolor": "white", "markeredgewidth": 0.5} | pen
    if "linestyle" not in pen:
        pen["dashes"] = look.dashes
    ax.plot(x, y, color=look.colour, gid=gid(look), **pen)


def draw_interval(
    ax: Axes, look: Style, x: Sequence[float], y: Sequence[float] | Array, thick: float, alpha: float = 0.35
) -> None:
    """Draw a pale bar from one point (x, y) to another."""
    ax.plot(x, y, color=look.colour, linewidth=thick, alpha=alpha, gid=gid(look))


def points_against_capacity(
    ax: Axes, looks: Mapping[str, Style], rows: Sequence[Mapping[str, Any]], name: str, ks: Sequence[int]
) -> list[End]:
    """Draw one line per algorithm over a logarithmic K: `name` of its rows, with the interval where there is one.

    `rows` have {algorithm, capacity, name, name_low, name_high}. Returns the end of each line: (algorithm, x, y).
    """
    ends = []
    gap = min((math.log2(b / a) for a, b in pairwise(sorted(ks))), default=1.0)
    step = min(0.03, 0.6 * gap / len(looks)) if looks else 0.0  # in doublings
    for at, (label, look) in enumerate(looks.items()):
        method_rows = [r for r in rows if r["algorithm"] == label and r[name] is not None]
        # Side by side, so that intervals at the same K do not hide each other.
        x = [r["capacity"] * 2 ** (step * (at - (len(looks) - 1) / 2)) for r in method_rows]
        y = [r[name] for r in method_rows]
        for xi, r in zip(x, method_rows, strict=True):
            if r[f"{name}_low"] is not None:
                draw_interval(ax, look, [xi, xi], [r[f"{name}_low"], r[f"{name}_high"]], 2.2)
            elif "dots" in r:
                dots(ax, xi, r["dots"][name], look)
        draw_line(ax, look, x, y, marker=5.5)
        if method_rows:
            ends.append((label, x[-1], y[-1]))
    log_axis(ax, ks)
    margin = step * len(looks) / 2 + (0.2 if len(ks) > 1 else 0.02)  # in doublings
    ax.set_xlim(min(ks) / 2**margin, max(ks) * 2**margin)
    return ends


def highest_first(looks: Mapping[str, Style], values: Mapping[str, float]) -> dict[str, Style]:
    """The algorithms sorted by what is compared; those without a value last."""
    return dict(sorted(looks.items(), key=lambda item: (item[0] not in values, -values.get(item[0], 0.0), item[0])))


def dots(ax: Axes, at: float, values: Sequence[float], look: Style, *, across: bool = False) -> None:
    """Draw the runs of a point that has no interval, above and below it; `across`: left and right of it."""
    x, y = (values, [at] * len(values)) if across else ([at] * len(values), values)
    pen: dict[str, Any] = {"color": look.colour, "markersize": 2.6, "markeredgewidth": 0, "alpha": 0.75}
    ax.plot(x, y, "o", gid=gid(look), **pen)


def name_identical_lines(ax: Axes, looks: Mapping[str, Style]) -> None:
    """Name, in the panel, the algorithms whose lines lie exactly on each other: only one of them can be seen."""
    groups: dict[bytes, list[str]] = {}
    for look in looks.values():
        series = [line for line in ax.lines if line.get_gid() == gid(look) and line.get_linestyle() != "None"]
        mean_lines = [line for line in series if line.get_alpha() is None]  # not its runs or intervals
        longest = max(mean_lines, key=lambda line: len(np.asarray(line.get_ydata())), default=None)
        if longest is not None and len(np.asarray(longest.get_ydata())) > 1:
            heights = np.asarray(longest.get_ydata(), dtype=np.float64)
            groups.setdefault(np.round(heights, 9).tobytes(), []).append(look.name)
    equalities = [" = ".join(names) for names in groups.values() if len(names) > 1]
    if equalities:
        lines = [line for text in equalities for line in textwrap.wrap(text, 26)]
        right, low = _emptiest_corner(ax, 0.72, 0.05 + 0.09 * len(lines))
        place: dict[str, Any] = {"ha": "right" if right else "left", "va": "bottom" if low else "top"}
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.8}
        x, y = 0.98 if right else 0.02, 0.03 if low else 0.97
        note = ax.text(x, y, "\n".join(lines), fontsize=5.5, color=FAINT, bbox=box, transform=ax.transAxes, **place)
        note.set_in_layout(False)


def _emptiest_corner(ax: Axes, width: float, height: float) -> tuple[bool, bool]:
    """Corner (at the right, below) in which a note of this size, in shares of the panel, hides the least of the panel's
    lines; among equal ones the first of upper left, lower left, upper right, lower right."""
    ax.get_ylim()  # settles the limits
    pieces = [np.empty((0, 2))]
    for line in ax.lines:
        data = np.asarray(line.get_xydata(), np.float64)
        data = data[np.isfinite(data).all(axis=1)]
        if len(data) > 1:
            x, y = ax.transAxes.inverted().transform(line.get_transform().transform(data)).T
            at = np.linspace(0, len(data) - 1, 400)
            pieces.append(np.stack([np.interp(at, np.arange(len(data)), z) for z in (x, y)], axis=1))
    x, y = np.concatenate(pieces).T

    def hidden(corner: tuple[bool, bool]) -> int:
        right, low = corner
        return int(np.count_nonzero(((1 - x if right else x) < width) & ((y if low else 1 - y) < height)))

    return min(((right, low) for right in (False, True) for low in (False, True)), key=hidden)


def named_rows(
    ax: Axes, looks: Mapping[str, Style], rows: Mapping[str, tuple[float, float | None, float | None]], width: float
) -> None:
    """Draw a row per algorithm, from top to bottom: the estimate in black on its interval (value, low, high).

    An algorithm without an entry keeps its row, empty. `width` is that of the figure, in inches.
    """
    for at, (label, look) in enumerate(looks.items()):
        if label not in rows:
            continue
        value, low, high = rows[label]
        if low is not None and high is not None:
            ax.barh(at, high - low, left=low, height=0.6, color=look.colour, alpha=0.55, gid=gid(look))
        ax.plot([value] * 2, [at - 0.38, at + 0.38], color=INK, linewidth=1.4, gid=gid(look))
    row_axis(ax, [short_label(s.name or label, width) for label, s in looks.items()])
    for text, look in zip(ax.get_yticklabels(), looks.values(), strict=False):
        text.set_gid(gid(look))


def row_axis(ax: Axes, names: Sequence[str], spine: bool = False) -> None:
    """Turn the y axis into rows with names, from top to bottom."""
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(spine)
    ax.tick_params(axis="y", length=0)
    ax.set_yticks(range(len(names)), labels=names)
