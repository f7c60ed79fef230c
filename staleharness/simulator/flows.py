"""What a schedule says became of rows beside those that a phase trains on, phase by phase."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..schedule import NEVER, Ints, Schedule
from .ledger import Count, Flow


def flow_of(schedule: Schedule, phase: int, trained: Count) -> Flow | None:
    """As the learner found it when it took the batch of `phase`, of which `trained` became; None where the schedule
    does not say when rows were finished and when they left.

    Rows that are not trained on are as long as the schedule has them, until they are: those of another seed or method
    are longer or shorter by what `trained` and the schedule differ by.
    """
    if schedule.finished is None or schedule.left is None:
        return None
    finished = schedule.finished != NEVER
    waits = (schedule.left == NEVER) | (schedule.left > phase)
    gone = finished & (schedule.left == phase) & (schedule.phase == NEVER)
    planned = _count(schedule, schedule.trained_in(phase))
    return Flow(
        generated=_count(schedule, np.flatnonzero(schedule.finished == phase)) + trained - planned,
        dropped=_count(schedule, np.flatnonzero(gone)),
        queued=_count(schedule, np.flatnonzero(finished & (schedule.finished <= phase) & waits)),
        dropped_lags=np.bincount(phase - _versions(schedule, np.flatnonzero(gone))).tolist(),
    )


def dropped_groups(schedule: Schedule, phase: int) -> int:
    """Groups that left the queue since the batch before, and were not trained on."""
    if schedule.left is None:
        return 0
    gone = (schedule.left == phase) & (schedule.phase == NEVER)
    return len(np.unique(schedule.group[gone]))


def _count(schedule: Schedule, rows: Ints) -> Count:
    return Count(len(rows), int(schedule.end[schedule.first[rows + 1] - 1].sum()))


def _versions(schedule: Schedule, rows: Ints) -> NDArray[np.int64]:
    """Of all decisions of some rows."""
    parts = [slice(schedule.first[row], schedule.first[row + 1]) for row in rows]
    each = [np.repeat(schedule.version[part], np.diff(schedule.end[part], prepend=0)) for part in parts]
    return np.concatenate(each) if each else np.empty(0, np.int64)
