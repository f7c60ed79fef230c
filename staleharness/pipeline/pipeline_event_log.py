"""Log of a simulation, written row by row, and the finished simulation as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rollout_schedule import NEVER, Ints
from .pipeline_settings import Pipeline

FATES = ("in_flight", "queued", "trained", "dropped_full", "dropped_stale")
TRAINED = FATES.index("trained")
COLUMNS = ("slot", "start_time", "step_start", "step_end", "under_way")  # of the log, copied unchanged
GROUP_COLUMNS = ("queue_time", "fate", "step", "exit_step", "abort_time")  # of the log, with one entry per group
Floats = NDArray[np.float64]


class EventLog:
    """Log of a running simulation. Rows and groups are numbered in the order in which they begin."""

    def __init__(self, group: int) -> None:
        self.group = group
        # One entry per row that has begun.
        self.slot, self.start_time, self.version = array("q"), array("d"), array("q")
        # One entry per row of a group that has begun.
        self.finish_time = array("d")
        # One entry per group.
        self.fate, self.step, self.queue_time = array("b"), array("q"), array("d")
        self.exit_step, self.abort_time = array("q"), array("d")
        # Steps that train again on a group: (group, step).
        self.reused: list[tuple[int, int]] = []
        # Where weights changed inside a row: (row, decisions made before, version after).
        self.weight_changes: list[tuple[int, int, int]] = []
        # One entry per step: begin, end, and rows that were under way or queued when its version was created.
        self.step_start, self.step_end, self.under_way = array("d"), array("d"), array("q")
        self._no_time = array("d", [float("nan")] * group)

    def new_group(self) -> None:
        self.finish_time.extend(self._no_time)
        self.fate.append(0)
        self.step.append(-1)
        self.exit_step.append(-1)
        self.abort_time.append(float("nan"))
        self.queue_time.append(float("nan"))

    def begin(self, slot: int, now: float, version: int) -> None:
        """Add a row, which begins now."""
        self.slot.append(slot)
        self.start_time.append(now)
        self.version.append(version)

    def oldest(self, group: int) -> int:
        """Return the oldest version that a row of the group began with."""
        return min(self.version[group * self.group : (group + 1) * self.group])


@dataclass(frozen=True)
class PipelineRecord:
    """Finished simulation. Arrays are over rows [n], segments [m] or steps; times in seconds, NaN: did not happen."""

    pipeline: Pipeline
    seed: int
    seconds: float  # duration
    warm: int  # steps before this one are left out of the summary
    # [n]
    slot: Ints
    start_time: Floats
    finish_time: Floats
    queue_time: Floats
    fate: NDArray[np.int8]  # an index of FATES
    step: Ints  # training step, and so version, that first used the row; -1: none
    exit_step: Ints  # step before which its group had left the queue, trained or dropped; -1: none
    abort_time: Floats  # of its group
    tokens: Ints  # decisions of the whole row
    done: Ints  # decisions so far
    # [m], ordered by row
    segment_row: Ints
    segment_version: Ints
    segment_end: Ints  # decisions of the row when the segment ended
    # [steps]
    step_start: Floats
    step_end: Floats
    under_way: Ints  # rows neither taken by the trainer nor dropped when the step ended
    trainer: tuple[tuple[float, float, str], ...]  # begin, end, state
    slot_seconds: Mapping[str, float]  # state -> slots × seconds, from the step `warm` on
    warm_up_end: float  # seconds; when the step before `warm` ended
    lost: int  # decisions lost in failures
    reused: tuple[tuple[int, int], ...] = ()  # (group, step) where a step trains on a group of an earlier step


def record_of(
    log: EventLog, pipeline: Pipeline, *, tokens: list[int], partial: Mapping[int, int], **totals: Any
) -> PipelineRecord:
    """Return the log as arrays. `partial`: decisions so far of each row under way; `totals`: all other fields."""
    n = len(log.slot)
    group_of = np.arange(n) // pipeline.group
    length, finish_time = np.asarray(tokens[:n], np.int64), np.asarray(log.finish_time)[:n]
    done = np.where(np.isnan(finish_time), 0, length)
    done[list(partial)] = list(partial.values())
    row, version, end = _segments(log, done)
    columns: dict[str, Any] = {name: np.asarray(getattr(log, name)) for name in COLUMNS}
    columns |= {name: np.asarray(getattr(log, name))[group_of] for name in GROUP_COLUMNS}
    return PipelineRecord(
        pipeline=pipeline,
        finish_time=finish_time,
        tokens=length,
        done=done,
        segment_row=row,
        segment_version=version,
        segment_end=end,
        **columns,
        reused=tuple(log.reused),
        **totals,
    )


def _segments(log: EventLog, done: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (row, version, end) of each segment with at least one decision, ordered by row and end."""
    n = len(done)
    changes = np.array(log.weight_changes, np.int64).reshape(-1, 3)
    row = np.concatenate([np.arange(n), changes[:, 0]])
    begin = np.concatenate([np.zeros(n, np.int64), changes[:, 1]])
    version = np.concatenate([np.asarray(log.version, np.int64), changes[:, 2]])
    order = np.lexsort((version, begin, row))
    row, begin, version = row[order], begin[order], version[order]
    last = np.append(row[1:] != row[:-1], True)
    end = np.where(last, done[row], np.append(begin[1:], 0))
    nonempty = (end > begin) | (last & (done[row] == 0))
    return row[nonempty], version[nonempty], end[nonempty]


def stale_segments(record: PipelineRecord) -> NDArray[np.bool_]:
    """Return a mask [m] of the segments that the trainer took but left out of the loss: those older than `max_lag`, or
    with stale=drop_row all segments of a row that has one."""
    pipeline, row = record.pipeline, record.segment_row
    if pipeline.max_lag is None or pipeline.stale not in ("mask", "drop_row"):
        return np.zeros(len(row), dtype=np.bool_)
    stale = (record.fate[row] == TRAINED) & (record.step[row] - record.segment_version > pipeline.max_lag)
    if pipeline.stale == "drop_row":
        stale = np.bincount(row[stale], minlength=len(record.slot))[row] > 0
    return np.asarray(stale, dtype=np.bool_)


def trained_rows(record: PipelineRecord) -> NDArray[np.bool_]:
    """Return a mask [n] of the rows with at least one segment that was trained on."""
    in_loss = np.bincount(record.segment_row[~stale_segments(record)], minlength=len(record.slot)) > 0
    return np.asarray((record.fate == TRAINED) & in_loss, dtype=np.bool_)


def segment_lengths(record: PipelineRecord) -> Ints:
    """Return the decisions of each segment [m]."""
    begin = np.append(0, record.segment_end[:-1])
    begin[np.append(True, record.segment_row[1:] != record.segment_row[:-1])] = 0
    return np.asarray(record.segment_end - begin)


def end_times(record: PipelineRecord) -> Floats:
    """Return the time [n] at which each row's group was finished or aborted; NaN: not yet."""
    n, size = len(record.slot), record.pipeline.group
    finish = np.maximum.reduceat(record.finish_time, range(0, n, size)).repeat(size)[:n]
    finish[n - n % size :] = np.nan  # of the last group some rows may not have begun
    return np.where(np.isnan(record.abort_time), finish, record.abort_time)


def end_steps(record: PipelineRecord) -> Ints:
    """Return the first step [n] whose batch was taken at each row's end time or later; NEVER: no step, or no end."""
    step = np.searchsorted(record.step_start, end_times(record))  # NaN is sorted last
    return np.where(step < len(record.step_start), step, NEVER)
