"""What happened, written down row by row as it happens; `Record` is the whole of it as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .settings import Pipeline

FATES = ("in_flight", "queued", "trained", "dropped_full", "dropped_stale")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Log:
    """Grows by a group when one begins. Rows and groups are numbered in the order in which they begin."""

    def __init__(self, group: int) -> None:
        self.group = group
        # One entry per row that has begun.
        self.slot, self.began, self.version = array("q"), array("d"), array("q")
        # One entry per row of a group that has begun.
        self.made = array("d")
        # One entry per group.
        self.fate, self.step, self.queued = array("b"), array("q"), array("d")
        self.left, self.stopped = array("q"), array("d")
        # Where weights changed inside a row: (row, decisions made before, version after).
        self.changes: list[tuple[int, int, int]] = []
        # One entry per step: begin, end, and rows that were under way or queued when its version came into being.
        self.step_began, self.step_ended, self.under_way = array("d"), array("d"), array("q")
        self._no_time = array("d", [float("nan")] * group)

    def new_group(self) -> None:
        self.made.extend(self._no_time)
        self.fate.append(0)
        self.step.append(-1)
        self.left.append(-1)
        self.stopped.append(float("nan"))
        self.queued.append(float("nan"))

    def begin(self, slot: int, now: float, version: int) -> None:
        """The next row has begun."""
        self.slot.append(slot)
        self.began.append(now)
        self.version.append(version)

    def oldest(self, group: int) -> int:
        """The oldest version that a row of the group has begun with."""
        return min(self.version[group * self.group : (group + 1) * self.group])


@dataclass(frozen=True)
class Record:
    """A finished simulation. Arrays are over rows [n], stretches [m] or steps; times in seconds, NaN: not (yet)."""

    pipeline: Pipeline
    seed: int
    seconds: float  # how long it lasted
    warm: int  # steps before this one are left out of what is measured
    # [n]
    slot: Ints
    began: Floats
    made: Floats
    queued: Floats
    fate: Ints  # an index of FATES
    step: Ints  # that trained it, which is the version it was trained at; -1: none
    left: Ints  # the step at whose beginning it had left the queue, trained or dropped; -1: none
    stopped: Floats  # when its group was given up
    tokens: Ints  # decisions of the whole row
    done: Ints  # of these, made so far
    # [m], ordered by row
    stretch_row: Ints
    stretch_version: Ints
    stretch_end: Ints  # decisions of the row made when the stretch ended
    # [steps]
    step_began: Floats
    step_ended: Floats
    under_way: Ints  # rows begun and neither taken by the trainer nor dropped, when the step ended
    trainer: tuple[tuple[float, float, str], ...]  # begin, end, state
    slot_seconds: Mapping[str, float]  # state -> slots × seconds, from the step `warm` on
    since: float  # when the step before `warm` ended
    lost: int  # decisions of rows that a failure took


def record_of(
    log: Log,
    pipeline: Pipeline,
    seed: int,
    *,
    seconds: float,
    warm: int,
    tokens: list[int],
    partial: Mapping[int, int],
    spans: list[tuple[float, float, str]],
    slot_seconds: Mapping[str, float],
    since: float,
    lost: int,
) -> Record:
    """The log as arrays. `partial`: decisions made so far of each row under way."""
    n, group = len(log.slot), pipeline.group
    of = np.arange(n) // group
    fate, step, queued = (np.asarray(log.fate, np.int64), np.asarray(log.step, np.int64), np.asarray(log.queued))
    length = np.asarray(tokens[:n], np.int64)
    made = np.asarray(log.made)[:n]
    done = np.where(np.isnan(made), 0, length)
    done[list(partial)] = list(partial.values())
    row, version, end = _stretches(log, done)
    return Record(
        pipeline,
        seed,
        seconds,
        warm,
        np.asarray(log.slot, np.int64),
        np.asarray(log.began),
        made,
        queued[of],
        fate[of],
        step[of],
        np.asarray(log.left, np.int64)[of],
        np.asarray(log.stopped)[of],
        length,
        done,
        row,
        version,
        end,
        np.asarray(log.step_began),
        np.asarray(log.step_ended),
        np.asarray(log.under_way, np.int64),
        tuple(spans),
        dict(slot_seconds),
        since,
        lost,
    )


def _stretches(log: Log, done: Ints) -> tuple[Ints, Ints, Ints]:
    """(row, version, end) of each stretch that has a decision in it, ordered by row and end."""
    n = len(done)
    changes = np.array(log.changes, np.int64).reshape(-1, 3)
    row = np.concatenate([np.arange(n), changes[:, 0]])
    begin = np.concatenate([np.zeros(n, np.int64), changes[:, 1]])
    version = np.concatenate([np.asarray(log.version, np.int64), changes[:, 2]])
    order = np.lexsort((version, begin, row))
    row, begin, version = row[order], begin[order], version[order]
    last = np.append(row[1:] != row[:-1], True)
    end = np.where(last, done[row], np.append(begin[1:], 0))
    kept = (end > begin) | (last & (done[row] == 0))
    return row[kept], version[kept], end[kept]
