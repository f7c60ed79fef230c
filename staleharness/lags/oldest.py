"""The oldest version in the buffer, for every actor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("oldest")
@dataclass(frozen=True)
class Oldest(LagModel):
    """Always K − 1 phases behind, once that many phases have passed."""

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, draw.held[0], dtype=np.int64))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {held(phase, capacity)[0]: 1.0}
