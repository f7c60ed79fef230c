"""The score against the capacity of the policy buffer: how much staleness an algorithm takes."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import PAGE, label_edges, names_at_ends, panels
from .captions import axis, bars, looks_of, scale, size
from .marks import UNTRAINED, End, level, points_against_capacity, untrained_score
from .registry import FIGURES, Section


def capacity_panel(ax: Axes, results: Results, table: Table, *, delay: bool = False) -> list[End]:
    """The one panel of `score_against_capacity`. Returns where the lines end."""
    ends = points_against_capacity(ax, looks_of(table), table.rows, "iqm", table.settings["capacities"])
    if delay:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k - 1:g}"))
    level(ax, untrained_score(results, table))
    x = "delay in phases (0 = on-policy)" if delay else "buffer capacity K (1 = on-policy)"
    label_edges([ax], 1, x, f"IQM of {axis(table)}")
    return ends


@FIGURES.register(
    "score_against_capacity",
    Section(30, "Score against buffer capacity", "The more level a line, the more staleness it takes."),
    panel=capacity_panel,
)
def score_against_capacity(results: Results, table: Table, width: float = PAGE, *, delay: bool = False) -> Figure:
    """Normalised IQM with its interval over the buffer capacity K (logarithmic): one line per algorithm.

    `delay`: the axis says by how many phases data are delayed, K − 1, of runs whose lag is `oldest`.
    """
    title, height = f"Score against {'delay' if delay else 'buffer capacity'}", 2.6
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}"
    subtitle += UNTRAINED if math.isfinite(untrained_score(results, table)) else ""
    with panels(title, subtitle, [0], table=table, columns=1, height=height, width=width) as (figure, (ax,)):
        names_at_ends(ax, capacity_panel(ax, results, table, delay=delay), looks_of(table), height)
    return figure
