"""Recent versions act more often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("geometric")
@dataclass(frozen=True)
class Geometric(LagModel):
    """P(lag = j) ∝ decay^j over the buffer: recent versions act more often; decay 1 is `uniform`."""

    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("decay", 0 < self.decay <= 1, "above 0 and at most 1")

    def assign(self, draw: Draw) -> Assignment:
        share = self._shares(len(draw.held))
        return keep(draw.phase - draw.generator().choice(len(share), size=draw.slots, p=share))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        share = self._shares(len(held(phase, capacity))).tolist()
        return {phase - lag: p for lag, p in enumerate(share) if p > 0.0}

    def _shares(self, versions: int) -> NDArray[np.float64]:
        weight = np.power(self.decay, np.arange(versions, dtype=np.float64))
        share: NDArray[np.float64] = weight / weight.sum()
        return share
