"""Retention: the share of its on-policy score that a method retains with stale data, and the staleness budget.

`retention` is a share of mean scores at one capacity, mean over environments. `retention_curve` has the share of the
synchronous IQM at each mean lag of one environment; its budget is the largest mean lag that retains a given share. That
share is assumed not to rise with lag (an antitonic fit of the IQMs, 1 at lag 0) and to be linear between measured lags.
Beyond the largest of them, and between lag 0 and the smallest, there are no data: there the budget is a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..store.run_grid import Cell, RunGrid
from .bootstrap import LEVEL, iqm, percentiles, resample, stable_seed
from .lag_curve import LagCurve
from .scores import Array, constants, final_score

REPS = 2000  # bootstrap resamples
KEEP = 0.95  # share of the synchronous IQM to retain
MIN_GAIN = 0.1  # share of the best method's gain over random that counts as having learned
TAILS = (50 * (1 - LEVEL), 100 - 50 * (1 - LEVEL))
WORDS = {"at least": "largest measured", "below": "smallest measured"}


class Retention(NamedTuple):
    """Share of the K = 1 score above random that remains at a capacity, with its interval."""

    share: float
    low: float | None
    high: float | None


def random_returns(envs: Sequence[str], score: str) -> dict[str, float]:
    """Returns of a random policy, for the environments listed in `normalisation.json`."""
    frozen = constants()["envs"]
    entries = {env: frozen.get(env, {}).get("random", {}).get(score) for env in envs}
    return {env: float(entry["return"]) for env, entry in entries.items() if entry}


def retention(
    run_grid: RunGrid, label: str, k: int, score: str, *, base: tuple[str, int] | None = None, accuracy: bool = False
) -> Retention | None:
    """Mean over environments of (score at K − random) / (score at 1 − random), each score a mean over seeds.

    `base`: the (algorithm, K) without lag, if it is not this one at K = 1. An `accuracy` is counted from 0.

    None where a method has no runs at K or at 1, no environment has a known random return, or the method did not learn
    at K = 1 in one of them (it gained less than a tenth of the best method's gain), so that a share is meaningless. The
    interval resamples the seeds of both capacities independently.
    """
    zero = dict.fromkeys(run_grid.envs, 0.0) if accuracy else random_returns(run_grid.envs, score)
    reference, reference_k = base or (label, 1)
    top, bottom, zeros = [], [], []
    for env in run_grid.envs:
        at_k, without_lag = (
            run_grid.cells.get(Cell(name, c, env), []) for name, c in ((label, k), (reference, reference_k))
        )
        if at_k and without_lag and env in zero:
            top.append(np.array([final_score(r, score) for r in at_k]))
            bottom.append(np.array([final_score(r, score) for r in without_lag]))
            zeros.append(zero[env])
            if not has_learned(run_grid, reference, env, score, zero[env], k=reference_k, alone=base is not None):
                return None
    if not top:
        return None
    share = float(_share(top, bottom, zeros))
    if (label, k) == (reference, reference_k) or min(map(len, [*top, *bottom])) < 2:
        return Retention(share, None, None)
    rng = np.random.default_rng(stable_seed("retained", label, k))
    low, high = percentiles(_share(resample(top, REPS, rng), resample(bottom, REPS, rng), zeros)[..., None])
    return Retention(share, float(low[0]), float(high[0]))


def has_learned(
    run_grid: RunGrid, label: str, env: str, score: str, zero: float, *, k: int = 1, alone: bool = False
) -> bool:
    """Return whether a method gained at least a tenth of the best one's gain at capacity `k`; `alone`: any gain."""
    gains = {
        cell.label: float(np.mean([final_score(run, score) for run in runs])) - zero
        for cell, runs in run_grid.cells.items()
        if (cell.capacity, cell.env) == (k, env)
    }
    best = gains.get(label, 0.0) if alone else max(gains.values(), default=0.0)
    return label in gains and best > 0 and gains[label] >= MIN_GAIN * best


def _share(top: Sequence[Array], base: Sequence[Array], zeros: Sequence[float]) -> Array:
    shares = [(t.mean(axis=-1) - z) / (b.mean(axis=-1) - z) for t, b, z in zip(top, base, zeros, strict=True)]
    return np.asarray(np.mean(shares, axis=0))


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

    def to_json(self) -> dict[str, Any]:
        return {"lag": self.lag, "kind": self.kind}


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
        low, high = np.percentile(self.replicates_at(lag), TAILS)
        return float(np.interp(lag, self.lags, self.fit)), float(low), float(high)

    def interval_of_points(self) -> tuple[Array, Array]:
        """Ends [m] of the intervals of the shares as measured, which may rise with lag and exceed 1."""
        low, high = np.percentile(self.raw_replicates, TAILS, axis=0)
        return low, high

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
    sizes = [len(s) for s in curve.scores]
    places = curve.resample_seeds(reps, rng)
    iqms = np.stack([iqm(s[at]) for s, at in zip(curve.scores, places, strict=True)], axis=-1)
    point = np.array([iqm(s) for s in curve.scores])
    weights = np.array(sizes, dtype=np.float64)
    raw = point / point[0] if point[0] else np.ones_like(point)
    fit, replicates = shares(point[None], weights)[0], shares(iqms, weights)
    design = "paired" if curve.is_paired else "independent"
    above = iqms[:, :1] > 0
    raw_replicates = np.where(above, iqms / np.where(above, iqms[:, :1], 1.0), 1.0)
    return RetentionCurve(curve.lags, raw, fit, replicates, raw_replicates, iqms[:, 0], design)


def shares(iqms: Array, weights: Array) -> Array:
    """Divide IQMs [reps, m] by the first and make them not rise: 1, then the antitonic fit of the rest, at most 1.

    Where the synchronous IQM is not above zero every share is 1.
    """
    reference = iqms[:, :1]
    above = reference > 0
    ratio = np.where(above, iqms[:, 1:] / np.where(above, reference, 1.0), 1.0)
    return np.concatenate([np.ones_like(reference), np.minimum(antitonic(ratio, weights[1:]), 1.0)], axis=1)


def antitonic(values: Array, weights: Array) -> Array:
    """Weighted least squares among sequences that do not rise, for each row of [reps, m].

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
