"""Differences between methods: Welch's t-tests with Holm's correction, F ratio, probability of improvement and effect
size of every pair; and the seeds needed to see one: a two-sided t-test at 5 %, with 80 % power."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ..errors import UserError, nearest
from ..store.run_grid import Cell, RunGrid
from .bootstrap import REPS, improvement, percentiles, resampled_improvement, rliable_interval, stable_seed
from .scores import Array, deviations, final_score
from .t_tests_and_intervals import TEstimate, welch

POWER, ALPHA = 0.80, 0.05
MAX_SEEDS = 1000  # seeds that are tried
BLOCK = 2**16  # numbers that are drawn at once
Scores = Mapping[str, Array]  # label -> final scores [runs]


@dataclass(frozen=True)
class MethodDifference:
    """Difference `a` − `b` of the mean scores. The ends are None where the means differ but the runs of each method are
    all equal. Runs are not paired by seed: under two methods their random numbers soon differ."""

    a: str
    b: str
    mean: float
    low: float | None  # ends of Welch's interval, of this difference alone
    high: float | None
    p: float  # of Welch's two-sided t-test; of the exact permutation test where nothing varies (`welch`)
    holm: float  # p with Holm's correction for all comparisons of the list

    @property
    def significant(self) -> bool:
        """Return whether it is significant with Holm's correction."""
        return self.holm < ALPHA


def final_scores(run_grid: RunGrid, k: int, env: str, score: str) -> dict[str, Array]:
    """Final scores [runs] of each method, in the order of the seeds."""
    cells = (Cell(label, k, env) for label in run_grid.labels)
    return {c.label: np.array([final_score(r, score) for r in run_grid.cells[c]]) for c in cells if c in run_grid.cells}


def compare_with_baseline(scores: Scores, baseline: str) -> list[MethodDifference]:
    """Compare every other method with one, corrected together. Pairs with a method of one run are left out."""
    return _differences(scores, ((label, baseline) for label in scores if label != baseline))


def compare_all_pairs(scores: Scores) -> list[MethodDifference]:
    """Compare every method with every other once, corrected together."""
    return _differences(scores, combinations(scores, 2))


def _differences(scores: Scores, pairs: Iterable[tuple[str, str]]) -> list[MethodDifference]:
    pairs = [pair for pair in pairs if all(len(scores[label]) > 1 for label in pair)]
    tests = [welch([scores[a]], [scores[b]]) for a, b in pairs]
    results = {label: tuple(runs.tolist()) for label, runs in scores.items()}  # equal seed by seed
    p_holm = holm_of_results([test.p for test in tests], [(results[a], results[b]) for a, b in pairs])
    return [MethodDifference(a, b, *test[:4], p) for (a, b), test, p in zip(pairs, tests, p_holm, strict=True)]


def holm_of_results(p: Sequence[float], sides: Sequence[tuple[Hashable, Hashable]]) -> list[float]:
    """Correct p values with `holm`, where `sides` are the results that each test compares.

    Tests of the same results, as from methods that are one computation at some setting, count once; a comparison of
    equal results is no test and has p = 1.
    """
    p_of = {frozenset(pair): value for pair, value in zip(sides, p, strict=True) if pair[0] != pair[1]}
    p_holm = dict(zip(p_of, holm([*p_of.values()]).tolist(), strict=True))
    return [p_holm.get(frozenset(pair), 1.0) for pair in sides]


def results_key(columns: Iterable[Array]) -> tuple[tuple[float, ...], ...]:
    """Return the scores [runs] of each task in ascending order: a key that copies of a computation share."""
    return tuple(tuple(sorted(column.tolist())) for column in columns)


def holm(p: Sequence[float]) -> Array:
    """Correct p values so that they bound the probability of any false one among them (Holm, 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=float)[order] * np.arange(len(order), 0, -1)
    p_holm = np.empty(len(order))
    p_holm[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return p_holm


def holm_level(p: Sequence[float]) -> float:
    """Return the largest p that is below `ALPHA` after Holm's correction for all of them, or 0."""
    return max((value for value, p_holm in zip(p, holm(p), strict=True) if p_holm < ALPHA), default=0.0)


def f_ratio(columns: Sequence[Array]) -> float:
    """Mean square between methods over that between the seeds of a method, [runs_i] each: 1 where methods differ by no
    more than seeds do. Infinite where seeds do not differ at all, NaN of one method, of one run each or where all
    runs score the same."""
    all_scores, groups = np.concatenate(columns), len(columns)
    if groups < 2 or len(all_scores) == groups or not np.ptp(all_scores):
        return float("nan")
    between = sum(len(c) * (c.mean() - all_scores.mean()) ** 2 for c in columns) / (groups - 1)
    within = sum((deviations(c) ** 2).sum() for c in columns) / (len(all_scores) - groups)
    return float(between / within) if within else float("inf")


def improvement_over(run_grid: RunGrid, baseline: str, score: str, reps: int = REPS) -> list[dict[str, Any]]:
    """Probability that a run of an algorithm ends higher than a run of `baseline` at the same capacity, with interval.

    Averaged over the environments that both have; 0.5 is a draw. One record {algorithm, baseline, capacity, n_tasks,
    probability, low, high} per algorithm and capacity; needs no normalisation. Raises `UserError` where the baseline
    has no run.
    """
    if baseline not in run_grid.labels:
        raise UserError(f"baseline={baseline!r} has no run; {nearest(baseline, run_grid.labels)}")
    records: list[dict[str, Any]] = []
    pairs = [(label, baseline) for label in run_grid.labels if label != baseline]
    for k, label, _, x, y in _scores_of_pairs(run_grid, pairs, score):

        def chance(*columns: Array, tasks: int = len(x)) -> Array:
            return improvement(columns[:tasks], columns[tasks:])

        record = {"algorithm": label, "baseline": baseline, "capacity": k, "n_tasks": len(x)}
        record |= {"probability": float(improvement(x, y)), "low": None, "high": None}
        if min(map(len, [*x, *y])) > 1:
            name = ("improvement", f"{label} over {baseline}", k)
            low, high = rliable_interval(chance, [*x, *y], name=name, reps=reps)
            record |= {"low": float(low), "high": float(high)}
        records.append(record)
    return records


def method_pairs(run_grid: RunGrid, score: str, reps: int = REPS) -> list[dict[str, Any]]:
    """Make a row {capacity, a, b, n_envs, probability, low, high, effect} for each ordered pair of methods with runs on
    the same environments at a capacity.

    probability: that a run of `a` ends higher than a run of `b`, ties half, averaged over environments; with the ends
    of a 95 % bootstrap interval over seeds within each environment, None where a side has one run only.
    effect: `hedges_g`.
    """
    rows = []
    for k, a, b, x, y in _scores_of_pairs(run_grid, list(permutations(run_grid.labels, 2)), score):
        row = {"capacity": k, "a": a, "b": b, "n_envs": len(x)}
        rows.append(row | _chance(x, y, (k, *sorted((a, b))), a > b, reps) | {"effect": hedges_g(x, y)})
    return rows


def _scores_of_pairs(
    run_grid: RunGrid, pairs: Sequence[tuple[str, str]], score: str
) -> Iterator[tuple[int, str, str, list[Array], list[Array]]]:
    """Yield (capacity, a, b, final scores of a, of b) of pairs of methods, [runs] in each environment that has both."""
    for k in run_grid.capacities:
        scores = [final_scores(run_grid, k, env, score) for env in run_grid.envs]
        for a, b in pairs:
            if envs := [of_env for of_env in scores if a in of_env and b in of_env]:
                yield k, a, b, [of_env[a] for of_env in envs], [of_env[b] for of_env in envs]


def hedges_g(x: Sequence[Array], y: Sequence[Array]) -> float | None:
    """Hedges' g of x over y, each a list of scores [runs] per environment: mean over environments.

    (mean x − mean y) / pooled deviation, corrected for few runs; None for one run each, or runs without any spread.
    """
    effects = []
    for a, b in zip(x, y, strict=True):
        freedom = len(a) + len(b) - 2
        if freedom < 1:
            return None
        deviation = np.sqrt(((deviations(a) ** 2).sum() + (deviations(b) ** 2).sum()) / freedom)
        if deviation == 0:
            return None
        effects.append((a.mean() - b.mean()) / deviation * (1.0 - 3.0 / (4.0 * freedom - 1.0)))
    return float(np.mean(effects))


def _chance(
    x: Sequence[Array], y: Sequence[Array], name: tuple[Any, ...], mirror: bool, reps: int
) -> dict[str, float | None]:
    """Probability with its interval; a pair and its mirror image have the same resamples, so that the two add up to
    1."""
    probability = float(improvement(x, y))
    if min(map(len, [*x, *y])) < 2:
        return {"probability": probability, "low": None, "high": None}
    rng = np.random.default_rng(stable_seed("pairs", *name))
    chance = 1.0 - resampled_improvement(y, x, reps, rng) if mirror else resampled_improvement(x, y, reps, rng)
    low, high = percentiles(chance)
    return {"probability": probability, "low": float(low), "high": float(high)}


def power(n: int, effect: float) -> float:
    """Probability that a two-sided t-test of n against n independent runs detects a difference of `effect` standard
    deviations."""
    from scipy.special import nctdtr, stdtrit

    freedom, shift = 2 * n - 2, abs(effect) * np.sqrt(n / 2)
    critical = stdtrit(freedom, 1 - ALPHA / 2)
    tails = nctdtr(freedom, shift, [critical, -critical])
    within, beyond = np.nan_to_num(tails)  # SciPy returns NaN where a tail is too small for it
    return float(1 - within + beyond)


def seeds_needed(effect: float) -> int | None:
    """Return the number of runs of each setting, at least 2, at which `power` reaches `POWER`; None above
    `MAX_SEEDS`."""
    if not power(MAX_SEEDS, effect) >= POWER:
        return None
    # the power rises with n
    return 2 + bisect.bisect_left(range(2, MAX_SEEDS), True, key=lambda n: power(n, effect) >= POWER)


def detectable_difference(test: TEstimate, level: float) -> float:
    """Return the difference that a two-sided t-test of this standard error and degrees of freedom detects with power
    `POWER` at a level; 0 where nothing varies."""
    from scipy.special import nctdtrinc, stdtrit

    if not test.error:
        return 0.0
    return float(test.error * nctdtrinc(test.freedom, 1 - POWER, stdtrit(test.freedom, 1 - level / 2)))


def spread(columns: Sequence[Array]) -> float:
    """Standard deviation within settings, pooled over columns of runs [runs_i]."""
    squares = sum(float((deviations(c) ** 2).sum()) for c in columns)
    return float(np.sqrt(squares / sum(len(c) - 1 for c in columns)))


def simulated_power(
    columns: Sequence[Array], difference: float, n: int, rng: np.random.Generator, reps: int = 4000
) -> float:
    """Simulate `power` without assuming normality: runs are drawn from the deviations of stored runs from the mean
    of their setting, and one side is shifted by `difference`."""
    from scipy.special import stdtrit

    # Deviations from a mean of k runs are too small by sqrt((k - 1) / k).
    pool = np.concatenate([deviations(c) * np.sqrt(len(c) / (len(c) - 1)) for c in columns])
    (mean_a, variance_a), (mean_b, variance_b) = (_moments(pool, n, reps, rng) for _ in range(2))
    error = np.sqrt((variance_a + variance_b) / n)
    gap = mean_b + difference - mean_a
    return float((np.abs(gap) > stdtrit(2 * n - 2, 1 - ALPHA / 2) * error).mean())


def _moments(pool: Array, n: int, reps: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Mean and variance [reps] of samples of n from a pool, drawn in blocks to bound memory."""
    mean, variance = np.empty((2, reps))
    step = max(1, BLOCK // n)
    for begin in range(0, reps, step):
        rows = slice(begin, min(begin + step, reps))
        samples = pool[rng.integers(len(pool), size=(rows.stop - begin, n))]
        mean[rows], variance[rows] = samples.mean(axis=1), samples.var(axis=1, ddof=1)
    return mean, variance
