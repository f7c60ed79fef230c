"""Score over backward and forward lag: how old the data are, and how far the learner moves while it trains on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..base.text import number
from ..statistics.options import without_option
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .ablations import heat
from .canvas import INK, PAGE, columns_for, label_edges, panels, shown
from .captions import scale
from .registry import FIGURES, Section

Rows = Mapping[tuple[int, int], Mapping[str, Any]]  # (K, gradient steps of a phase) -> row of the table


def forward_steps(run: StoredRun) -> int:
    """N, gradient steps of a phase."""
    return int(run.spec.get("epochs", 1)) * int(run.spec.get("minibatches", 1))


def backward_lag(run: StoredRun) -> float:
    """Mean lag of the data in phases, once the warm start is over."""
    lags = run.column("lag_mean")
    return float("nan") if lags is None else float(np.nanmean(lags[int(run.spec.get("warm_phases", 0)) :]))


def _method(label: str) -> str:
    return without_option(without_option(label, "epochs"), "minibatches")


def _plane(results: Results) -> bool:
    """Whether some method has several capacities and several N."""
    found = {(_method(r.label), int(r.spec["capacity"]), forward_steps(r)) for r in results}
    return any(
        len({k for m, k, _ in found if m == method}) > 1 and len({n for m, _, n in found if m == method}) > 1
        for method in {m for m, _, _ in found}
    )


@FIGURES.register(
    "backward_forward",
    Section(
        35,
        "Backward and forward lag",
        "From left to right the data are older when a phase begins; from bottom to top the learner moves further from "
        "there before it sees new ones.",
        _plane,
    ),
)
def backward_forward(results: Results, table: Table, width: float = PAGE) -> Figure:
    """IQM over mean backward lag and gradient steps a phase, a map per method: score, interval and n in each cell."""
    steps = {run.label: forward_steps(run) for run in results}
    methods = sorted({_method(label) for label in steps})
    ks, ns = table.settings["capacities"], sorted(set(steps.values()))
    lags = {
        k: float(np.nanmean([backward_lag(r) for r in results if int(r.spec["capacity"]) == k])) for k in ks
    }
    warm = sorted({int(run.spec.get("warm_phases", 0)) for run in results})
    subtitle = f"IQM with its {table.settings['level']:.0%} stratified bootstrap interval; {scale(table)}"
    if warm != [0]:
        subtitle += (
            f"; all cells go on from the same policy, after {' or '.join(map(str, warm))} on-policy phases"
        )
    columns = columns_for(width, min(2, len(methods)))
    height = 0.75 + 0.55 * len(ns)
    with panels(
        "Score over backward and forward lag", subtitle, methods, table=table, columns=columns, height=height,
        width=width,
    ) as (figure, axes):  # fmt: skip
        for ax, method in zip(axes, methods, strict=True):
            rows = {
                (r["capacity"], steps[r["algorithm"]]): r for r in table.rows
                if r["iqm"] is not None and _method(r["algorithm"]) == method
            }  # fmt: skip
            _map(ax, rows, ks, ns, width / columns)
            ax.set_xticks(range(len(ks)), labels=[f"{number(lags[k], 1)}\nK = {k}" for k in ks])
            ax.set_yticks(range(len(ns)), labels=[str(n) for n in ns])
            ax.set_title(shown(method), loc="left")
        label_edges(axes, columns, "mean backward lag in phases", "forward lag: gradient steps a phase")
    return figure


def _map(ax: Axes, rows: Rows, ks: list[int], ns: list[int], width: float) -> None:
    cells = np.array([[rows[k, n]["iqm"] if (k, n) in rows else np.nan for k in ks] for n in ns])
    low, high = min(0.0, float(np.nanmin(cells))), max(1.0, float(np.nanmax(cells)))
    shades = (cells - low) / (high - low)
    heat(ax, shades)
    small = min(7.0, 6.6 * width / len(ks))  # points: an interval is as wide as a cell at most
    for (k, n), row in rows.items():
        x, y = ks.index(k), ns.index(n)
        dark = shades[y, x] > 0.6
        ends = "–" if row["iqm_low"] is None else f"{number(row['iqm_low'])}, {number(row['iqm_high'])}"
        colour = "white" if dark else INK
        ax.text(x, y + 0.2, number(row["iqm"]), ha="center", va="center", fontsize=small + 1.5, color=colour)
        ax.text(
            x,
            y - 0.2,
            f"[{ends}]\nn = {row['n_runs']}",
            ha="center",
            va="center",
            fontsize=small,
            color=colour,
        )
