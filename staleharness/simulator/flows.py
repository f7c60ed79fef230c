"""What a schedule says became of the rows that a phase does not train on, phase by phase."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..schedule import LOST, NEVER, Ints, Schedule
from .ledger import Count, Flow


def flow_of(schedule: Schedule, phase: int, trained: Count, lengths: Ints | None = None) -> Flow | None:
    """As the learner found it when it took the batch of `phase`, of which `trained` became; None where the schedule
    does not say when rows were finished and when they left. Rows can be lost where real actors were recorded.

    Rows that are not trained on have `lengths` [n] decisions, and where that is None as many as the schedule says,
    until they are trained on: then what was generated changes by as much as `trained` differs from that.
    """
    if schedule.finished is None or schedule.left is None:
        return None
    lengths = schedule.lengths if lengths is None else lengths
    finished = schedule.finished != NEVER
    left = np.where(schedule.left <= LOST, LOST - schedule.left, schedule.left)
    waits = (left == NEVER) | (left > phase)
    lost = schedule.left == LOST - phase
    dropped = np.flatnonzero(finished & (schedule.left == phase) & (schedule.phase == NEVER))
    generated = np.flatnonzero((schedule.finished == phase) | (lost & ~finished))
    counted = _count(lengths, schedule.trained_in(phase))
    return Flow(
        generated=_count(lengths, generated) + trained - counted,
        dropped=_count(lengths, dropped),
        queued=_count(lengths, np.flatnonzero(finished & (schedule.finished <= phase) & waits)),
        lost=_count(lengths, np.flatnonzero(lost)) if schedule.apart else None,
        dropped_lags=np.bincount(phase - _versions(schedule, dropped, lengths)).tolist(),
    )


def dropped_groups(schedule: Schedule, phase: int) -> int:
    """Groups that left the queue since the batch before, and were not trained on."""
    if schedule.left is None:
        return 0
    gone = (schedule.left == phase) & (schedule.phase == NEVER)
    return len(np.unique(schedule.group[gone]))


def _count(lengths: Ints, rows: Ints) -> Count:
    return Count(len(rows), int(lengths[rows].sum()))


def _versions(schedule: Schedule, rows: Ints, lengths: Ints) -> NDArray[np.int64]:
    """Of all decisions of some rows."""
    each = []
    for row in rows:
        part = slice(schedule.first[row], schedule.first[row + 1])
        ends = np.minimum(schedule.end[part], lengths[row])
        each.append(np.repeat(schedule.version[part], np.diff(ends, prepend=0)))
    return np.concatenate(each) if each else np.empty(0, np.int64)
