"""Forward lag of a language task: N minibatches are trained on one after the other in each generation round."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from ..statistics.labels import display_label
from ..statistics.results import Results
from ..statistics.scores import axis
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .bins import binned, draw_spread
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .captions import seeds, spread
from .marks import say_same
from .palette import styles
from .registry import FIGURES


def without_forward(label: str) -> str:
    """A label without the ` N=4` at its end."""
    return label.partition(" N=")[0]


def _forward(run: StoredRun) -> int:
    """N, by the setting that its kind of task calls so."""
    return int(run.spec[axis(run, "N") or "minibatches"])


@FIGURES.register("metric_by_forward")
def metric_by_forward(
    results: Results, table: Table, width: float = PAGE, *, metric: str, name: str, share: bool = False
) -> Figure:
    """A column of the metrics over training: one panel per N, one line per method, mean over runs."""
    names = table.settings.get("names", {})
    plain = styles({without_forward(r.label) for r in results})
    looks = {label: replace(look, name=display_label(label, names)) for label, look in plain.items()}
    fewest = table.settings.get("fewest", 0)
    ns = sorted({_forward(r) for r in results})
    over = f"mean over environments and seeds ({seeds(results.grid)}), {spread(table)}"
    subtitle = f"{over}; N = minibatches per generation round"
    columns = columns_for(width, min(4, len(ns)))
    title = f"{name[0].upper()}{name[1:]} by N"
    with panels(title, subtitle, [0] * len(ns), table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for ax, n in zip(axes, ns, strict=True):
            for label, look in looks.items():
                mine = [r for r in results if _forward(r) == n and without_forward(r.label) == label]
                draw_spread(ax, mine, metric, look, fewest)
                x, y = binned(mine, metric)
                ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
            ax.set_title(f"N = {n}", loc="left")
            say_same(ax, looks)
            if share:
                percent_axis(ax)
            steps_axis(ax)
        label_edges(axes, columns, table.settings["unit"], name)
        legend(figure, looks)
    return figure
