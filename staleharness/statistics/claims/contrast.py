"""Differences seed by seed, with intervals that are right for few seeds.

A percentile bootstrap of two values holds the truth half of the time, of five 83 %. Here the interval is Student's,
over seeds within environments; a statistic that is no mean (a share of another mean) is handed to it as jackknife
pseudo-values, one a seed. For a difference of means that is the paired t-test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..bootstrap import LEVEL
from ..scores import Array
from .part import Outcome

ROUNDING = 1e-9  # of a score: less is no difference

Statistic = Callable[[Array], float]  # means [terms] -> what is asked


@dataclass(frozen=True)
class Contrast:
    """An estimate, averaged over environments; its ends and p are None where an environment has one seed only."""

    value: float
    low: float | None
    high: float | None
    p: float | None  # two-sided, against `null`
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

    Environments are independent, seeds are paired; degrees of freedom are Welch's and Satterthwaite's.
    """
    from scipy.special import stdtr, stdtrit

    values = {env: statistic(v.mean(axis=1)) for env, v in tasks.items()}
    value, n = float(np.mean(list(values.values()))), sum(v.shape[1] for v in tasks.values())
    if min(v.shape[1] for v in tasks.values()) < 2:
        return Contrast(value, None, None, None, n, values)
    parts = np.array([_error(v, statistic) / len(tasks) ** 2 for v in tasks.values()])  # [tasks], variances
    error = float(np.sqrt(parts.sum()))
    if no_spread(error, value):  # runs of the same bits, a ceiling, or gaps that happen to be equal
        p = of_signs(value, n)
        known = value if p < 1 - LEVEL or p == 1 else None
        return Contrast(value, known, known, p, n, values)
    freedom = parts.sum() ** 2 / sum(
        part**2 / (v.shape[1] - 1) for part, v in zip(parts, tasks.values(), strict=True)
    )
    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p = float(2 * stdtr(freedom, -abs(value) / error))
    return Contrast(value, value - reach, value + reach, p, n, values)


def no_spread(error: float, value: float) -> bool:
    """Whether a standard error is nothing but rounding."""
    return error <= ROUNDING * max(abs(value), 1e-3)


def of_signs(value: float, n: int) -> float:
    """p of n pairs that all differ by the same: that of the sign test, for a t-test would take them for certain. Scores
    are often multiples of 1/n, so two or three such pairs are no rarity."""
    return 1.0 if abs(value) <= ROUNDING else 2.0 ** (1 - n)


def _error(values: Array, statistic: Statistic) -> float:
    """Variance of the statistic of values [terms, seeds], from its jackknife pseudo-values."""
    n = values.shape[1]
    left_out = np.array([statistic(np.delete(values, i, axis=1).mean(axis=1)) for i in range(n)])
    pseudo = n * statistic(values.mean(axis=1)) - (n - 1) * left_out
    return float(pseudo.var(ddof=1) / n)
