"""Seeds needed to see a difference between two settings: a two-sided t-test at 5 %, with 80 % power."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .scores import Array, deviations
from .t_intervals import t_p_value

POWER, ALPHA = 0.80, 0.05
MOST = 1000  # seeds that are tried
BLOCK = 2**16  # numbers that are drawn at once


def power(n: int, effect: float, alpha: float = ALPHA) -> float:
    """Probability that a two-sided t-test of n against n independent runs sees a difference of `effect` standard
    deviations."""
    from scipy.special import nctdtr, stdtrit

    freedom, shift = 2 * n - 2, abs(effect) * np.sqrt(n / 2)
    border = stdtrit(freedom, 1 - alpha / 2)
    tails = nctdtr(freedom, shift, [border, -border])
    within, beyond = np.nan_to_num(tails)  # SciPy has NaN where a tail is too small for it
    return float(1 - within + beyond)


def seeds_needed(effect: float, target: float = POWER, alpha: float = ALPHA) -> int | None:
    """Return the runs of each setting, at least 2, with which `power` reaches the target; None if more than `MOST`."""
    if not power(MOST, effect, alpha) >= target:
        return None
    low, high = 1, MOST  # power rises with n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, effect, alpha) >= target else (middle, high)
    return max(high, 2)


def detectable_effect(n: int, target: float = POWER, alpha: float = ALPHA) -> float:
    """Return the difference [standard deviations] that n against n runs see with the target power, to 1e-6."""
    low, high = 0.0, 1.0
    while power(n, high, alpha) < target:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if power(n, middle, alpha) >= target else (middle, high)
    return high


def spread(columns: Sequence[Array]) -> float:
    """Standard deviation within settings, pooled over columns of runs [runs_i]."""
    squares = sum(float((deviations(c) ** 2).sum()) for c in columns)
    return float(np.sqrt(squares / sum(len(c) - 1 for c in columns)))


def p_value(a: Array, b: Array) -> float:
    """Two-sided p of Welch's t-test of runs a against b. Where neither side has any spread, which the t-test would take
    for certain: of the exact rank test, 2 of all ways to deal out the runs."""
    errors = np.array([(deviations(c) ** 2).sum() / (len(c) - 1) / len(c) for c in (a, b)])
    if not errors.any():
        return 1.0 if a[0] == b[0] else min(1.0, 2 / math.comb(len(a) + len(b), len(a)))
    return t_p_value(float(a.mean() - b.mean()), errors, (len(a), len(b)))


def simulated_power(
    columns: Sequence[Array],
    difference: float,
    n: int,
    rng: np.random.Generator,
    reps: int = 4000,
    alpha: float = ALPHA,
) -> float:
    """Simulate `power` without a normal distribution: runs are drawn from the deviations of stored runs from the mean
    of their setting, and one side is shifted by `difference`."""
    from scipy.special import stdtrit

    # Deviations from a mean of k runs are too small by sqrt((k - 1) / k).
    pool = np.concatenate([deviations(c) * np.sqrt(len(c) / (len(c) - 1)) for c in columns])
    (mean_a, variance_a), (mean_b, variance_b) = (_moments(pool, n, reps, rng) for _ in range(2))
    error = np.sqrt((variance_a + variance_b) / n)
    gap = mean_b + difference - mean_a
    return float((np.abs(gap) > stdtrit(2 * n - 2, 1 - alpha / 2) * error).mean())


def _moments(pool: Array, n: int, reps: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Mean and variance [reps] of samples of n from a pool, drawn in blocks to bound memory."""
    mean, variance = np.empty((2, reps))
    step = max(1, BLOCK // n)
    for begin in range(0, reps, step):
        rows = slice(begin, min(begin + step, reps))
        samples = pool[rng.integers(len(pool), size=(rows.stop - begin, n))]
        mean[rows], variance[rows] = samples.mean(axis=1), samples.var(axis=1, ddof=1)
    return mean, variance
