"""One exact age, after a beginning without lag."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep


@LAGS.register("exact")
@dataclass(frozen=True)
class Exact(LagModel):
    """Always `age` phases behind, after `bootstrap` phases without lag.

    Runs of different ages begin alike, and after the bootstrap no row is younger than `age`.

    Leaves out: where lag comes from. In the phases after the bootstrap, versions that have acted before act again.
    """

    paper = "Moe-Zbeeb/staleness-analysis on prime-rl 0.9, 2026-10"

    age: int  # phases
    bootstrap: int = 0  # phases; 0: `age` of them

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("age", self.age >= 0, "0 or above")
        self.require("bootstrap", self.bootstrap == 0 or self.bootstrap >= self.age, f"0, or at least {self.age}")

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, self._version(draw.phase)))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {self._version(phase): 1.0}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.age + 1, capacity)

    def _version(self, phase: int) -> int:
        return phase if phase < (self.bootstrap or self.age) else phase - self.age
