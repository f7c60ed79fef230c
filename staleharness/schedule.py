"""Lag as a schedule: which rows the learner takes in each phase, who made them, and under which versions.

A drawn lag model answers anew in every phase (`lag.Assignment`). A model of a pipeline, or a recorded trace, answers
once for the whole run, with a `Schedule`: a function of (seed, what the learner asks for) and of nothing that happens
in the run, so there is no state to checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NEVER = -1  # the phase of rows that are not trained on


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
    Rows of a group stand side by side. The data of a row depend on (seed, actor, nth) and on its versions alone.
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

    def __len__(self) -> int:
        return len(self.group)

    @property
    def oldest(self) -> Ints:
        """[n], the version that each row begins with."""
        return self.version[self.first[:-1]]

    @property
    def newest(self) -> Ints:
        """[n], the version that each row ends with; the row can be made from then on."""
        return self.version[self.first[1:] - 1]

    @property
    def longest_lag(self) -> int:
        """Of the rows that are trained on, in phases."""
        trained = self.phase != NEVER
        return int((self.phase - self.oldest)[trained].max(initial=0))
