"""Contrasts of runs, with intervals that are right for few seeds.

A percentile bootstrap of two values covers the truth half of the time, of five 83 %. The interval of a contrast is
Student's, over runs within environments; a statistic that is no mean (a share of another mean) enters as jackknife
pseudo-values. For a difference of means this is Welch's test, or of seeds that share their random numbers the paired
t-test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .scores import Array
from .t_intervals import mean_over_groups

Outcome = Literal["yes", "no", "open"]
Statistic = Callable[[Array], float]  # of means [terms]


@dataclass(frozen=True)
class Contrast:
    """An estimate, averaged over environments."""

    value: float
    low: float | None  # None without an interval: see `contrast`
    high: float | None
    p: float | None  # two-sided, of no difference
    n: tuple[int, ...]  # runs on each side, in all environments
    envs: Mapping[str, float]  # the same of each environment
    error: float = 0.0  # standard error; 0: unknown, or nothing varies
    freedom: float = math.inf  # degrees of freedom

    def p_beyond(self, be: str, margin: float = 0.0) -> float | None:
        """Two-sided p of `outcome`: of a value at the border of the claim's range. None without an interval, and where
        no run differs."""
        if not self.error:
            return self.p if self.low is not None and self.value else None
        from scipy.special import stdtr

        value = -self.value if be == "less" else abs(self.value) if be == "alike" else self.value
        return float(2 * stdtr(self.freedom, -abs(value - margin) / self.error))

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


def contrast(tasks: Mapping[str, Sequence[Array]], statistic: Statistic, by_seed: bool = False) -> Contrast:
    """`statistic` of the means of several samples per environment, [runs] each, averaged over environments.

    by_seed: run i of every sample shares its random numbers. Environments are independent. A sample of one run leaves
    neither interval nor p; where nothing varies p is left alone, and no interval where runs are too few for it
    (`mean_over_groups`).
    """
    values = {env: statistic(_means(samples)) for env, samples in tasks.items()}
    counts = [[len(x) for x in samples] for samples in tasks.values()]
    n = tuple(sum(of_sample) for of_sample in zip(*counts, strict=True))
    if min(map(min, counts)) < 2:
        return Contrast(float(np.mean(list(values.values()))), None, None, None, n, values)
    variances, sizes = [], []
    for samples, size in zip(tasks.values(), counts, strict=True):
        together = [range(len(samples))] if by_seed else [[i] for i in range(len(samples))]
        variances += [_jackknife_variance(samples, which, statistic) for which in together]
        sizes += size[:1] if by_seed else size
    estimate = mean_over_groups(list(values.values()), variances, sizes, list(map(min, counts)))
    return Contrast(*estimate[:4], n, values, estimate.error, estimate.freedom)


def _means(samples: Sequence[Array]) -> Array:
    return np.array([x.mean() for x in samples])


def _jackknife_variance(samples: Sequence[Array], which: Sequence[int], statistic: Statistic) -> float:
    """Variance of the statistic that the samples at `which` bring, run i of all of them being left out together; from
    the pseudo-values."""
    n, means = len(samples[which[0]]), _means(samples)
    without_one = []
    for run in range(n):
        left = means.copy()
        for i in which:
            left[i] = np.delete(samples[i], run).mean()
        without_one.append(statistic(left))
    pseudo_values = n * statistic(means) - (n - 1) * np.array(without_one)
    return float(pseudo_values.var(ddof=1) / n)
