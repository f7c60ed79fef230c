"""Updates that arrive at random while a row is made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, DrawnLag


@LAGS.register("poisson")
@dataclass(frozen=True)
class Poisson(DrawnLag):
    """P(lag = j) = e^-m m^j / j! with mean m, cut off where the buffer ends: rows take equally long, while the
    learner's updates come at random and independently of one another.

    Leaves out: rows of different length, and that rows acted at the same time see the same updates. With a buffer well
    above m the mean lag is m; `lag_mean` in the results is the mean that resulted.
    """

    mean: float  # phases

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("mean", self.mean >= 0, "0 or above")

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.mean == 0:
            return np.asarray(lag == 0, dtype=np.float64)
        log = lag * math.log(self.mean) - np.array([math.lgamma(j + 1.0) for j in lag])
        # the largest weight is 1, so that a large mean leaves something of a small buffer
        weight: NDArray[np.float64] = np.exp(log - log.max())
        return weight
