"""A column of the metrics over training, as means in bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..statistics.scores import Array

BINS = 100  # of a diagnostic over training


def binned(frames: Sequence[Any], name: str, most: int = BINS) -> tuple[Array, Array]:
    """Mean of a column over runs and within bins of equally many phases: ([bins], [bins]), empty if unmeasured."""
    frames = [f for f in frames if name in f]
    x = np.concatenate([np.empty(0), *(f["steps"].to_numpy(np.float64) for f in frames)])
    y = np.concatenate([np.empty(0), *(f[name].to_numpy(np.float64) for f in frames)])
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    phases = np.unique(x)
    bins = min(len(phases), most)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    weight = np.bincount(index, minlength=bins)
    return np.bincount(index, x, bins) / weight, np.bincount(index, y, bins) / weight
