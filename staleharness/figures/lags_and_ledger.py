"""Lags of the generated data as a histogram, and their ledger: shares trained on, dropped, masked, queued or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..statistics.results import Results
from ..statistics.row_diagnostics import LagCounts, lags_of, ledger_of, mean_lag
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import seeds
from .plot_layout import INK, PAGE, label_edges, panels, percent_axis
from .registry import FIGURES, Section, single_choice

AXES = "lag in phases", "share of decisions"


def lag_panel(ax: Axes, results: Results, table: Table, *, k: int | None = None) -> None:
    """Draw the panel of a capacity; `k` may be None if the results have one."""
    _lag_bars(ax, results, single_choice("k", k, results.grid.capacities))
    label_edges([ax], *AXES)


def _lag_bars(ax: Axes, results: Results, k: int) -> None:
    """Draw the share of decisions at each lag, with an outline of the shares trained on if these differ."""
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


# Okabe and Ito's colours, from dark to light in this order, and black: distinguishable in grey, too.
FATES = {"trained": "#0072B2", "masked": "#009E73", "dropped": "#E69F00", "queued": "#D9D9D9", "lost": "#000000"}


def _has_losses(results: Results) -> bool:
    total = ledger_of(list(results), "decisions")
    return total["generated"] != total["trained"]


@FIGURES.register(
    "ledger",
    Section(
        55,
        "Ledger",
        "Dropped: turned away, or left a buffer unseen. Masked: handed to the learner, and taught nothing. Queued: not "
        "trained on when the run ended. Lost: with a killed actor, or with the actors of a run that was resumed.",
        _has_losses,
    ),
)
def ledger(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Shares of the generated data that were trained on, dropped, masked, still queued or, in a run with real actors,
    lost: a bar of decisions and one of sequences per capacity."""
    ks = results.grid.capacities
    lines = [(k, unit) for k in ks for unit in ("decisions", "sequences")]
    has_losses = ledger_of(list(results), "sequences")["lost"] > 0
    fates = {fate: colour for fate, colour in FATES.items() if fate != "lost" or has_losses}
    lost = " + lost" if has_losses else ""
    subtitle = (
        f"all runs together ({seeds(results.grid)}); generated = trained + dropped + masked + queued{lost}, exactly; a "
        "sequence is a row: what an actor does in a phase, or a completion"
    )
    with panels("Ledger", subtitle, [0], table, width, 0.45 + 0.3 * len(lines)) as (figure, (ax,)):
        for at, (k, unit) in enumerate(lines):
            _bar(ax, at, [r for r in results if int(r.spec["capacity"]) == k], unit, fates)
        names = [f"K = {k}, {unit}" for k, unit in lines]
        ax.set_yticks(range(len(lines)), labels=names)
        ax.set_ylim(len(lines) - 0.5, -0.5)
        ax.set_xlim(0, 1)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        percent_axis(ax, across=True)
        ax.set_xlabel("share of what was generated")
        handles = [Patch(color=colour) for colour in fates.values()]
        columns = 3 if has_losses and width < PAGE else len(fates)  # five do not fit a column's width
        figure.legend(handles, list(fates), loc="outside lower left", ncols=columns, frameon=False, handlelength=1.2)
    return figure


def _bar(ax: Axes, at: int, runs: list[StoredRun], unit: str, fates: Mapping[str, str]) -> None:
    total, left = ledger_of(runs, unit), 0.0
    for fate, colour in fates.items():
        share = total[fate] / max(1, total["generated"])
        ax.barh(at, share, left=left, height=0.62, color=colour)
        if share > 0.12:
            ink = "white" if fate in ("trained", "masked", "lost") else INK
            ax.text(left + share / 2, at, f"{total[fate]:,}", ha="center", va="center", fontsize=7, color=ink)
        left += share
