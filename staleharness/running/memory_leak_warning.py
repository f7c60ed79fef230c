"""Memory growth from phase to phase, with the warning for a run whose memory grows steadily."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

# The rule for growing memory. The longest stretch of phases in one process, once the policy buffer is full, is halved;
# its second half is cut into parts, each with its median [MB]. Memory grows if most changes between parts are upwards,
# including the last, and the Theil-Sen line through the medians rises by enough over the half. One jump, a level that
# swings, and growth that stops do not count.
PHASES = 20  # in the half, at least
PARTS = 10  # parts of the half
UPWARDS = 8  # of the nine changes between parts, at least
MEGABYTES, SHARE = 100.0, 0.1  # of growth over the half, at least: absolute, and of the first median
FRESH = 0.8  # times the memory before: a lower value is a new process, which resumed from a checkpoint
GROWS = (
    "memory grew steadily, by about {:g} MB a phase (memory_mb in timing.parquet): something, perhaps an "
    "environment, holds on to what it no longer needs"
)


def in_megabytes(memory: int | None) -> float | None:
    """Convert bytes to MB, rounded to a tenth; None for None."""
    return None if memory is None else round(memory / 1e6, 1)


def growth_warnings(memory: Sequence[float | None], capacity: int) -> list[str]:
    """Return the warning if memory [MB], one number per phase (None: not measured), grows steadily; otherwise nothing.
    capacity: versions in the policy buffer, which fills meanwhile."""
    slope = steady_growth(memory, capacity)
    return [] if slope is None else [GROWS.format(float(f"{slope:.1g}"))]


def steady_growth(memory: Sequence[float | None], capacity: int) -> float | None:
    """Return the growth in MB per phase if memory [MB] grows steadily, otherwise None."""
    stretch = max(_stretches(memory, capacity), key=len)
    half = np.array(stretch[len(stretch) // 2 :])
    if len(half) < PHASES:
        return None
    parts = np.array_split(np.arange(len(half)), PARTS)
    level = np.array([np.median(half[part]) for part in parts])
    centre = np.array([part.mean() for part in parts])
    changes = np.diff(level)
    pairs = itertools.combinations(range(PARTS), 2)
    slope = float(np.median([(level[j] - level[i]) / (centre[j] - centre[i]) for i, j in pairs]))
    steady = changes[-1] > 0 and int((changes > 0).sum()) >= UPWARDS
    growth = slope * (len(half) - 1)
    return slope if steady and growth > max(MEGABYTES, SHARE * level[0]) else None


def _stretches(memory: Sequence[float | None], capacity: int) -> list[list[float]]:
    """Split the memory of phases by process, from when the buffer is full; at least one stretch, which may be empty."""
    stretches: list[list[float]] = [[]]
    for value in memory[capacity:]:
        current = stretches[-1]
        if value is None or (current and value < FRESH * current[-1]):
            stretches.append([])
        if value is not None:
            stretches[-1].append(value)
    return stretches
