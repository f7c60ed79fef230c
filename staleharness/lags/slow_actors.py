"""A few slow actors among fast ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep


@LAGS.register("slow_actors")
@dataclass(frozen=True)
class SlowActors(LagModel):
    """Every `every`-th actor is `lag` phases behind, and the others `fast`: heterogeneous machines, where the
    same ones are always slow.

    If `every` divides the number of rows, the share of slow rows is exactly 1/every. On control an actor is an
    environment, so a slow actor's data always come from the same environment; on language tasks it is a prompt's group.
    """

    lag: int  # phases
    every: int = 8  # actors
    fast: int = 0  # phases

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("lag", self.lag >= 0, "0 or above")
        self.require("every", self.every >= 1, "at least 1 actor")
        self.require("fast", 0 <= self.fast <= self.lag, "from 0 to `lag`")

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.maximum(0, draw.phase - self._lags(draw.slots)))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        versions, counts = np.unique(np.maximum(0, phase - self._lags(self.every)), return_counts=True)
        return {int(v): float(n) / self.every for v, n in zip(versions, counts, strict=True)}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.lag + 1, capacity)

    def _lags(self, slots: int) -> NDArray[np.int64]:
        """[slots]"""
        slow = np.arange(1, slots + 1) % self.every == 0
        return np.where(slow, self.lag, self.fast)
