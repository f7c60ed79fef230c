"""Statistics of a log in bounded memory: a weighted histogram of its lags, and how they change along it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MAX_BINS = 2**20  # distinct lags
EXACT = 52  # bits of a double's mantissa


class LagHistogram:
    """A weighted histogram of lags, one bin per distinct lag.

    Beyond `MAX_BINS` bins, lags whose leading `bits` bits are equal share one, at their weighted
    mean: the overall mean is kept, and a quantile is within a share `error` of its value.
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
        # adding zero turns -0 into 0, since bins compare bits
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
        low, high = lags[begins], lags[np.append(begins[1:], len(lags)) - 1]
        self.weights = np.add.reduceat(weights, begins)
        means = np.add.reduceat(lags * weights, begins) / self.weights
        self.lags = np.where(low == high, low, np.clip(means, low, high))


def _begins(lags: Numbers, bits: int) -> NDArray[np.intp]:
    """Places at which sorted lags differ in their leading bits from the previous one: [number of bins]."""
    leading = lags.view(np.int64) >> (EXACT - bits)
    return np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))


SEGMENTS = 512  # at least this many once there are as many rows; at most twice as many
LEAST = 8  # rows below which no drift is reported
SHARE = 0.25  # of the mean: a smaller change is not reported
ERRORS = 4.0  # standard errors: a smaller change is not reported


class Drift(NamedTuple):
    """Mean lag of the first and of the last quarter of a log."""

    first: float
    last: float

    def times(self, factor: float) -> Drift:
        return Drift(self.first * factor, self.last * factor)

    def to_json(self) -> dict[str, Any]:
        return {"first_quarter": self.first, "last_quarter": self.last}


class DriftMeter:
    """Sums of lags over segments with equal numbers of rows, which double when there are too many segments."""

    def __init__(self) -> None:
        self._sums = np.zeros((4, 2 * SEGMENTS))  # of weights w, of w², of w · lag, of w · lag²
        self._length = 1  # rows of a segment
        self._rows = 0

    def add(self, lags: Numbers, weights: Numbers | None = None) -> None:
        """Add lags [m] in the order of the log, NaN: missing; and the weights [m] of rows in a mean, by default 1."""
        weights = np.ones(len(lags)) if weights is None else weights
        terms = np.stack([weights, weights**2, weights * lags, weights * lags**2])[:, ~np.isnan(lags)]
        while terms.shape[1]:
            room = 2 * SEGMENTS * self._length - self._rows
            chunk, terms = terms[:, :room], terms[:, room:]
            segments = (self._rows + np.arange(chunk.shape[1])) // self._length
            self._sums += [np.bincount(segments, term, 2 * SEGMENTS) for term in chunk]
            self._rows += chunk.shape[1]
            if self._rows == 2 * SEGMENTS * self._length:
                pairs = self._sums.reshape(4, SEGMENTS, 2).sum(2)
                self._sums = np.hstack([pairs, np.zeros_like(pairs)])
                self._length *= 2

    def drift(self) -> Drift | None:
        """Return the means of the first and the last quarter; None unless they differ by more than chance and `SHARE`.

        Chance: `ERRORS` standard errors of the difference, from the variance of rows within each quarter.
        """
        if self._rows < LEAST:
            return None
        segments = -(-self._rows // self._length)
        width = max(1, segments // 4)
        quarters = []
        for part in (slice(0, width), slice(segments - width, segments)):
            total, squares, *moments = self._sums[:, part].sum(1).tolist()
            mean, square = (moment / total for moment in moments)
            quarters.append((mean, max(0.0, square - mean**2) * squares / total**2))
        (first, first_error), (last, last_error) = quarters
        overall_mean = float(self._sums[2].sum() / self._sums[0].sum())
        chance = ERRORS * (first_error + last_error) ** 0.5
        return Drift(first, last) if abs(last - first) > max(SHARE * overall_mean, chance) else None
