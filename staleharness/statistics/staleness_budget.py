"""Staleness budget of a method: the largest mean lag at which it retains a given share of its on-policy score.

`retention_curve` has the share of the synchronous IQM that is retained at each mean lag of one environment. That share
is assumed not to rise with lag (an antitonic fit of the IQMs, 1 at lag 0) and to be linear between measured lags.
Beyond the largest of them, and between lag 0 and the smallest, there are no data: there the budget is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bootstrap import REPS, TAILS, iqm, percentiles, stable_seed
from .lag_curve import LagCurve
from .scores import Array

KEEP = 0.95  # share of the synchronous IQM to retain
WORDS = {"at least": "largest measured", "below": "smallest measured"}


@dataclass(frozen=True)
class Limit:
    """A mean lag within the measured range; or a bound, where the data end."""

    lag: float
    kind: str = "="  # "=", "at least", "below"

    @property
    def words(self) -> str:
        """Text such as `3.1`, `at least 7.5 (largest measured)`, `below 1.5 (smallest measured)`."""
        return f"{self.lag:.1f}" if self.kind == "=" else f"{self.kind} {self.lag:.1f} ({WORDS[self.kind]})"

    def sign(self, digits: int = 1) -> str:
        """Return text such as `3.1`, `≥ 7.5`, `< 1.5`."""
        return {"=": "", "at least": "≥ ", "below": "< "}[self.kind] + f"{self.lag:.{digits}f}"

    def allows(self, lag: float) -> bool:
        """Return whether the data show a lag to be within this budget."""
        return self.kind != "below" and lag <= self.lag

    def forbids(self, lag: float) -> bool:
        """Return whether the data show a lag to be above this budget."""
        return {"=": lag > self.lag, "below": lag >= self.lag, "at least": False}[self.kind]


@dataclass(frozen=True)
class RetentionCurve:
    """Share of the synchronous IQM retained at each lag of a curve, and in bootstrap resamples of it."""

    lags: Array  # [m]
    raw: Array  # [m], measured
    fit: Array  # [m], antitonic
    replicates: Array  # [reps, m], antitonic
    raw_replicates: Array  # [reps, m], as measured
    reference: Array  # [reps], resampled synchronous IQM
    resampling: str  # "paired" or "independent"

    def at(self, lag: float) -> tuple[float, float, float] | None:
        """Return (share, low, high) at a mean lag; None beyond the largest measured."""
        if not 0 <= lag <= self.lags[-1]:
            return None
        low, high = percentiles(self.replicates_at(lag))
        return float(np.interp(lag, self.lags, self.fit)), float(low), float(high)

    def interval_of_points(self) -> tuple[Array, Array]:
        """Ends [m] of the intervals of the shares as measured, which may rise with lag and exceed 1."""
        return percentiles(self.raw_replicates)

    def replicates_at(self, lag: float) -> Array:
        """Shares retained at a mean lag in each resample [reps]."""
        i = int(np.clip(np.searchsorted(self.lags, lag), 1, len(self.lags) - 1))
        left, right = self.lags[i - 1 : i + 1]
        part = (lag - left) / (right - left)
        return np.asarray((1 - part) * self.replicates[:, i - 1] + part * self.replicates[:, i])

    def budget(self, keep: float = KEEP) -> tuple[Limit, Limit, Limit]:
        """Return the budget and the ends of its interval."""
        resamples = crossings(self.replicates, self.lags, keep)
        low, high = np.percentile(resamples, TAILS, method="inverted_cdf")
        estimate = crossings(self.fit[None], self.lags, keep)[0]
        return self._limit(estimate), self._limit(low), self._limit(high)

    def _limit(self, lag: float) -> Limit:
        if np.isinf(lag):
            return Limit(float(self.lags[-1]), "at least") if lag > 0 else Limit(float(self.lags[1]), "below")
        return Limit(float(lag))


def retention_curve(curve: LagCurve, reps: int = REPS) -> RetentionCurve:
    """Shares retained by a curve, and by `reps` bootstrap resamples of its seeds.

    Where all settings have the same seeds, whole seeds are drawn, so that a seed's effect at every lag cancels.
    """
    rng = np.random.default_rng(stable_seed("budget", curve.algorithm, curve.env))
    places = curve.resample_seeds(reps, rng)
    iqms = np.stack([iqm(s[at]) for s, at in zip(curve.scores, places, strict=True)], axis=-1)
    point = np.array([iqm(s) for s in curve.scores])
    weights = np.array([len(s) for s in curve.scores], dtype=np.float64)
    raw = point / point[0] if point[0] else np.ones_like(point)
    fit, replicates = shares(point[None], weights)[0], shares(iqms, weights)
    design = "paired" if curve.is_paired else "independent"
    return RetentionCurve(curve.lags, raw, fit, replicates, _ratios(iqms), iqms[:, 0], design)


def _ratios(iqms: Array) -> Array:
    """Divide IQMs [reps, m] by the first; 1 where that is not above zero."""
    above = iqms[:, :1] > 0
    return np.where(above, iqms / np.where(above, iqms[:, :1], 1.0), 1.0)


def shares(iqms: Array, weights: Array) -> Array:
    """Divide IQMs [reps, m] by the first and make them not rise: 1, then the antitonic fit of the rest, at most 1.

    Where the synchronous IQM is not above zero every share is 1.
    """
    ratio = _ratios(iqms)[:, 1:]
    return np.concatenate([np.ones((len(iqms), 1)), np.minimum(antitonic(ratio, weights[1:]), 1.0)], axis=1)


def antitonic(values: Array, weights: Array) -> Array:
    """Weighted least squares among non-rising sequences, for each row of [reps, m].

    The max-min formula (Barlow et al., 1972): entry i is the minimum over beginnings a ≤ i of the maximum over ends
    b ≥ i of the weighted mean of a..b.
    """
    m = values.shape[1]
    sums = np.zeros((len(values), m + 1))
    sums[:, 1:] = np.cumsum(values * weights, axis=1)
    weight_sums = np.append(0.0, np.cumsum(weights))
    fit = np.empty_like(values)
    for i in range(m):
        over_ends = [
            np.max((sums[:, i + 1 :] - sums[:, a : a + 1]) / (weight_sums[i + 1 :] - weight_sums[a]), axis=1)
            for a in range(i + 1)
        ]
        fit[:, i] = np.min(over_ends, axis=0)
    return fit


def crossings(rows_of_shares: Array, lags: Array, keep: float) -> Array:
    """Lag at which each row of non-rising shares [reps, m] falls below `keep`: [reps].

    Minus infinity where the smallest lag after 0 is already below, infinity where none is.
    """
    under = rows_of_shares < keep
    i = np.where(under.any(axis=1), under.argmax(axis=1), len(lags))
    inside = (i > 1) & (i < len(lags))
    out = np.where(i <= 1, -np.inf, np.inf)
    rows, j = np.flatnonzero(inside), i[inside]
    high, low = rows_of_shares[rows, j - 1], rows_of_shares[rows, j]
    out[rows] = lags[j - 1] + (lags[j] - lags[j - 1]) * (high - keep) / (high - low)
    return out
