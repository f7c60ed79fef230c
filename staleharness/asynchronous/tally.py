"""The count that an actor keeps of itself, in shared memory, where it survives the actor's process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from ..simulator.ledger import Count

NO_GROUP = -1
GROUP, BEGAN, STRETCHES, LENGTHS = range(4)  # places in the array; from LENGTHS on one number per row
NANO = 1e-9


@dataclass(frozen=True)
class Progress:
    """A group as far as its actor came. Lengths are decisions of each row, starts the decisions before a stretch."""

    versions: list[int]
    starts: list[int]
    lengths: list[int]
    began: float  # seconds, by the clock that all processes of a machine share

    @property
    def count(self) -> Count:
        return Count(len(self.lengths), sum(self.lengths))


class Tally:
    """Counts for one actor. Its process alone writes; who reads it while it is written gets what held a moment ago."""

    def __init__(self, context: BaseContext, rows: int, stretches: int) -> None:
        """For groups of so many rows, of at most so many stretches."""
        self.rows, self.stretches = rows, stretches
        self.numbers: Any = context.RawArray("q", LENGTHS + rows + 2 * stretches)
        self.numbers[GROUP] = NO_GROUP

    def begin(self, group: int, began: float) -> None:
        """Count for another group."""
        self.numbers[GROUP] = NO_GROUP
        self.numbers[STRETCHES] = 0
        self.reach([0] * self.rows)
        self.numbers[BEGAN] = round(began / NANO)
        self.numbers[GROUP] = group

    def add_stretch(self, version: int, start: int) -> None:
        """Note a version before the first decision that it makes."""
        place = self.numbers[STRETCHES]
        first = LENGTHS + self.rows + 2 * place
        self.numbers[first], self.numbers[first + 1] = version, start
        self.numbers[STRETCHES] = place + 1

    def reach(self, lengths: Sequence[int]) -> None:
        """Note how many decisions each row has."""
        self.numbers[LENGTHS : LENGTHS + self.rows] = lengths

    def read(self, group: int) -> Progress | None:
        """The progress of a group; None where its first version was not there yet."""
        if self.numbers[GROUP] != group:
            return None
        lengths = self.numbers[LENGTHS : LENGTHS + self.rows]  # before the stretches, which are written first
        count, first = self.numbers[STRETCHES], LENGTHS + self.rows
        numbers = self.numbers[first : first + 2 * count]
        began = self.numbers[BEGAN] * NANO
        return Progress(numbers[::2], numbers[1::2], lengths, began) if count else None
