"""Which values of an option still learn at which lag, and when the reward of the others fell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..statistics.claims.early_warning import SHARE, WINDOW, falls, largest_lag
from ..statistics.labels import option_values
from ..statistics.results import Results
from ..statistics.scores import final_score
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import made, seeds
from .registry import SHEETS
from .sheet import Block, Entry, Sheet


@SHEETS.register("collapse")
def collapse(results: Results, table: Table, *, option: str, name: str = "") -> Sheet:
    """Final score and time of the fall by the option's value (greatest on top) and by lag S; and that time times S
    times the value, where data are stale: a lower bound where some of the runs never fell."""
    values = option_values(results, option)
    cells: dict[tuple[float, int], list[StoredRun]] = {}
    for run in sorted(results, key=lambda run: run.seed):
        if run.label not in values:
            continue
        cells.setdefault((float(values[run.label]), largest_lag(run)), []).append(run)
    rates = sorted({rate for rate, _ in cells}, reverse=True)
    lags = sorted({lag for _, lag in cells})
    score = table.settings["score"]

    def final(rate: float, lag: int) -> Entry:
        runs = cells.get((rate, lag), [])
        if not runs:
            return Entry("–")
        mean = float(np.mean([final_score(run, score) for run in runs]))
        return Entry(f"{mean:.2f}", _when(runs), min(1.0, max(0.0, mean)))

    def product(rate: float, lag: int) -> Entry:
        times = [fell(run) for run in cells.get((rate, lag), [])]
        if np.isnan(times).all():
            return Entry("–")
        some = "> " if np.isnan(times).any() else ""
        return Entry(f"{some}{np.nanmean(times) * lag * rate:.2g}")

    corner, columns = name or option, [f"S = {lag}" for lag in lags]
    stale = [lag for lag in lags if lag]
    blocks = [
        Block(
            f"Final {table.settings['measure']}",
            corner,
            columns,
            [(f"{rate:g}", [final(rate, lag) for lag in lags]) for rate in rates],
        ),
        Block(
            f"Time of the fall × S × {corner}",
            corner,
            [f"S = {lag}" for lag in stale],
            [(f"{rate:g}", [product(rate, lag) for lag in stale]) for rate in rates],
        ),
    ]
    about = (
        f"mean over seeds ({seeds(results.grid)}), no interval; below it the {table.settings['unit']} at which the "
        f"reward of each run fell: a mean of {WINDOW} phases below {SHARE:.0%} of the best so far; >: the mean of "
        "those that fell, where others never did; S: the lag once the buffer is full"
    )
    return Sheet("Learning rate and lag", [about, made(table)], blocks, table.draft)


def fell(run: StoredRun) -> float:
    """Steps at which the reward fell, NaN for never."""
    return falls(run, "reward", SHARE, 0, WINDOW)[1]


def _when(runs: Sequence[StoredRun]) -> str:
    """`fell at 16, 23`; `fell at 40, never`."""
    times = [fell(run) for run in runs]
    if all(map(math.isnan, times)):
        return "never fell"
    return "fell at " + ", ".join("never" if math.isnan(t) else f"{t:.0f}" for t in times)
