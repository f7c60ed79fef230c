"""When a column of a run's metrics first fell: far below the best that it had reached."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..store.stored_run import StoredRun
from .scores import Array

SHARE, WINDOW = 2 / 3, 8  # of the best so far; phases that are averaged


def largest_lag(run: StoredRun) -> int:
    """The largest lag of any of its decisions, in phases."""
    return max((int(lag) for lag, count in run.record["lag_histogram"].items() if count), default=0)


def after(run: StoredRun, phases: int) -> float:
    """Steps that a run has made by the end of so many phases."""
    at = run.column("steps")
    return math.inf if at is None or len(at) < phases else float(at[phases - 1])


def falls(run: StoredRun, metric: str, share: float, after: float, window: int) -> tuple[float, float]:
    """Steps at which the column and the reward of a run first fell, as `warning_before_fall` says; NaN for never. What
    was never above zero has no share to fall to."""
    at, column, reward = (run.column(name) for name in ("steps", metric, "reward"))
    if at is None or column is None or reward is None:
        return math.nan, math.nan
    steps = at[at > after][window - 1 :]
    column, reward = (trailing(values[at > after], window) for values in (column, reward))
    best = [np.maximum.accumulate(y) for y in (column, reward)]
    low, fallen = (first(steps, (top > 0) & (y < share * top)) for y, top in zip((column, reward), best, strict=True))
    return low, fallen


def trailing(y: Array, window: int) -> Array:
    """Means of the last `window` values, from where there are so many: [phases] -> [phases − window + 1]."""
    if len(y) < window:
        return np.empty(0)
    total = np.concatenate([[0.0], np.cumsum(y)])
    return np.asarray((total[window:] - total[:-window]) / window)


def first(steps: Array, happened: NDArray[np.bool_]) -> float:
    """The step at which something first is so, NaN where it never is."""
    at = np.flatnonzero(happened)
    return float(steps[at[0]]) if len(at) else math.nan
