"""Memory that grows from phase to phase, as where an environment leaks: the rule, and the warning.

Looked at is the longest stretch of phases in one process, from the phase on in which the policy buffer is full, and of
that the second half, if it has 20 phases or more. It is cut into ten parts, each with its median [MB]; memory grows
steadily where

- eight of the nine changes from one part to the next are upwards, the last among them,
- and the line through the medians (Theil and Sen's, the median of all pairwise slopes) rises over the half by more than
  100 MB, and by more than a tenth of the first median.

One jump, a level that swings, and what grows and stops are none of that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

PHASES = 20  # in the half that is looked at, at least
PARTS = 10
UPWARDS = 8  # of the changes between parts
MEGABYTES, SHARE = 100.0, 0.1  # of growth over the half, at least
FRESH = 0.8  # of the memory before: a fall below that is a new process, which went on from a checkpoint
GROWS = (
    "memory grew steadily, by about {:g} MB a phase (memory_mb in timing.parquet): something, perhaps an "
    "environment, holds on to what it no longer needs"
)


def in_megabytes(memory: int | None) -> float | None:
    """Bytes in MB, to a tenth; None for None."""
    return None if memory is None else round(memory / 1e6, 1)


def warnings_of(memory: Sequence[float | None], capacity: int) -> list[str]:
    """The warning where memory [MB], one number per phase (None: not measured), grows steadily; else nothing. capacity:
    versions in the policy buffer, which fills meanwhile."""
    slope = steady_growth(memory, capacity)
    return [] if slope is None else [GROWS.format(float(f"{slope:.1g}"))]


def steady_growth(memory: Sequence[float | None], capacity: int) -> float | None:
    """MB per phase by which memory [MB] grows where it grows steadily, or None."""
    stretch = max(_stretches(memory, capacity), key=len)
    half = np.array(stretch[len(stretch) // 2 :])
    if len(half) < PHASES:
        return None
    parts = np.array_split(np.arange(len(half)), PARTS)
    level = np.array([np.median(half[part]) for part in parts])
    place = np.array([part.mean() for part in parts])
    changes = np.diff(level)
    pairs = itertools.combinations(range(PARTS), 2)
    slope = float(np.median([(level[j] - level[i]) / (place[j] - place[i]) for i, j in pairs]))
    steady = changes[-1] > 0 and int((changes > 0).sum()) >= UPWARDS
    grown = slope * (len(half) - 1)
    return slope if steady and grown > max(MEGABYTES, SHARE * level[0]) else None


def _stretches(memory: Sequence[float | None], capacity: int) -> list[list[float]]:
    """Memory of phases in a row, in one process, from when the buffer is full; at least one, which may be empty."""
    stretches: list[list[float]] = [[]]
    for value in memory[capacity:]:
        current = stretches[-1]
        if value is None or (current and value < FRESH * current[-1]):
            stretches.append([])
        if value is not None:
            stretches[-1].append(value)
    return stretches
