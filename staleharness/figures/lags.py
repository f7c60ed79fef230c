"""How stale the data really were."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.diagnostics import LagCounts, lags_of, mean_lag
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .canvas import INK, PAGE, columns_for, label_edges, panels, percent_axis
from .registry import FIGURES, Section, the_one

AXES = "lag in phases", "share of decisions"


def lag_panel(ax: Axes, results: Results, table: Table, *, k: int | None = None) -> None:
    """The panel of a capacity; `k` can be left out where there is one."""
    _shares(ax, results, the_one("k", k, results.grid.capacities))
    label_edges([ax], 1, *AXES)


def _shares(ax: Axes, results: Results, k: int) -> None:
    runs = [r for c, rs in results.grid.cells.items() if c.capacity == k for r in rs]
    total: dict[int, int] = {}
    for run in runs:
        for lag, decisions in run.record["lag_histogram"].items():
            total[int(lag)] = total.get(int(lag), 0) + int(decisions)
    if apart := _apart(runs):
        total = apart["realised"]
    count = max(1, sum(total.values()))
    mean = sum(lag * n for lag, n in total.items()) / count
    ax.bar(list(total), [n / count for n in total.values()], width=0.8, color="#7A8FA6")
    ax.axvline(mean, color="#B3261E", linewidth=1)
    title = f"K = {k}, mean lag {mean:.2f}"
    if apart:
        taught = apart["trained"]
        shares = [n / max(1, sum(taught.values())) for n in taught.values()]
        ax.bar(list(taught), shares, width=0.8, fill=False, edgecolor=INK, linewidth=1.0)
        ax.axvline(mean_lag(taught), color=INK, linewidth=1, linestyle=(0, (3, 2)))
        title += f", trained {mean_lag(taught):.2f}"
    ax.set_title(title, loc="left")
    ax.set_xlim(-0.6, max(*total, 3) + 0.6)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    percent_axis(ax)
    ax.grid(axis="x", visible=False)


def _apart(runs: Sequence[StoredRun]) -> dict[str, LagCounts]:
    """Decisions by lag, `realised` and `trained`, where not all that were made were trained on alike."""
    found = {kind: lags_of(runs, kind) for kind in ("realised", "trained")}
    return found if found["realised"] != found["trained"] and found["trained"] else {}


@FIGURES.register(
    "lag_histogram",
    Section(50, "Lag histogram", "Early phases have few versions to draw from: young data weigh more."),
    panel=lag_panel,
)
def lag_histogram(results: Results, table: Table, width: float = PAGE) -> Figure:
    """How stale the decisions really were: share of all decisions at each lag, one panel per capacity."""
    ks, rows = results.grid.capacities, [r for r in table.rows if r["lag_mean"] is not None]
    lags = ", ".join(sorted({str(r.record["spec"].get("lag")) for r in results}))
    means = [[r["lag_mean"] for r in rows if r["capacity"] == k] for k in ks]
    apart = max((max(m) - min(m) for m in means if m), default=0.0)
    subtitle = (
        "realised lag of every decision, pooled over environments, seeds and algorithms (whose means differ "
        f"by {apart:.2f} at most); red: mean; lag model: {lags}"
    )
    if any(_apart([r for r in results if int(r.spec["capacity"]) == k]) for k in ks):
        subtitle += "; outlined, dashed mean: those that were trained on"
    columns = columns_for(width, min(4, len(ks)))
    with panels("Lag histogram", subtitle, ks, table=table, columns=columns, height=1.75, width=width) as (
        figure,
        axes,
    ):
        for ax, k in zip(axes, ks, strict=True):
            _shares(ax, results, k)
        label_edges(axes, columns, *AXES)
    return figure
