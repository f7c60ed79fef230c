"""Student's t: intervals and tests of means and contrasts whose variances are estimated from few runs.

One sample: Student (1908). Several independent samples with variances of their own: Welch (1938), with Satterthwaite's
(1946) degrees of freedom. Differences that are all equal have no variance, and the sign test takes over. A
statistic that is no mean (a share of another mean) enters as jackknife pseudo-values. A percentile bootstrap of two
values would cover the truth half of the time, of five 83 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .bootstrap import LEVEL
from .scores import Array, deviations

ROUNDING = 1e-9  # of a score: less is no difference
MAX_SUMS = 100_000  # of the gaps of several tasks, that are kept apart


class TEstimate(NamedTuple):
    """Mean over groups, its interval (None where there is none) and the two-sided p of a mean of 0."""

    value: float
    low: float | None
    high: float | None
    p: float
    error: float = 0.0  # standard error; 0 where nothing varies
    freedom: float = math.inf  # degrees of freedom of the error


def degrees_of_freedom(variances: Array, sizes: Sequence[int]) -> Array:
    """Satterthwaite's, of a sum of independent means: variances [groups, ...] of the means -> [...].

    (Σ v)² / Σ v² / (n − 1), which is n − 1 for one group. 1 where nothing varies.
    """
    freedoms = np.asarray(sizes, dtype=np.float64).reshape(-1, *[1] * (variances.ndim - 1)) - 1
    total = variances.sum(axis=0)
    weight = (variances**2 / freedoms).sum(axis=0)
    return np.asarray(np.where(total > 0, total, 1) ** 2 / np.where(total > 0, weight, 1))


def t_reach(variances: Array, sizes: Sequence[int]) -> Array:
    """Half the width of the interval of a sum of independent means: variances [groups, ...] of the means -> [...]."""
    from scipy.special import stdtrit

    freedom = degrees_of_freedom(variances, sizes)
    return np.asarray(stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(variances.sum(axis=0)))


def t_p_value(value: float, variances: Array, sizes: Sequence[int]) -> float:
    """Two-sided p of the hypothesis that a sum of independent means is 0: variances [groups] of the means."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees_of_freedom(variances, sizes), -abs(value) / np.sqrt(variances.sum())))


def mean_over_groups(
    values: Sequence[float], variances: Sequence[float], sizes: Sequence[int], pairs: Sequence[int] = ()
) -> TEstimate:
    """Mean of independent groups' values.

    variances, sizes: of the independent samples behind them, with so many runs (at least 2): one a group where runs are
    paired, several where not (Welch). pairs: of runs in each group; by default `sizes`. Where nothing varies, p is the
    sign test's over pairs, and there is an interval only if p is below 1 − `LEVEL` or nothing differs.
    """
    value, parts = float(np.mean(values)), np.array(variances) / len(values) ** 2
    error = math.sqrt(parts.sum())
    if error <= ROUNDING * max(abs(value), 1e-3):
        p = sign_test(zip(values, pairs or sizes, strict=True))
        clear = p < 1 - LEVEL or all(abs(x) <= ROUNDING for x in values)
        return TEstimate(value, value if clear else None, value if clear else None, p)
    reach, freedom = float(t_reach(parts, sizes)), float(degrees_of_freedom(parts, sizes))
    return TEstimate(value, value - reach, value + reach, t_p_value(value, parts, sizes), error, freedom)


def welch(a: Sequence[Array], b: Sequence[Array]) -> TEstimate:
    """Mean over tasks of mean(a) − mean(b), runs [n_t] of each task on both sides, all independent.

    Where no side has any spread, p is that of the exact permutation test, and there is an interval only where nothing
    differs.
    """
    groups = [*a, *b]
    gaps = [float(x.mean() - y.mean()) for x, y in zip(a, b, strict=True)]
    value = float(np.mean(gaps))
    variances = np.array([(deviations(c) ** 2).sum() / (len(c) - 1) / len(c) for c in groups]) / len(a) ** 2
    if not variances.any():
        end = None if max(map(abs, gaps)) > ROUNDING else value
        return TEstimate(value, end, end, permutation_test(gaps, [*map(len, a)], [*map(len, b)]))
    group_sizes = [len(c) for c in groups]
    reach, freedom = float(t_reach(variances, group_sizes)), float(degrees_of_freedom(variances, group_sizes))
    p, error = t_p_value(value, variances, group_sizes), math.sqrt(variances.sum())
    return TEstimate(value, value - reach, value + reach, p, error, freedom)


def sign_test(differences: Iterable[tuple[float, int]]) -> float:
    """Two-sided p of (difference, pairs) per group, where all pairs of a group differ by the same; ties are left out.

    A t-test would give such pairs p = 0, but scores are often multiples of 1/n, so that two or three equal differences
    are not rare.
    """
    signs = [(gap > 0, n) for gap, n in differences if abs(gap) > ROUNDING]
    n, above = sum(n for _, n in signs), sum(n for is_above, n in signs if is_above)
    tail = sum(math.comb(n, i) for i in range(min(above, n - above) + 1))
    return min(1.0, tail / 2.0 ** (n - 1))


def permutation_test(gaps: Sequence[float], n: Sequence[int], m: Sequence[int]) -> float:
    """Two-sided p, twice the one-sided, of the sum of the gaps between n and m runs of each task, where those of a side
    are all equal: the share of the ways to split the runs of every task that give as large a sum."""
    from scipy.special import comb

    sums: Array = np.zeros(1)
    shares: Array = np.ones(1)
    grid, tolerance = 1e-5 * sum(map(abs, gaps)), ROUNDING
    for gap, a, b in zip(gaps, n, m, strict=True):
        i = np.arange(min(a, b) + 1)  # runs that change sides with as many of the other's
        sums = np.add.outer(sums, gap * (1 - i / a - i / b)).ravel()
        shares = np.multiply.outer(shares, comb(a, i) * comb(b, i) / comb(a + b, a)).ravel()
        if len(sums) > MAX_SUMS:  # of many tasks; p can only become larger
            places, group = np.unique(np.round(sums / grid), return_inverse=True)
            sums, shares = grid * places, np.bincount(group, weights=shares).astype(np.float64)
            tolerance += grid / 2
    as_large = sums * np.sign(sum(gaps)) >= abs(sum(gaps)) - tolerance
    return min(1.0, float(2 * shares[as_large].sum()))


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
        """Two-sided p of the hypothesis that the true value is at the border of the range that `outcome` tests. None
        without an interval, and where no run differs."""
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
    neither interval nor p, nor does a share of a mean that is 0 without one of its runs; where nothing varies there is
    a p, but no interval where runs are too few for it (`mean_over_groups`).
    """
    values = {env: statistic(_means(samples)) for env, samples in tasks.items()}
    counts = [[len(x) for x in samples] for samples in tasks.values()]
    n = tuple(sum(of_sample) for of_sample in zip(*counts, strict=True))
    variances, sizes = [], []
    for samples, size in zip(tasks.values(), counts, strict=True):
        groups = [range(len(samples))] if by_seed else [[i] for i in range(len(samples))]
        variances += [_jackknife_variance(samples, members, statistic) for members in groups]
        sizes += size[:1] if by_seed else size
    if not np.isfinite(variances).all():
        return Contrast(float(np.mean(list(values.values()))), None, None, None, n, values)
    estimate = mean_over_groups(list(values.values()), variances, sizes, list(map(min, counts)))
    return Contrast(*estimate[:4], n, values, estimate.error, estimate.freedom)


def _means(samples: Sequence[Array]) -> Array:
    return np.array([x.mean() for x in samples])


def _jackknife_variance(samples: Sequence[Array], members: Sequence[int], statistic: Statistic) -> float:
    """Jackknife variance of the statistic due to the samples at `members`, from pseudo-values without run i of all of
    them; NaN of one run, or where a pseudo-value is not finite."""
    n, means = len(samples[members[0]]), _means(samples)
    if n < 2:
        return math.nan
    leave_one_out = []
    for run in range(n):
        means_without = means.copy()
        for i in members:
            means_without[i] = np.delete(samples[i], run).mean()
        with np.errstate(divide="ignore", invalid="ignore"):
            leave_one_out.append(statistic(means_without))
    pseudo_values = n * statistic(means) - (n - 1) * np.array(leave_one_out)
    return float(pseudo_values.var(ddof=1) / n) if np.isfinite(pseudo_values).all() else math.nan
