"""Most rows are quick, and a few take very long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, DrawnLag


@LAGS.register("lognormal")
@dataclass(frozen=True)
class LogNormal(DrawnLag):
    """A log-normal time in whole phases: P(lag = j) = F(j + 1) − F(j), ln X ~ N(ln median, sigma²), cut off where the
    buffer ends. It has the long tail of response lengths, and of environments that sometimes hang.

    Leaves out: that a long row also has many decisions and weighs more in a mean over tokens (where that matters, give
    a lag model that assigns by stretch, or a trace).
    """

    median: float  # phases
    sigma: float = 1.0  # of ln X

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("median", self.median > 0, "above 0")
        self.require("sigma", self.sigma > 0, "above 0")

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.array([self._below(j + 1.0) - self._below(j) for j in lag])
        if share.sum() > 0:
            return share
        return np.asarray(lag == lag.max(), dtype=np.float64)  # all of it lies behind the buffer's end

    def _below(self, phases: float) -> float:
        """P(X < phases)."""
        if phases <= 0:
            return 0.0
        return 0.5 * math.erfc((math.log(self.median) - math.log(phases)) / (self.sigma * math.sqrt(2.0)))
