"""Histogram of the lags of generated data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.results import Results
from ..statistics.row_diagnostics import LagCounts, lags_of, mean_lag
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .plot_layout import INK, PAGE, label_edges, panels, percent_axis
from .registry import FIGURES, Section, single_choice

AXES = "lag in phases", "share of decisions"


def lag_panel(ax: Axes, results: Results, table: Table, *, k: int | None = None) -> None:
    """Draw the panel of a capacity; `k` may be None if the results have one."""
    _lag_bars(ax, results, single_choice("k", k, results.grid.capacities))
    label_edges([ax], *AXES)


def _lag_bars(ax: Axes, results: Results, k: int) -> None:
    """Draw the share of decisions at each lag, outlined as trained on where that differs."""
    runs = [r for c, rs in results.grid.cells.items() if c.capacity == k for r in rs]
    counts = Counter[int]()
    for run in runs:
        counts.update({int(lag): int(n) for lag, n in run.record["lag_histogram"].items()})
    unequal = _unequal_lags(runs)
    total = unequal.get("realised", counts)
    count, mean = max(1, sum(total.values())), mean_lag(total)
    ax.bar(list(total), [n / count for n in total.values()], width=0.8, color="#7A8FA6")
    ax.axvline(mean, color="#B3261E", linewidth=1)
    title = f"K = {k}, mean lag {mean:.2f}"
    if unequal:
        trained = unequal["trained"]
        shares = [n / sum(trained.values()) for n in trained.values()]
        ax.bar(list(trained), shares, width=0.8, fill=False, edgecolor=INK, linewidth=1.0)
        ax.axvline(mean_lag(trained), color=INK, linewidth=1, linestyle=(0, (3, 2)))
        title += f", trained {mean_lag(trained):.2f}"
    ax.set_title(title, loc="left")
    ax.set_xlim(-0.6, max(*total, 3) + 0.6)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    percent_axis(ax)
    ax.grid(axis="x", visible=False)


def _unequal_lags(runs: Sequence[StoredRun]) -> dict[str, LagCounts]:
    """Decisions by lag, `realised` and `trained`; empty if the two are equal."""
    lags = {kind: lags_of(runs, kind) for kind in ("realised", "trained")}
    return lags if lags["realised"] != lags["trained"] and lags["trained"] else {}


@FIGURES.register(
    "lag_histogram",
    Section(50, "Lag histogram", "Early phases have few versions to draw from, so small lags are more frequent there."),
    panel=lag_panel,
)
def lag_histogram(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Realised lag of the data: share of all decisions at each lag, one panel per capacity."""
    ks, rows = results.grid.capacities, [r for r in table.rows if r["lag_mean"] is not None]
    lags = ", ".join(sorted({str(r.record["spec"].get("lag")) for r in results}))
    means = [[r["lag_mean"] for r in rows if r["capacity"] == k] for k in ks]
    spread = max((max(m) - min(m) for m in means if m), default=0.0)
    subtitle = (
        "realised lag of every decision, pooled over environments, seeds and algorithms (whose means differ "
        f"by {spread:.2f} at most); red: mean; lag model: {lags}"
    )
    if any(_unequal_lags([r for r in results if int(r.spec["capacity"]) == k]) for k in ks):
        subtitle += "; outlined, dashed mean: those that were trained on"
    with panels("Lag histogram", subtitle, ks, table, width, 1.75) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            _lag_bars(ax, results, k)
        label_edges(axes, *AXES)
    return figure
