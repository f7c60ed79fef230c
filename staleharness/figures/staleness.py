"""How far the data are from the policy that learns from them."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.diagnostics import BINS, EMPTY, STALENESS
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .captions import looks_of, seeds
from .registry import FIGURES, Section

ABOUT = "How far the data are from the policy that learns from them."


@FIGURES.register("staleness", Section(60, "Staleness over training", ABOUT))
def staleness(results: Results, table: Table, width: float = PAGE) -> Figure:
    """TV, ESS and KL of the data and the clipped share over training: a line per algorithm, a panel per
    capacity.
    """
    found, looks = results.grid, looks_of(table)
    ks = found.capacities
    places = [(name, k) for name in STALENESS for k in ks]
    columns = columns_for(width, len(ks) if len(ks) > 1 else 2)
    subtitle = (
        "data against the newest policy at the start of each phase; clipped share as the harness measures "
        f"it; mean over environments and seeds ({seeds(found)}), no interval; at most {BINS} bins"
    )
    title, groups = "Staleness over training", [name for name, _ in places]
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.45, width=width) as (figure, axes):
        for ax, (name, k) in zip(axes, places, strict=True):
            for label, look in looks.items():
                x, y = results.diagnostics.get((label, k), EMPTY).staleness[name]
                ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
            ax.set_title(STALENESS[name] + (f", K = {k}" if len(ks) > 1 else ""), loc="left")
            if name == "clipped":
                percent_axis(ax)
            ax.yaxis.set_major_locator(MaxNLocator(4))
            steps_axis(ax)
        label_edges(axes, columns, table.settings["unit"], "")
        legend(figure, looks)
    return figure
