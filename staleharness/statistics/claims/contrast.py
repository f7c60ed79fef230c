"""Differences seed by seed, with intervals that are right for few seeds.

A percentile bootstrap of two values covers the truth half of the time, of five 83 %. Here the interval is Student's,
over seeds within environments; a statistic that is no mean (a share of another mean) enters as jackknife pseudo-values,
one per seed. For a difference of means this is the paired t-test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..scores import Array
from ..t_intervals import mean_over_groups
from .claim import Outcome

Statistic = Callable[[Array], float]  # of means [terms]


@dataclass(frozen=True)
class Contrast:
    """An estimate, averaged over environments."""

    value: float
    low: float | None  # None without an interval: see `contrast`
    high: float | None
    p: float | None  # two-sided, of no difference
    n: int  # pairs of runs, or runs
    envs: Mapping[str, float]  # the same of each environment

    def outcome(self, be: str, margin: float = 0.0) -> Outcome:
        """Return whether the whole interval is within the claim's range or outside of it. `more`: above the margin;
        `less`: below minus the margin; `alike`: between the two."""
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

    Environments are independent, seeds are paired. An environment of one seed leaves neither interval nor p; seeds that
    all differ by the same leave p alone, and no interval where they are too few for it (`mean_over_groups`).
    """
    values = {env: statistic(v.mean(axis=1)) for env, v in tasks.items()}
    sizes = [v.shape[1] for v in tasks.values()]
    if min(sizes) < 2:
        return Contrast(float(np.mean(list(values.values()))), None, None, None, sum(sizes), values)
    variances = [_jackknife_variance(v, statistic) for v in tasks.values()]
    return Contrast(*mean_over_groups(list(values.values()), variances, sizes), sum(sizes), values)


def _jackknife_variance(values: Array, statistic: Statistic) -> float:
    """Variance of the statistic of values [terms, seeds], from its pseudo-values."""
    n = values.shape[1]
    without_one = np.array([statistic(np.delete(values, i, axis=1).mean(axis=1)) for i in range(n)])
    pseudo_values = n * statistic(values.mean(axis=1)) - (n - 1) * without_one
    return float(pseudo_values.var(ddof=1) / n)
