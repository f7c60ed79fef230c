"""A column of the metrics over training, as means in bins."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..statistics.scores import Array
from ..store.stored_run import StoredRun

BINS = 100  # of a diagnostic over training
Column = str | Callable[[StoredRun], Array | None]


def binned(runs: Iterable[StoredRun], column: Column, most: int = BINS) -> tuple[Array, Array]:
    """Mean of a column over runs and within bins of equally many phases: ([bins], [bins]), empty if unmeasured."""
    values = [(run, run.column(column) if isinstance(column, str) else column(run)) for run in runs]
    pairs = [(steps, y) for run, y in values if y is not None and (steps := run.column("steps")) is not None]
    x = np.concatenate([np.empty(0), *(steps for steps, _ in pairs)])
    y = np.concatenate([np.empty(0), *(y for _, y in pairs)])
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    phases = np.unique(x)
    bins = min(len(phases), most)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    weight = np.bincount(index, minlength=bins)
    return np.bincount(index, x, bins) / weight, np.bincount(index, y, bins) / weight
