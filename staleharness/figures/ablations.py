"""One option of a method or of the run, varied: final score against it, and its map over the capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..statistics.display import display
from ..statistics.options import option_values, without_option
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import INK, PAGE, columns_for, gid, label_edges, panels, shown
from .captions import bars, iqm_axis, scale, size
from .marks import dots
from .palette import styles
from .registry import FIGURES

HEAT = LinearSegmentedColormap.from_list(
    "heat", ["#F7F7F2", "#9CC3DC", "#1B5E8C"]
)  # light to dark: also in grey


def heat(ax: Axes, cells: NDArray[np.float64]) -> None:
    """Shares [rows, columns] in 0..1 as coloured cells, centred on whole numbers; NaN stays blank. Drawn as
    rectangles: a browser blurs the few pixels of an image."""
    rows, columns = cells.shape
    x, y = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    ax.pcolormesh(
        x, y, np.ma.masked_invalid(cells), cmap=HEAT, vmin=0, vmax=1, edgecolor="white", linewidth=0.5
    )
    ax.grid(visible=False)


@FIGURES.register("score_against_option")
def score_against_option(
    results: Results, table: Table, width: float = PAGE, *, option: str, name: str = ""
) -> Figure:
    """Normalised IQM with its interval against an option's values: one panel per capacity, a line per method."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = sorted(set(values.values()), key=lambda v: (isinstance(v, str), v))
    method_of = {label: without_option(label, option) for label in values}
    methods = sorted(set(method_of.values()))
    names = table.settings.get("names", {})
    looks = {m: replace(look, name=display(m, names)) for m, look in styles(methods).items()}
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
                    (order.index(values[r["algorithm"]]), r) for r in table.rows
                    if r["capacity"] == k and r["iqm"] is not None and r["algorithm"] in values
                    and method_of[r["algorithm"]] == method
                ]  # fmt: skip
                rows.sort(key=lambda row: row[0])
                for x, r in rows:
                    if "dots" in r:
                        dots(ax, x + shift, r["dots"]["iqm"], look)
                    elif r["iqm_low"] is not None:
                        ends = [r["iqm_low"], r["iqm_high"]]
                        ax.plot(
                            [x + shift] * 2, ends, color=look.colour, linewidth=2.6, alpha=0.35, gid=gid(look)
                        )
                ax.plot(
                    [x for x, _ in rows], [r["iqm"] for _, r in rows], color=look.colour, marker=look.marker,
                    markersize=5, markeredgecolor="white", markeredgewidth=0.5, gid=gid(look), label=look.name,
                )  # fmt: skip
            ax.set_xticks(
                range(len(order)), labels=[f"{v:g}" if isinstance(v, float) else str(v) for v in order]
            )
            ax.set_xlim(-0.4, len(order) - 0.6)
            ax.set_title(f"K = {k}", loc="left")
            ax.yaxis.set_major_locator(MaxNLocator(5))
        if len(methods) > 1:
            axes[0].legend(frameon=False)
        label_edges(axes, columns, name or option, iqm_axis(table))
    return figure


@FIGURES.register("phase_diagram")
def phase_diagram(
    results: Results, table: Table, width: float = PAGE, *, option: str, name: str = ""
) -> Figure:
    """Normalised IQM over capacity and an option: a map per method, the best value at each capacity framed."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = sorted(set(values.values()))
    method_of = {label: without_option(label, option) for label in values}
    methods = sorted(set(method_of.values()))
    subtitle = (
        f"IQM over {size(table)}; framed: the best value at each K, bold where its whole 95% interval is above the "
        f"next best's estimate; {scale(table)}"
    )
    looks = styles(methods)
    columns = columns_for(width, min(2, len(methods)))
    height = 0.75 + 0.3 * len(order)
    with panels(
        f"Score over K and {name or option}",
        subtitle,
        methods,
        table=table,
        columns=columns,
        height=height,
        width=width,
    ) as (figure, axes):
        for ax, method in zip(axes, methods, strict=True):
            cells = {
                (r["capacity"], values[r["algorithm"]]): r for r in table.rows
                if method_of.get(r["algorithm"]) == method and r["iqm"] is not None
            }  # fmt: skip
            grid_of = np.array(
                [[cells[k, v]["iqm"] if (k, v) in cells else np.nan for k in ks] for v in order]
            )
            heat(ax, grid_of)
            for (k, v), r in cells.items():
                x, y = ks.index(k), order.index(v)
                column = sorted((cells[k, w] for w in order if (k, w) in cells), key=lambda c: -c["iqm"])
                best = r is column[0]
                clear = (
                    best and len(column) > 1 and r["iqm_low"] is not None and r["iqm_low"] > column[1]["iqm"]
                )
                ax.text(
                    x, y, f"{r['iqm']:.2f}", ha="center", va="center", fontsize=7,
                    color="white" if r["iqm"] > 0.6 else INK, fontweight="bold" if clear else "normal",
                )  # fmt: skip
                if best:
                    ax.plot(
                        [x - 0.46, x + 0.46, x + 0.46, x - 0.46, x - 0.46],
                        [y - 0.44, y - 0.44, y + 0.44, y + 0.44, y - 0.44],
                        color=looks[method].colour, linewidth=1.4,
                    )  # fmt: skip
            ax.set_xticks(range(len(ks)), labels=[str(k) for k in ks])
            ax.set_yticks(range(len(order)), labels=[f"{v:g}" for v in order])
            ax.set_title(shown(display(method)), loc="left")
        label_edges(axes, columns, "buffer capacity K", name or option)
    return figure
