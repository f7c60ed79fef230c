"""What is reached, and in what time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .captions import axis, below, iqm_axis, looks_of, machines, made, seeds, size
from .registry import SHEETS
from .sheet import Block, Entry, Sheet

Cells = Callable[[str, int], Entry]  # (method, K) -> a value, and what stands below it


@SHEETS.register("score_and_time")
def score_and_time(results: Results, table: Table) -> Sheet:
    """Final score of each method by K, the time that its training took, and the share of that time that went into a
    proximal policy's own pass (where runs say so).

    Time is that of collecting and learning, without evaluation, of one run: mean over runs, and the least and the
    most of them.
    """
    found, ks = results.grid, table.settings["capacities"]
    rows = {(r["algorithm"], r["capacity"]): r for r in table.rows if r["iqm"] is not None}
    seconds = {run.id: _spent(run, "collect", "learn") for run in results}
    unit, short = _clock_unit(max(seconds.values(), default=0.0))

    def over_runs(of: Callable[[str], float], digits: int) -> Cells:
        def cell(label: str, k: int) -> Entry:
            values = [of(r.id) for r in found.members(label, k)]
            several = f"({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
            return Entry(f"{np.mean(values):.{digits}f}" if values else "–", several)

        return cell

    def score(label: str, k: int) -> Entry:
        row = rows.get((label, k))
        if row is None:
            return Entry("–")
        if dots := row.get("dots", {}).get("iqm"):
            return Entry(f"{row['iqm']:.3f}", f"({', '.join(f'{x:.3f}' for x in dots)})")
        there = row["iqm_low"] is not None
        return Entry(f"{row['iqm']:.3f}", f"[{row['iqm_low']:.3f}, {row['iqm_high']:.3f}]" if there else "")

    parts = {f"final {axis(table)}": score, f"training time, {short}": over_runs(lambda r: seconds[r] / unit, 2)}
    if all(run.column(SECONDS + "proximal") is not None for run in results):
        proximal = {run.id: _spent(run, "proximal") for run in results}
        parts["of it in the proximal step, %"] = over_runs(lambda r: 100 * proximal[r] / seconds[r], 1)
    about = (
        f"final score: {iqm_axis(table)} over {size(table)}, with {below(table)}; time: collecting and learning of one "
        f"run, without evaluation, mean over runs ({seeds(found)}), with their range. Time is that of the machine "
        f"({machines(results)}) and of what else ran on it"
    )
    names = {label: look.name or label for label, look in looks_of(table).items()}
    columns = [f"K = {k}" for k in ks]
    blocks = [
        Block(heading, "algorithm", columns, [(names[label], [cell(label, k) for k in ks]) for label in names])
        for heading, cell in parts.items()
    ]
    return Sheet("Score and time", [about, made(table)], blocks, table.draft)


def _spent(run: StoredRun, *parts: str) -> float:
    """Seconds of these parts of a run's phases."""
    columns = [c for part in parts if (c := run.column(SECONDS + part)) is not None]
    return float(np.nansum(np.sum(columns, axis=0)))


def _clock_unit(longest: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time is said."""
    return (3600.0, "hours") if longest >= 3600 else (60.0, "minutes") if longest >= 60 else (1.0, "seconds")
