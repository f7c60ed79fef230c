"""The same lag for all rows of a phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep, option


@LAGS.register("oldest")
@dataclass(frozen=True)
class Oldest(LagModel):
    """Always K − 1 phases behind, once that many phases have passed."""

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, draw.held[0], dtype=np.int64))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {held(phase, capacity)[0]: 1.0}


@LAGS.register("fixed")
@dataclass(frozen=True)
class Fixed(LagModel):
    """Always `lag` phases behind, once that many phases have passed (Cleanba is `fixed:1`)."""

    lag: int = option(least=0)  # phases

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, max(0, draw.phase - self.lag), dtype=np.int64))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {max(0, phase - self.lag): 1.0}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.lag + 1, capacity)


@LAGS.register("exact")
@dataclass(frozen=True)
class Exact(LagModel):
    """Always `age` phases behind, after `bootstrap` phases without lag (0: `age` of them).

    Runs of different ages begin alike, and after the bootstrap no row is younger than `age`.

    Leaves out: queues and timing; the age is imposed. In the phases after the bootstrap, versions that have already
    acted act again.
    """

    paper = "Moe-Zbeeb/staleness-analysis on prime-rl 0.9, 2026-10"

    age: int = option(least=0)  # phases
    bootstrap: int = 0  # phases; 0: `age` of them

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("bootstrap", self.bootstrap == 0 or self.bootstrap >= self.age, f"0, or at least {self.age}")

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, self._version(draw.phase)))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {self._version(phase): 1.0}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.age + 1, capacity)

    def _version(self, phase: int) -> int:
        return phase if phase < (self.bootstrap or self.age) else phase - self.age
