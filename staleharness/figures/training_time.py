"""Time of training: beside the final score, and by part of a phase."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..statistics.results import Results
from ..statistics.row_diagnostics import in_budget
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .captions import axis, below, iqm_axis, machines, run_facts, seeds, size
from .palette import labels, looks_of
from .plot_layout import FAINT, INK, PAGE, panels, short_label
from .plot_marks import row_axis
from .registry import FIGURES, SHEETS, Section
from .table_markup import Block, Sheet, SheetCell, iqm_cell

Cells = Callable[[str, int], SheetCell]  # (method, K) -> a value with its runs or interval
PARTS = {  # columns of timing.parquet in the order of a phase, and their colours
    "generate": "#3B6FA0",
    "score": "#8FB4D6",
    "proximal": "#B3261E",
    "loss": "#E6A23C",
    "train": "#4E8F5B",
    "evaluate": "#B9B9B9",
}


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
    grid, looks = results.grid, looks_of(table)
    names = labels(table)

    def mean(label: str, part: str) -> float:
        columns = [(run, run.column(SECONDS + part)) for run in grid.runs if run.label == label]
        return float(np.mean([0.0 if c is None else np.nanmean(in_budget(run, c)) for run, c in columns] or [0.0]))

    seconds = {label: {part: mean(label, part) for part in PARTS} for label in names}
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
        row_axis(ax, [short_label(looks[label].name or label) for label in names], spine=True)
        bars = width - 1.4  # inches of the panel, about; the words take 1 or 1.8 of them
        ax.set_xlim(0, longest * bars / (bars - (1.0 if width < 5 else 1.8)))
        ax.set_xlabel("seconds per generation round")
        handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
        space = {"handlelength": 1.0, "columnspacing": 1.2, "ncols": 6 if width > 5 else 3}
        figure.legend(handles=handles, loc="outside lower left", frameon=False, labelcolor=FAINT, **space)
    return figure


def _short(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms" if ms >= 0.1 else "< 0.1 ms"
