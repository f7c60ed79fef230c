"""Share of its score without lag that each method retains: the headline of a report."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..statistics.results import Results
from ..statistics.retained_share import retained_shares
from ..statistics.scores import AUTO, resolve_auto
from ..statistics.table import Table
from .captions import looks_of, size
from .marks import REFERENCE_LINE, highest_first, named_rows
from .plot_layout import PAGE, columns_for, label_edges, panels, percent_axis
from .registry import FIGURES, Section

TOP = 2.0  # an axis of shares ends here at most


def _fits(results: Results) -> bool:
    grid = results.grid
    if 1 not in grid.capacities or len(grid.capacities) < 2:
        return False
    score, normalise = resolve_auto(results, AUTO, AUTO)
    return bool(retained_shares(grid, score, normalise == "raw"))


@FIGURES.register(
    "retained_shares",
    Section(
        5,
        "Share of the score without lag that is retained",
        "Line: the score at K over that at K = 1, each above a random policy's (an accuracy: above 0). Bar: its "
        "interval, Student's, cut at the edge.",
        _fits,
    ),
)
def retained_shares_by_method(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Retained share of each method, best first, with Student's interval: a panel per K beyond 1."""
    looks = looks_of(table)
    ks = sorted({row["capacity"] for row in table.rows if row["retained"] is not None})
    rows = {
        k: {
            row["algorithm"]: (row["retained"], row["retained_low"], row["retained_high"])
            for row in table.rows
            if row["capacity"] == k and row["retained"] is not None
        }
        for k in ks
    }
    every = [end for of_k in rows.values() for values in of_k.values() for end in values if end is not None]
    low, high = max(-0.5, min(0.0, *every)), min(TOP, max(1.05, *every))
    height = 0.5 + 0.17 * max(map(len, rows.values()))
    subtitle = f"{size(table)}; bars: {table.settings['level']:.0%} Student's interval; dotted: as without lag"
    columns = columns_for(width, min(3, len(ks)))
    with panels("Share of the score that is retained", subtitle, ks, table, width, height, columns) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            mine = {label: look for label, look in looks.items() if label in rows[k]}
            order = highest_first(mine, {label: values[0] for label, values in rows[k].items()})
            ax.axvline(1.0, **REFERENCE_LINE)
            named_rows(ax, order, rows[k], width)
            ax.set_title(f"K = {k}", loc="left")
            ax.set_xlim(low, high)
            percent_axis(ax, across=True)
        label_edges(axes, "share retained", "")
    return figure
