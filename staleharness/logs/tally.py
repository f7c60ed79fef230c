"""Distinct lags and how often each counts, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LIMIT = 2**20  # distinct lags
EXACT = 52  # bits of a double's mantissa


class Tally:
    """A weighted histogram of lags, one bin per distinct lag.

    Where there would be more than `LIMIT` bins, lags whose leading `bits` bits are equal share one, at their weighted
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
        there = ~np.isnan(lags) & ~np.isnan(weights)
        self.rows += int(there.sum())
        there &= weights > 0
        # adding zero makes 0 of -0, whose bits are another number's
        lags, weights = np.append(self.lags, lags[there] + 0.0), np.append(self.weights, weights[there])
        if not len(lags):
            return
        order = np.argsort(lags, kind="stable")
        self._merge(lags[order], weights[order])

    def _merge(self, lags: Numbers, weights: Numbers) -> None:
        begins = _begins(lags, self.bits)
        while len(begins) > LIMIT:
            self.bits -= 1
            begins = _begins(lags, self.bits)
        least, most = lags[begins], lags[np.append(begins[1:], len(lags)) - 1]
        self.weights = np.add.reduceat(weights, begins)
        means = np.add.reduceat(lags * weights, begins) / self.weights
        self.lags = np.where(least == most, least, np.clip(means, least, most))


def _begins(lags: Numbers, bits: int) -> NDArray[np.intp]:
    """Where sorted lags differ in their leading bits from the one before: [number of bins]."""
    leading = lags.view(np.int64) >> (EXACT - bits)
    return np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))
