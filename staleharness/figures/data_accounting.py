"""Lags of the data, the ledger of all that was generated, and the time of training: against the score, and by part of
a phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..statistics.diagnostics import LagCounts, lags_of, ledger_of, mean_lag
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .captions import axis, below, iqm_axis, labels, looks_of, machines, run_facts, seeds, size
from .plot_elements import row_axis
from .plot_layout import FAINT, INK, PAGE, label_edges, panels, percent_axis, short_label
from .registry import FIGURES, SHEETS, Section, single_choice
from .table_markup import Block, Sheet, SheetCell, iqm_cell

AXES = "lag in phases", "share of decisions"


def lag_panel(ax: Axes, results: Results, table: Table, *, k: int | None = None) -> None:
    """Draw the panel of a capacity; `k` may be None if the results have one."""
    _lag_bars(ax, results, single_choice("k", k, results.grid.capacities))
    label_edges([ax], *AXES)


def _lag_bars(ax: Axes, results: Results, k: int) -> None:
    """Draw the share of decisions at each lag, outlined as trained on where that differs."""
    runs = [r for c, rs in results.grid.cells.items() if c.capacity == k for r in rs]
    total: dict[int, int] = Counter()
    for run in runs:
        for lag, decisions in run.record["lag_histogram"].items():
            total[int(lag)] += int(decisions)
    if unequal := _unequal_lags(runs):
        total = unequal["realised"]
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


# Okabe and Ito's colours, from dark to light in this order, and black: also told apart in grey.
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


Cells = Callable[[str, int], SheetCell]  # (method, K) -> a value with its runs or interval


@SHEETS.register("score_and_time")
def score_and_time(results: Results, table: Table) -> Sheet:
    """Final score of each method by K, time of its training, and the share of that time that a proximal policy's own
    pass took, if runs recorded it. Time is collecting and learning of one run, without evaluation: mean and range over
    runs."""
    grid, ks = results.grid, table.settings["capacities"]
    rows = {(r["algorithm"], r["capacity"]): r for r in table.rows if r["iqm"] is not None}
    seconds = {run.id: _seconds_of(run, "collect", "learn") for run in results}
    unit, short = _clock_unit(max(seconds.values(), default=0.0))

    def over_runs(of: Callable[[str], float], digits: int) -> Cells:
        def cell(label: str, k: int) -> SheetCell:
            values = [of(r.id) for r in grid.members(label, k)]
            value_range = f"({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
            return SheetCell(f"{np.mean(values):.{digits}f}" if values else "–", value_range)

        return cell

    def score(label: str, k: int) -> SheetCell:
        row = rows.get((label, k))
        return SheetCell("–") if row is None else iqm_cell(row, digits=3)

    parts = {f"final {axis(table)}": score, f"training time, {short}": over_runs(lambda r: seconds[r] / unit, 2)}
    if all(run.column(SECONDS + "proximal") is not None for run in results):
        proximal = {run.id: _seconds_of(run, "proximal") for run in results}
        parts["of it in the proximal step, %"] = over_runs(lambda r: 100 * proximal[r] / seconds[r], 1)
    about = (
        f"final score: {iqm_axis(table)} over {size(table)}, with {below(table)}; time: collecting and learning of one "
        f"run, without evaluation, mean over runs ({seeds(grid)}), with their range. Time is that of the machine "
        f"({machines(results)}) and of what else ran on it"
    )
    names = {label: look.name for label, look in looks_of(table).items()}
    columns = [f"K = {k}" for k in ks]
    blocks = [
        Block(heading, "algorithm", columns, [(names[label], [cell(label, k) for k in ks]) for label in names])
        for heading, cell in parts.items()
    ]
    return Sheet("Score and time", [about, run_facts(table)], blocks, table.draft)


def _seconds_of(run: StoredRun, *parts: str) -> float:
    """Seconds of these parts of a run's phases."""
    columns = [c for part in parts if (c := run.column(SECONDS + part)) is not None]
    return float(np.nansum(np.sum(columns, axis=0)))


def _clock_unit(longest: float) -> tuple[float, str]:
    """Seconds and name of the unit for times up to `longest`."""
    return (3600.0, "hours") if longest >= 3600 else (60.0, "minutes") if longest >= 60 else (1.0, "seconds")


PARTS = {  # columns of timing.parquet in the order of a phase, and their colours
    "generate": "#3B6FA0",
    "score": "#8FB4D6",
    "proximal": "#B3261E",
    "loss": "#E6A23C",
    "train": "#4E8F5B",
    "evaluate": "#B9B9B9",
}


def has_timing(results: Results) -> bool:
    """Return whether every run recorded its time by these parts, as language runs do."""
    return len(results) > 0 and all(set(PARTS) <= set(run.record["seconds"]) for run in results)


@FIGURES.register(
    "where_the_time_goes",
    Section(
        70,
        "Where the time goes",
        "Recomputing a proximal policy takes a forward pass; interpolating it takes part of the loss.",
        has_timing,
    ),
)
def where_the_time_goes(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Mean seconds of a phase by part: a bar per algorithm, over all its runs.

    At the end of a bar: the proximal step, and the whole loss, which is an upper bound for a method that
    interpolates its proximal policy inside it (A-3PO's claim, arXiv 2512.06547).
    """
    grid, names = results.grid, labels(table)
    seconds = {
        label: _mean_seconds([r for c, rs in grid.cells.items() if c.label == label for r in rs]) for label in names
    }
    subtitle = (
        f"mean seconds per generation round over buffer capacities, environments and runs ({seeds(grid)}); right: the "
        "proximal step alone and the whole loss, which bounds it for methods that interpolate inside the loss"
    )
    height = 0.55 + 0.24 * len(names)
    with panels("Where the time goes", subtitle, [0], table, width, height) as (figure, (ax,)):
        longest = max(sum(s.values()) for s in seconds.values())
        for at, label in enumerate(names):
            left = 0.0
            for part, colour in PARTS.items():
                ax.barh(at, seconds[label][part], left=left, height=0.7, color=colour)
                left += seconds[label][part]
            template = "{}, {}" if width < 5 else "proximal {}, loss {}"
            text = template.format(_short(seconds[label]["proximal"]), _short(seconds[label]["loss"]))
            ax.text(left + 0.01 * longest, at, text, va="center", fontsize=6.5, color=INK)
        row_axis(ax, [short_label(label) for label in names], spine=True)
        bars = width - 1.4  # inches of the panel, about; the words take 1 or 1.8 of them
        ax.set_xlim(0, longest * bars / (bars - (1.0 if width < 5 else 1.8)))
        ax.set_xlabel("seconds per generation round")
        handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
        space = {"handlelength": 1.0, "columnspacing": 1.2, "ncols": 6 if width > 5 else 3}
        figure.legend(handles=handles, loc="outside lower left", frameon=False, labelcolor=FAINT, **space)
    return figure


def _mean_seconds(runs: Sequence[StoredRun]) -> dict[str, float]:
    def mean(part: str) -> float:
        columns = [run.column(SECONDS + part) for run in runs]
        return float(np.mean([0.0 if c is None else np.nanmean(c) for c in columns] or [0.0]))

    return {part: mean(part) for part in PARTS}


def _short(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms" if ms >= 0.1 else "< 0.1 ms"
