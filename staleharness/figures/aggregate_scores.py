"""Aggregates of the final scores with their intervals, in rows and against the capacity of the policy buffer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..statistics.results import Results
from ..statistics.scores import untrained_score
from ..statistics.table import Table, distinct_aggregates
from .captions import axis, bars, scale, size
from .palette import Style, looks_of
from .plot_layout import INK, PAGE, gid, label_edges, names_at_ends, panels, short_label
from .plot_marks import UNTRAINED_NOTE, End, dots, highest_first, level_line, points_against_capacity, row_axis
from .registry import FIGURES, Section

NAME = 0.16  # inches of a name at the end of a line
NAMES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap ↓"}


@FIGURES.register("aggregate_scores", Section(40, "Aggregate scores", "Line: the estimate. Bar: its interval."))
def aggregate_scores(results: Results, table: Table, width: float = PAGE) -> Figure:
    """IQM, median, mean and optimality gap with intervals: one line per algorithm, grouped by capacity. For one
    environment, the IQM alone: median and mean are the same number there, and the gap is its complement."""
    looks = looks_of(table)
    place, lines = _lines(table, looks, width)
    owner = {at: label for (label, _), at in place.items()}
    subtitle = f"{size(table)}, {bars(table)}; {scale(table)}"
    several_tasks = any(row["n_tasks"] > 1 for row in table.rows)
    names = [name for name in distinct_aggregates(table) if several_tasks or name == "iqm"]
    subtitle += "; of the gap (↓), less is better" if "optimality_gap" in names else ""
    height, columns = 0.5 + 0.155 * len(lines), min(len(names), 4 if width > 5 else 2)
    with panels("Aggregate scores", subtitle, [0] * len(names), table, width, height, columns) as (figure, axes):
        for ax, name in zip(axes, names, strict=True):
            for r in table.rows:
                look, at = looks[r["algorithm"]], place[r["algorithm"], r["capacity"]]
                if r[f"{name}_low"] is not None:
                    low, span = r[f"{name}_low"], r[f"{name}_high"] - r[f"{name}_low"]
                    ax.barh(at, span, left=low, height=0.66, color=look.colour, alpha=0.55, gid=gid(look))
                elif "dots" in r:
                    dots(ax, at, r["dots"][name], look, across=True)
                if r[name] is not None:
                    ax.plot([r[name]] * 2, [at - 0.42, at + 0.42], color=INK, linewidth=1.4, gid=gid(look))
            ax.set_title(NAMES[name], loc="left")
            row_axis(ax, lines)
            ax.xaxis.set_major_locator(MaxNLocator(4 if width > 5 else 2))
            _set_span(ax, table, names)
            for at, text in enumerate(ax.get_yticklabels()):
                if (label := owner.get(at)) is None:
                    text.set_fontweight("bold")
                else:
                    text.set_gid(gid(looks[label]))
        label_edges(axes, axis(table), "")
    return figure


def _set_span(ax: Axes, table: Table, names: Sequence[str]) -> None:
    """Give the panels of these aggregates the same span, so that they can be compared, with a margin at its ends."""
    keys = [f"{n}{end}" for n in names for end in ("", "_low", "_high")]
    values = [row[key] for row in table.rows for key in keys if row[key] is not None]
    values += [x for row in table.rows for n in names for x in row.get("dots", {}).get(n, ())]
    if values:
        margin = 0.04 * (max(values) - min(values)) + 1e-9
        ax.set_xlim(min(values) - margin, max(values) + margin)


def _lines(table: Table, looks: Mapping[str, Style], width: float) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Place of each (algorithm, capacity) among the lines of a chart with a heading per capacity, and the lines: the
    highest IQM first, values of an option in their order."""
    place: dict[tuple[str, int], int] = {}
    lines: list[str] = []
    for k in table.settings["capacities"]:
        lines.append(f"K = {k}")
        rows = {row["algorithm"]: row["iqm"] for row in table.rows if row["capacity"] == k}
        looks_at_k = {label: look for label, look in looks.items() if label in rows}
        scores = {label: x for label, x in rows.items() if x is not None}
        for label, look in (looks_at_k if table.settings.get("values") else highest_first(looks_at_k, scores)).items():
            place[label, k] = len(lines)
            lines.append(short_label(look.name or label, width))
    return place, lines


def capacity_panel(ax: Axes, results: Results, table: Table, *, delay: bool = False) -> list[End]:
    """Draw the single panel of `score_against_capacity`. Returns the ends of its lines."""
    ends = points_against_capacity(ax, looks_of(table), table.rows, "iqm", table.settings["capacities"])
    if delay:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k - 1:g}"))
    level_line(ax, untrained_score(results.grid, table))
    x = "delay in phases (log of delay + 1)" if delay else "buffer capacity K (1 = on-policy)"
    label_edges([ax], x, f"IQM of {axis(table)}")
    return ends


@FIGURES.register(
    "score_against_capacity",
    Section(
        30, "Score against buffer capacity", "A method whose line stays level loses nothing as the data get older."
    ),
    panel=capacity_panel,
)
def score_against_capacity(results: Results, table: Table, width: float = PAGE, *, delay: bool = False) -> Figure:
    """Normalised IQM with its interval over the buffer capacity K (logarithmic): one line per algorithm.

    `delay`: the axis is the delay of the data in phases, K − 1, for runs whose lag is `oldest`.
    """
    title, height = f"Score against {'delay' if delay else 'buffer capacity'}", max(2.6, NAME * len(looks_of(table)))
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}"
    subtitle += UNTRAINED_NOTE if math.isfinite(untrained_score(results.grid, table)) else ""
    with panels(title, subtitle, [0], table, width, height) as (figure, (ax,)):
        names_at_ends(ax, capacity_panel(ax, results, table, delay=delay), looks_of(table), height)
    return figure
