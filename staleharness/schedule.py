"""Lag as a schedule: which rows the learner takes in each phase, who made them, and under which versions.

A drawn lag model answers anew in every phase (`lag.Assignment`). A model of a pipeline, or a recorded trace, answers
once for the whole run, with a `Schedule`: a function of (seed, what the learner asks for) and of nothing that happens
in the run, so there is no state to checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MOST_ROWS = 20_000_000  # of one run, all of which are kept
NEVER = -1  # the phase of rows that are not trained on
LOST = -2  # less the phase: when rows were lost


@dataclass(frozen=True)
class Demand:
    """What a run's learner asks for."""

    phases: int
    groups: int  # that a phase trains on
    rows: int  # of a group
    length: int  # decisions of the longest row
    seed: int


@dataclass(frozen=True)
class Schedule:
    """Rows [n] in the order in which they began, and their stretches [m]. The learner's step t trains version t.

    A group is what an actor makes at one time: a row in each of its environments, or the completions of one prompt.
    Rows of a group stand side by side. The data of a row depend on (seed, actor, nth), its versions, and on tokens its
    group, which is the number of the prompt; not on when it happens to be made.
    """

    group: Ints  # [n] not decreasing
    actor: Ints  # [n] who made it
    nth: Ints  # [n] how many groups this actor had begun before
    phase: Ints  # [n] that trains on it; NEVER
    place: Ints  # [n] of its group among those that the phase trains on; NEVER
    first: Ints  # [n + 1] row i has the stretches first[i] to first[i + 1] − 1
    version: Ints  # [m] that made the stretch; not decreasing along a row
    end: Ints  # [m] decisions of the row that are made when the stretch ends; the last one lasts to the row's end
    kept: Bools  # [m] False: masked out of the loss
    ledger: dict[str, dict[str, int]]  # "rows" and "decisions": generated = the sum of all the others
    apart: int = 0  # not 0: each group was made by itself, its weights looked after every so many decisions; the bits
    # of a language model depend on what is computed together
    finished: Ints | None = None  # [n] the phase whose batch was the first taken after the row was; NEVER
    # [n] at whose batch it had left the queue, trained on or dropped; NEVER; LOST − t: at the batch of phase t it was
    # lost, with the actor that made it or at a resume
    left: Ints | None = None

    def __len__(self) -> int:
        return len(self.group)

    @property
    def actors(self) -> int:
        """They are numbered from 0."""
        return int(self.actor.max(initial=NEVER)) + 1

    @cached_property
    def oldest(self) -> Ints:
        """[n], the version that each row begins with."""
        return self.version[self.first[:-1]]

    @cached_property
    def newest(self) -> Ints:
        """[n], the version that each row ends with."""
        return self.version[self.first[1:] - 1]

    @cached_property
    def lengths(self) -> Ints:
        """[n], decisions of each row that are made."""
        return self.end[self.first[1:] - 1]

    @cached_property
    def made(self) -> Ints:
        """[n], the phase in which each row can be made: its newest version is there, and what its actor made before is
        made; NEVER for what an actor does once nothing of it is trained on any more, which nobody has to make."""
        made = np.full(len(self), NEVER)
        for rows in self._of_actors():
            trained = np.flatnonzero(self.phase[rows] != NEVER)
            if len(trained):
                last = self.nth[rows[trained[-1]]]
                rows = rows[self.nth[rows] <= last]
                made[rows] = np.maximum.accumulate(self.newest[rows])
        begins = np.flatnonzero(np.diff(self.group, prepend=-1))  # a group is made as a whole
        whole = np.maximum.reduceat(made, begins) if len(self) else made
        return np.repeat(whole, np.diff(begins, append=len(self)))

    @cached_property
    def longest_lag(self) -> int:
        """Of the rows that are made, in phases, until they are trained on or at least made."""
        held = np.where(self.phase == NEVER, self.made, self.phase) - self.oldest
        return int(held[self.made != NEVER].max(initial=0))

    def trained_in(self, phase: int) -> Ints:
        """The rows that a phase trains on, in the order of their places."""
        first, last = np.searchsorted(self._phases, [phase, phase + 1])
        return self._by_phase[first:last]

    def made_in(self, phase: int) -> list[Ints]:
        """The rows that can be made from this phase on and not before, group by group: actor by actor, in the order
        in which each makes them."""
        rows = np.flatnonzero(self.made == phase)
        rows = rows[np.lexsort((self.group[rows], self.actor[rows]))]
        cuts = np.flatnonzero(np.diff(self.group[rows])) + 1
        return np.split(rows, cuts) if len(rows) else []

    def along(self, rows: Ints, length: int) -> tuple[Ints, Bools]:
        """(version, kept) [R, length] of every decision of some rows."""
        versions, kept = np.empty((len(rows), length), np.int64), np.empty((len(rows), length), np.bool_)
        for i, row in enumerate(rows.tolist()):
            part = slice(self.first[row], self.first[row + 1])
            ends = np.minimum(self.end[part], length)
            ends[-1] = length
            times = np.diff(ends, prepend=0)
            versions[i], kept[i] = np.repeat(self.version[part], times), np.repeat(self.kept[part], times)
        return versions, kept

    def check(self, demand: Demand, capacity: int, title: str, longest: str = "") -> None:
        """Raise `UserError` where a run cannot be made of it, or not with a buffer of `capacity` versions. `longest`:
        what is to be known of the longest lag, in words."""
        for fault in (self._untold(), self._unasked(demand)):
            if fault is not None:
                raise UserError(f"{title}: {fault}")
        if self.longest_lag >= capacity:
            raise UserError(
                f"{title} has lags of up to {self.longest_lag} phases, and K={capacity} holds lags 0 to "
                f"{capacity - 1}; give K={self.longest_lag + 1}{longest and f' ({longest})'}"
            )

    def _untold(self) -> str | None:
        """What contradicts itself, in words."""
        inner = np.delete(np.diff(self.version), self.first[1:-1] - 1)
        if (inner < 0).any() or (self.version < 0).any():
            return "versions decrease along a row"
        trained = self.phase != NEVER
        future = trained & (np.maximum(self.newest, self.made) > self.phase)
        if future.any():
            row = int(np.flatnonzero(future)[0])
            return f"row {row} is trained in phase {self.phase[row]} with a version from the future"
        if self.finished is not None:
            late = trained & ((self.finished > self.phase) | (self.finished == NEVER))
            if late.any():
                row = int(np.flatnonzero(late)[0])
                return f"row {row} is trained in phase {self.phase[row]}, before it is finished"
        for rows in self._of_actors():
            begun = np.unique(self.nth[rows])
            if len(begun) != begun[-1] + 1:
                hole = int(np.flatnonzero(begun != np.arange(len(begun)))[0])
                return f"actor {self.actor[rows[0]]} has a hole: its group {hole} is missing"
        return None

    def _unasked(self, demand: Demand) -> str | None:
        """What is not what the learner asks for, in words."""
        expected = np.repeat(np.arange(demand.groups), demand.rows)
        for phase in range(demand.phases):
            rows = self.trained_in(phase)
            if len(rows) != len(expected) or not np.array_equal(self.place[rows], expected):
                return (
                    f"phase {phase} has {len(rows)} rows in {len(np.unique(self.group[rows]))} groups; the run asks "
                    f"for {demand.groups} groups of {demand.rows}, for {demand.phases} phases"
                )
        return None

    def _of_actors(self) -> list[Ints]:
        """The rows of each actor, in the order in which it made them."""
        order = np.lexsort((self.nth, self.actor))
        cuts = np.flatnonzero(np.diff(self.actor[order])) + 1
        return np.split(order, cuts) if len(order) else []

    @cached_property
    def _by_phase(self) -> Ints:
        """The rows by phase and place."""
        return np.lexsort((np.arange(len(self)), self.place, self.phase))

    @cached_property
    def _phases(self) -> Ints:
        """[n], their phases in this order."""
        return self.phase[self._by_phase]
