"""Differences seed by seed, with intervals that are right for few seeds.

A percentile bootstrap of two values holds the truth half of the time, of five 83 %. Here the interval is Student's,
over seeds within environments; a statistic that is no mean (a share of another mean) is handed to it as jackknife
pseudo-values, one a seed. For a difference of means that is the paired t-test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..bootstrap import LEVEL
from ..scores import Array
from .part import Outcome

ROUNDING = 1e-9  # of a score: less is no difference

Statistic = Callable[[Array], float]  # means [terms] -> what is asked


@dataclass(frozen=True)
class Contrast:
    """An estimate, averaged over environments."""

    value: float
    low: float | None  # None where there is no interval: see `contrast`
    high: float | None
    p: float | None  # two-sided, of no difference
    n: int  # pairs of runs, or runs
    envs: Mapping[str, float]  # the same of each environment

    def outcome(self, be: str, margin: float = 0.0) -> Outcome:
        """Whether the whole interval lies where the claim says, or outside of it. `more`: above the margin; `less`:
        below minus the margin; `alike`: between the two."""
        if self.low is None or self.high is None:
            return "open"
        low, high = (self.low, self.high) if be != "less" else (-self.high, -self.low)
        if be == "alike":
            inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        else:
            inside, outside = low > margin, high <= margin
        return "yes" if inside else "no" if outside else "open"


def contrast(tasks: Mapping[str, Array], statistic: Statistic) -> Contrast:
    """`statistic` of the means of values [terms, seeds] per environment, averaged over environments.

    Environments are independent, seeds are paired; degrees of freedom are Welch's and Satterthwaite's. An environment
    of one seed leaves neither interval nor p; seeds that all differ by the same leave p alone, and no interval where
    they are too few for it.
    """
    from scipy.special import stdtr, stdtrit

    values = {env: statistic(v.mean(axis=1)) for env, v in tasks.items()}
    value, n = float(np.mean(list(values.values()))), sum(v.shape[1] for v in tasks.values())
    if min(v.shape[1] for v in tasks.values()) < 2:
        return Contrast(value, None, None, None, n, values)
    parts = np.array([_error(v, statistic) / len(tasks) ** 2 for v in tasks.values()])  # [tasks], variances
    error = float(np.sqrt(parts.sum()))
    if no_spread(error, value):  # runs of the same bits, a ceiling, or gaps that happen to be equal
        p = of_signs([(values[env], v.shape[1]) for env, v in tasks.items()])
        known = value if p < 1 - LEVEL or not any(map(_apart, values.values())) else None
        return Contrast(value, known, known, p, n, values)
    freedom = parts.sum() ** 2 / sum(part**2 / (v.shape[1] - 1) for part, v in zip(parts, tasks.values(), strict=True))
    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p = float(2 * stdtr(freedom, -abs(value) / error))
    return Contrast(value, value - reach, value + reach, p, n, values)


def no_spread(error: float, value: float) -> bool:
    """Whether a standard error is nothing but rounding."""
    return error <= ROUNDING * max(abs(value), 1e-3)


def of_signs(gaps: Iterable[tuple[float, int]]) -> float:
    """p of pairs of which so many differ by the same, (gap, pairs) per environment: that of the sign test, which leaves
    out ties, for a t-test would take them for certain. Scores are often multiples of 1/n, so two or three such pairs
    are no rarity."""
    apart = [(gap > 0, n) for gap, n in gaps if _apart(gap)]
    n, above = sum(n for _, n in apart), sum(n for more, n in apart if more)
    tail = sum(math.comb(n, i) for i in range(min(above, n - above) + 1))
    return min(1.0, tail / 2.0 ** (n - 1))


def _apart(gap: float) -> bool:
    return abs(gap) > ROUNDING


def _error(values: Array, statistic: Statistic) -> float:
    """Variance of the statistic of values [terms, seeds], from its jackknife pseudo-values."""
    n = values.shape[1]
    left_out = np.array([statistic(np.delete(values, i, axis=1).mean(axis=1)) for i in range(n)])
    pseudo = n * statistic(values.mean(axis=1)) - (n - 1) * left_out
    return float(pseudo.var(ddof=1) / n)
