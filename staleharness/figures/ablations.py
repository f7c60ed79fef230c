"""One option of a method or of the run, varied: final score against it."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.labels import display_label, option_values, without_option
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import PAGE, columns_for, gid, label_edges, panels
from .captions import bars, iqm_axis, scale, size
from .marks import dots
from .palette import styles
from .registry import FIGURES


@FIGURES.register("score_against_option")
def score_against_option(results: Results, table: Table, width: float = PAGE, *, option: str, name: str = "") -> Figure:
    """Normalised IQM with its interval against an option's values: one panel per capacity, a line per method."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = sorted(set(values.values()), key=lambda v: (isinstance(v, str), v))
    method_of = {label: without_option(label, option) for label in values}
    methods = sorted(set(method_of.values()))
    names = table.settings.get("names", {})
    looks = {m: replace(look, name=display_label(m, names)) for m, look in styles(methods).items()}
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}; values evenly spaced"
    columns = columns_for(width, min(4, len(ks)))
    with panels(
        f"Score against {name or option}",
        subtitle,
        [0] * len(ks),
        table=table,
        columns=columns,
        height=2.0,
        width=width,
    ) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            for i, method in enumerate(methods):
                look, shift = looks[method], 0.06 * (i - (len(methods) - 1) / 2)
                rows = [
                    (order.index(values[r["algorithm"]]), r)
                    for r in table.rows
                    if r["capacity"] == k
                    and r["iqm"] is not None
                    and r["algorithm"] in values
                    and method_of[r["algorithm"]] == method
                ]
                rows.sort(key=lambda row: row[0])
                for x, r in rows:
                    if "dots" in r:
                        dots(ax, x + shift, r["dots"]["iqm"], look)
                    elif r["iqm_low"] is not None:
                        ends = [r["iqm_low"], r["iqm_high"]]
                        ax.plot([x + shift] * 2, ends, color=look.colour, linewidth=2.6, alpha=0.35, gid=gid(look))
                ax.plot(
                    [x for x, _ in rows],
                    [r["iqm"] for _, r in rows],
                    color=look.colour,
                    marker=look.marker,
                    markersize=5,
                    markeredgecolor="white",
                    markeredgewidth=0.5,
                    gid=gid(look),
                    label=look.name,
                )
            ax.set_xticks(range(len(order)), labels=[f"{v:g}" if isinstance(v, float) else str(v) for v in order])
            ax.set_xlim(-0.4, len(order) - 0.6)
            ax.set_title(f"K = {k}", loc="left")
            ax.yaxis.set_major_locator(MaxNLocator(5))
        if len(methods) > 1:
            axes[0].legend(frameon=False)
        label_edges(axes, columns, name or option, iqm_axis(table))
    return figure
