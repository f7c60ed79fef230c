"""A weighted histogram of lags in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MAX_BINS = 2**20  # distinct lags
EXACT = 52  # bits of a double's mantissa


class LagHistogram:
    """A weighted histogram of lags, one bin per distinct lag.

    Beyond `MAX_BINS` bins, lags whose leading `bits` bits are equal share one, at their weighted
    mean: the mean of all stays, and a quantile is within a share `error` of its value.
    """

    def __init__(self) -> None:
        self.lags: Numbers = np.empty(0)  # [n], ascending
        self.weights: Numbers = np.empty(0)  # [n], above 0
        self.rows = 0
        self.bits = EXACT

    @property
    def error(self) -> float:
        return 0.0 if self.bits == EXACT else 2.0**-self.bits

    def add(self, lags: Numbers, weights: Numbers) -> None:
        """Count rows: lags [m] from 0 upwards and their weights [m]; NaN: missing, and its row does not count."""
        valid = ~np.isnan(lags) & ~np.isnan(weights)
        self.rows += int(valid.sum())
        valid &= weights > 0
        # adding zero makes 0 of -0, whose bits are another number's
        lags, weights = np.append(self.lags, lags[valid] + 0.0), np.append(self.weights, weights[valid])
        if not len(lags):
            return
        order = np.argsort(lags, kind="stable")
        self._merge(lags[order], weights[order])

    def _merge(self, lags: Numbers, weights: Numbers) -> None:
        begins = _begins(lags, self.bits)
        while len(begins) > MAX_BINS:
            self.bits -= 1
            begins = _begins(lags, self.bits)
        least, most = lags[begins], lags[np.append(begins[1:], len(lags)) - 1]
        self.weights = np.add.reduceat(weights, begins)
        means = np.add.reduceat(lags * weights, begins) / self.weights
        self.lags = np.where(least == most, least, np.clip(means, least, most))


def _begins(lags: Numbers, bits: int) -> NDArray[np.intp]:
    """Places at which sorted lags differ in their leading bits from the previous one: [number of bins]."""
    leading = lags.view(np.int64) >> (EXACT - bits)
    return np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))
