"""Two options of a method or of the run, varied together: final score against one, a panel per value of the other."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.labels import display_label, option_values, without_option
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels
from .captions import bars, iqm_axis, scale, size
from .marks import dots, say_same
from .palette import styles
from .registry import FIGURES


@FIGURES.register("score_against_two_options")
def score_against_two_options(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    option: str,
    across: str,
    name: str = "",
    across_name: str = "",
) -> Figure:
    """IQM with its interval against `option`: a column of panels per value of `across`, a row per capacity, a line per
    method. Raises `UserError` where no run has an option, or runs of one label differ in it.
    """
    along, beside = option_values(results, option), option_values(results, across)
    order, columns_of = sorted(set(along.values())), sorted(set(beside.values()))
    method_of = {label: without_option(without_option(label, option), across) for label in along}
    methods = sorted(set(method_of.values()))
    names = table.settings.get("names", {})
    looks = {m: replace(look, name=display_label(m, names)) for m, look in styles(methods).items()}
    places = [(k, value) for k in table.settings["capacities"] for value in columns_of]
    columns = columns_for(width, len(columns_of))
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}; values evenly spaced"
    title = f"Score against {name or option}, by {across_name or across} and K"
    with panels(title, subtitle, [0] * len(places), table=table, columns=columns, height=1.55, width=width) as (
        figure,
        axes,
    ):
        for ax, (k, value) in zip(axes, places, strict=True):
            for i, method in enumerate(methods):
                look, shift = looks[method], 0.07 * (i - (len(methods) - 1) / 2)
                points = [
                    (order.index(along[r["algorithm"]]), r)
                    for r in table.rows
                    if r["capacity"] == k
                    and r["iqm"] is not None
                    and method_of.get(r["algorithm"]) == method
                    and beside.get(r["algorithm"]) == value
                ]
                points.sort(key=lambda point: point[0])
                for x, r in points:  # side by side, as they would hide each other; the lines are where they belong
                    if "dots" in r:
                        dots(ax, x + shift, r["dots"]["iqm"], look)
                    elif r["iqm_low"] is not None:
                        ends = [r["iqm_low"], r["iqm_high"]]
                        ax.plot([x + shift] * 2, ends, color=look.colour, linewidth=2.2, alpha=0.35, gid=gid(look))
                ax.plot(
                    [x for x, _ in points],
                    [r["iqm"] for _, r in points],
                    color=look.colour,
                    dashes=look.dashes,
                    marker=look.marker,
                    markersize=4.5,
                    markeredgecolor="white",
                    markeredgewidth=0.5,
                    gid=gid(look),
                )
            say_same(ax, looks)
            ax.set_xticks(range(len(order)), labels=[f"{v:g}" for v in order])
            ax.set_xlim(-0.4, len(order) - 0.6)
            ax.set_title(f"{across_name or across} = {value:g}, K = {k}", loc="left")
            ax.yaxis.set_major_locator(MaxNLocator(5))
        label_edges(axes, columns, name or option, iqm_axis(table))
        legend(figure, looks)
    return figure
