"""A column of the metrics against the clock."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..statistics.diagnostics import BINS
from ..statistics.results import Results
from ..statistics.scores import Array
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .bins import binned
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels
from .captions import looks_of, machines, seeds
from .registry import FIGURES


@FIGURES.register("metric_over_time")
def metric_over_time(results: Results, table: Table, width: float = PAGE, *, metric: str, name: str) -> Figure:
    """A column of the metrics against wall-clock time without evaluation: one panel per capacity, mean over runs."""
    found, looks, ks = results.grid, looks_of(table), table.settings["capacities"]
    cores = machines(results)
    subtitle = (
        f"mean over environments and seeds ({seeds(found)}) of {name} and of the seconds until then (collecting and "
        f"learning), phase by phase, at most {BINS} bins, no interval; on {cores}"
    )
    columns = columns_for(width, min(4, len(ks)))
    title = f"{name[0].upper()}{name[1:]} over time"
    with panels(title, subtitle, [0] * len(ks), table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for ax, k in zip(axes, ks, strict=True):
            for label, look in looks.items():
                _, x = binned(found.members(label, k), _clock)
                _, y = binned(found.members(label, k), metric)
                if len(x) == len(y):
                    ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
            ax.set_title(f"K = {k}", loc="left")
            ax.set_xlim(left=0)
        label_edges(axes, columns, "seconds", name)
        legend(figure, looks)
    return figure


def _clock(run: StoredRun) -> Array | None:
    """Seconds of collecting and learning until the end of each phase."""
    collect, learn = run.column("seconds/collect"), run.column("seconds/learn")
    return None if collect is None or learn is None else np.cumsum(collect + learn)
