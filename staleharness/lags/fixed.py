"""The same lag for every actor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep


@LAGS.register("fixed")
@dataclass(frozen=True)
class Fixed(LagModel):
    """Always `lag` phases behind, once that many phases have passed (Cleanba is `fixed:1`)."""

    lag: int  # phases

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("lag", self.lag >= 0, "0 or above")

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, max(0, draw.phase - self.lag), dtype=np.int64))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {max(0, phase - self.lag): 1.0}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.lag + 1, capacity)
