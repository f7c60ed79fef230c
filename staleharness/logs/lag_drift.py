"""Change of the lag along a log, from means of consecutive rows in bounded memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SEGMENTS = 512  # that are held at most
LEAST = 8  # rows below which no drift is told
SHARE = 0.25  # of the mean: a smaller change is none
ERRORS = 4.0  # standard errors: a smaller change is none


class Drift(NamedTuple):
    """Mean lag of the first and of the last quarter of a log."""

    first: float
    last: float

    def times(self, factor: float) -> Drift:
        return Drift(self.first * factor, self.last * factor)

    def to_json(self) -> dict[str, Any]:
        return {"first_quarter": self.first, "last_quarter": self.last}


class DriftMeter:
    """Sums of lags over segments of equally many rows, which double when there are too many."""

    def __init__(self) -> None:
        self._sums = np.zeros((2, 2 * SEGMENTS))  # of lags, of their squares
        self._length = 1  # rows of a segment
        self._rows = 0

    def add(self, lags: NDArray[np.float64]) -> None:
        """Add lags [m] in the order of the log; NaN: missing."""
        lags = lags[~np.isnan(lags)]
        while len(lags):
            room = 2 * SEGMENTS * self._length - self._rows
            now, lags = lags[:room], lags[room:]
            places = (self._rows + np.arange(len(now))) // self._length
            np.add.at(self._sums[0], places, now)
            np.add.at(self._sums[1], places, now**2)
            self._rows += len(now)
            if self._rows == 2 * SEGMENTS * self._length:
                pairs = self._sums.reshape(2, SEGMENTS, 2).sum(2)
                self._sums = np.hstack([pairs, np.zeros_like(pairs)])
                self._length *= 2

    def drift(self) -> Drift | None:
        """Return the means of both quarters where they differ by more than chance and by more than `SHARE` of the mean.

        Chance: `ERRORS` standard errors of the difference, the deviation of rows around the mean of their own quarter.
        """
        if self._rows < LEAST:
            return None
        segments = -(-self._rows // self._length)
        counts = np.full(segments, self._length)
        counts[-1] = self._rows - self._length * (segments - 1)
        width = max(1, segments // 4)
        quarters = []
        for part in (slice(0, width), slice(segments - width, segments)):
            n = int(counts[part].sum())
            mean, square = self._sums[:, part].sum(1) / n
            quarters.append((float(mean), max(0.0, float(square - mean**2)) / n))
        (first, first_error), (last, last_error) = quarters
        mean_of_all = float(self._sums[0].sum()) / self._rows
        chance = ERRORS * (first_error + last_error) ** 0.5
        return Drift(first, last) if abs(last - first) > max(SHARE * mean_of_all, chance) else None
