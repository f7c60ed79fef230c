"""Forward lag of a language task: N minibatches are trained on one after the other in each generation round."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..statistics.scores import axis, metrics
from ..statistics.table import Table
from ..store.cells import grid
from ..store.store import StoredRun
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, steps_axis
from .captions import seeds
from .over_training import binned
from .palette import styles


def without_forward(label: str) -> str:
    """A label without the ` N=4` at its end."""
    return label.partition(" N=")[0]


def _forward(run: StoredRun) -> int:
    """N, by the setting that its kind of task calls so."""
    return int(run.spec[axis(run, "N") or "minibatches"])


def metric_by_forward(
    runs: Sequence[StoredRun],
    table: Table,
    width: float = PAGE,
    *,
    metric: str,
    name: str,
    share: bool = False,
) -> Figure:
    """A column of the metrics over training: one panel per N, one line per method, mean over runs."""
    looks = styles({without_forward(str(r.record["label"])) for r in runs})
    ns = sorted({_forward(r) for r in runs})
    over = f"mean over environments and seeds ({seeds(grid(runs))}), no interval"
    subtitle = f"{over}; N = minibatches per generation round"
    columns = columns_for(width, min(4, len(ns)))
    title = f"{name[0].upper()}{name[1:]} by N"
    with panels(title, subtitle, [0] * len(ns), table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for ax, n in zip(axes, ns, strict=True):
            for label, look in looks.items():
                mine = [
                    metrics(r) for r in runs
                    if _forward(r) == n and without_forward(str(r.record["label"])) == label
                ]  # fmt: skip
                x, y = binned(mine, metric)
                ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
            ax.set_title(f"N = {n}", loc="left")
            if share:
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            steps_axis(ax)
        label_edges(axes, columns, table.settings["unit"], name)
        legend(figure, looks)
    return figure
