"""Recent versions act more often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, DrawnLag


@LAGS.register("geometric")
@dataclass(frozen=True)
class Geometric(DrawnLag):
    """P(lag = j) ∝ decay^j over the buffer: recent versions act more often; decay 1 is `uniform`."""

    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("decay", 0 < self.decay <= 1, "above 0 and at most 1")

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.power(self.decay, lag)
