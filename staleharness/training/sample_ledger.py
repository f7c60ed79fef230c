"""Ledger of all rows that were generated, in sequences and in decisions: it closes exactly, or the run ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..rollout_schedule import LOST, NEVER, Ints, Schedule

if TYPE_CHECKING:
    from torch import Tensor

UNITS = ("sequences", "decisions")
ENTRIES = ("generated", "trained", "dropped", "masked", "queued", "lost", "reused")
OPTIONAL = ("lost",)  # only in runs with actors that can be lost


@dataclass(frozen=True)
class Count:
    """Number of sequences (rows: one environment's decisions in a phase, or one completion) and of their decisions."""

    sequences: int = 0
    decisions: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.sequences + other.sequences, self.decisions + other.decisions)

    def __sub__(self, other: Count) -> Count:
        return Count(self.sequences - other.sequences, self.decisions - other.decisions)

    def rows(self, length: int) -> Count:
        """Return the count of as many sequences of `length` decisions."""
        return Count(self.sequences, self.sequences * length)


@dataclass(frozen=True)
class Flow:
    """Rows of one phase's collection, besides those handed to the learner."""

    generated: Count
    dropped: Count = field(default_factory=Count)  # never to be trained on
    queued: Count = field(default_factory=Count)  # made, and not yet trained on: all there are, not those of the phase
    reused: Count = field(default_factory=Count)  # handed to the learner once more
    lost: Count | None = None  # with the actor that held it, or at a resume; None: no actor can be lost
    dropped_lags: Sequence[int] = ()  # dropped decisions by their lag in phases, where they were due in this phase
    trained_before: Tensor | None = None  # [B, T] bool, of the decisions handed over: an earlier phase trained on them


class Ledger:
    """Totals since the run began."""

    def __init__(self) -> None:
        self.totals = {f"{unit}/{entry}": 0 for unit in UNITS for entry in ENTRIES if entry not in OPTIONAL}

    def enter(
        self, phase: int, flow: Flow, handed_count: Count, trained: Count, reused: Count | None = None
    ) -> dict[str, int]:
        """Add a phase in which the learner got `handed_count` and trained on `trained`; return the totals. What is
        trained on again counts as reused, and once as trained; what the method leaves out is masked until it is
        trained on.

        reused: the part of `trained` that earlier phases trained on, too; None: all of it where the whole batch was
            handed over once more, otherwise all of the rows that were.

        Raises `RuntimeError` where generated is not trained + dropped + masked + queued + lost.
        """
        if reused is None:
            reused = trained if flow.reused == handed_count else flow.reused
        first_trained = trained - reused
        counts = {
            "generated": flow.generated,
            "dropped": flow.dropped,
            "masked": handed_count - flow.reused - first_trained,
            "trained": first_trained,
            "reused": reused,
        }
        if flow.lost is not None:
            counts["lost"] = flow.lost
        for unit in UNITS:
            for entry, count in counts.items():
                name = f"{unit}/{entry}"
                self.totals[name] = self.totals.get(name, 0) + getattr(count, unit)
            self.totals[f"{unit}/queued"] = getattr(flow.queued, unit)
            totals = {entry: self.totals[name] for entry in ENTRIES if (name := f"{unit}/{entry}") in self.totals}
            fates = sum(count for entry, count in totals.items() if entry not in ("generated", "reused"))
            if totals["generated"] != fates or min(totals.values()) < 0:
                words = ", ".join(f"{entry} {count}" for entry, count in totals.items())
                raise RuntimeError(
                    f"the ledger of {unit} does not close after phase {phase}: {words}; please report it"
                )
        return dict(self.totals)


def flow_of(schedule: Schedule, phase: int, trained: Count, lengths: Ints | None = None) -> Flow | None:
    """Return the flow when the learner took the batch of `phase`, with its `trained` count; None where the schedule
    does not say when rows were finished and when they left. Only rows of real actors can be lost.

    Rows count with `lengths` [n] decisions, by default those of the schedule, until they are trained on: then the
    number generated is corrected by the difference between `trained` and these lengths.
    """
    if schedule.finished is None or schedule.left is None:
        return None
    lengths = schedule.lengths if lengths is None else lengths
    is_finished = schedule.finished != NEVER
    left = np.where(schedule.left <= LOST, LOST - schedule.left, schedule.left)
    waits = (left == NEVER) | (left > phase)
    lost = schedule.left == LOST - phase
    dropped = np.flatnonzero(is_finished & (schedule.left == phase) & (schedule.phase == NEVER))
    generated = np.flatnonzero((schedule.finished == phase) | (lost & ~is_finished))
    rows = schedule.trained_in(phase)
    is_reused = bool((schedule.phase[rows] != phase).any())  # then all of them
    correction = Count() if is_reused else trained - _count(lengths, rows)
    return Flow(
        generated=_count(lengths, generated) + correction,
        dropped=_count(lengths, dropped),
        queued=_count(lengths, np.flatnonzero(is_finished & (schedule.finished <= phase) & waits)),
        reused=trained if is_reused else Count(),
        lost=_count(lengths, np.flatnonzero(lost)) if schedule.apart else None,
        dropped_lags=np.bincount(phase - _versions(schedule, dropped, lengths)).tolist(),
    )


def count_dropped_groups(schedule: Schedule, phase: int) -> int:
    """Groups that have left the queue since the previous batch and were not trained on."""
    if schedule.left is None:
        return 0
    left = (schedule.left == phase) & (schedule.phase == NEVER)
    return len(np.unique(schedule.group[left]))


def _count(lengths: Ints, rows: Ints) -> Count:
    return Count(len(rows), int(lengths[rows].sum()))


def _versions(schedule: Schedule, rows: Ints, lengths: Ints) -> Ints:
    """Return the version of every decision of some rows."""
    versions = []
    for row in rows:
        part = slice(schedule.first[row], schedule.first[row + 1])
        ends = np.minimum(schedule.end[part], lengths[row])
        versions.append(np.repeat(schedule.version[part], np.diff(ends, prepend=0)))
    return np.concatenate(versions) if versions else np.empty(0, np.int64)
