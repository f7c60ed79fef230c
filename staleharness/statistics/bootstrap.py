"""Aggregate scores and their 95 % stratified bootstrap intervals: the only module that knows rliable.

Scores come as one column per task, `columns[t]` of shape [..., runs of task t]: runs are always the last
axis, tasks are always the sequence, so the two cannot be swapped and tasks may have unequal numbers of runs.
A stratified bootstrap resamples the runs of each task independently (Agarwal et al., 2021).

rliable draws from the *global* NumPy generator whatever `random_state` it is given, one resample at a time, and
importing its bootstrap takes seconds (it loads statsmodels). Here its resamples are drawn at once, from a generator of
the same kind, seeded by the name of the cell, so that an interval depends on its own scores and name only. Tests
compare them with rliable's own, bit for bit.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .table import AGGREGATES

Array = NDArray[np.float64]
LEVEL = 0.95  # of every interval
TAILS = (50 * (1 - LEVEL), 100 - 50 * (1 - LEVEL))  # percentiles at its ends
REPS = 2000  # resamples


def iqm(scores: Array) -> Array:
    """Mean of the middle half of the last axis: a quarter (rounded down) is cut from each end."""
    count = scores.shape[-1]
    cut = count // 4
    return np.asarray(np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1))


def aggregates(*columns: Array) -> Array:
    """IQM, median, mean and optimality gap, stacked on a new last axis: columns [..., runs_t] -> [..., 4].

    IQM pools all runs of all tasks; median and mean are over the tasks' means; the optimality gap is how far
    scores stay below 1 on average, scores above 1 counting as 1.
    """
    means = np.stack([c.mean(axis=-1) for c in columns], axis=-1)
    clipped_means = np.stack([np.minimum(c, 1.0).mean(axis=-1) for c in columns], axis=-1)
    parts = [pooled_iqm(*columns), np.median(means, axis=-1), means.mean(axis=-1), 1.0 - clipped_means.mean(axis=-1)]
    return np.stack(parts, axis=-1)


def pooled_iqm(*columns: Array) -> Array:
    """IQM over all runs of all tasks: columns [..., runs_t] -> [...]."""
    return iqm(np.concatenate(columns, axis=-1))


def mean_of_tasks(*columns: Array) -> Array:
    """Mean over tasks of the mean over runs: columns [..., runs_t] -> [..., 1]."""
    return np.asarray(np.stack([c.mean(axis=-1) for c in columns], axis=-1).mean(axis=-1)[..., None])


def improvement(x: Sequence[Array], y: Sequence[Array]) -> Array:
    """P(a run of x scores higher than a run of y), ties counting half, averaged over tasks: [...]."""
    chances = [_wins(a, b).mean(axis=(-2, -1)) for a, b in zip(x, y, strict=True)]
    return np.asarray(np.stack(chances, axis=-1).mean(axis=-1))


def resampled_improvement(x: Sequence[Array], y: Sequence[Array], reps: int, rng: np.random.Generator) -> Array:
    """`improvement` of `resample(x)` over `resample(y)` [reps], bit for bit, from how often each run was drawn: every
    pair of runs is compared once, and counts of halves are exact."""
    draws = [[_draws(len(c), reps, rng) for c in columns] for columns in (x, y)]
    chances = [
        (of_a @ _wins(a, b) * of_b).sum(axis=-1) / (len(a) * len(b))
        for a, b, of_a, of_b in zip(x, y, *draws, strict=True)
    ]
    return np.asarray(np.stack(chances, axis=-1).mean(axis=-1))


def _wins(a: Array, b: Array) -> Array:
    """[..., n, m] of runs [..., n] and [..., m]: 1 where a's is higher, half where they tie."""
    difference = a[..., :, None] - b[..., None, :]
    return np.asarray((difference > 0) + 0.5 * (difference == 0))


def _draws(n: int, reps: int, rng: np.random.Generator) -> Array:
    """Count draws of each of n runs per resample [reps, n], with the generator's numbers used as in `resample`."""
    places = rng.integers(n, size=(reps, n)) + n * np.arange(reps)[:, None]
    return np.bincount(places.ravel(), minlength=reps * n).reshape(reps, n).astype(np.float64)


def stable_seed(*name: Any) -> int:
    """A 32-bit seed from a cell's name, the same in every process and on every machine."""
    text = json.dumps(name, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def rliable_resamples(columns: Sequence[Array], reps: int, seed: int) -> list[Array]:
    """Stratified resamples of columns [runs_t] -> [reps, runs_t]: those that `rliable.library`'s bootstrap draws from
    NumPy's global generator after this seed, all at once and without that generator."""
    rng = np.random.RandomState(seed)  # the generator that rliable draws from
    sizes = [len(c) for c in columns]
    if len(set(sizes)) == 1:  # it resamples a matrix [runs, tasks]
        places = rng.randint(sizes[0], size=(reps, sizes[0], len(columns)))
        resamples = np.stack(columns, axis=1)[places, np.arange(len(columns))]
        return list(np.moveaxis(resamples, -1, 0))
    draws = [[rng.randint(n, size=n) for n in sizes] for _ in range(reps)]
    return [c[np.stack(at)] for c, at in zip(columns, zip(*draws, strict=True), strict=True)]


def rliable_interval(
    statistic: Callable[..., Array], columns: Sequence[Array], *, name: tuple[Any, ...], reps: int
) -> tuple[Array, Array]:
    """Low and high end of `statistic(*columns) -> [m]` by rliable's stratified percentile bootstrap, each
    [m].

    `name` identifies the cell (metric, algorithm, capacity) and seeds the resampling.
    """
    return percentiles(statistic(*rliable_resamples(columns, reps, stable_seed(*name))))


def rliable_points(*columns: Array) -> Array:
    """IQM, median, mean, optimality gap as `rliable.metrics` defines them: [4].

    Where tasks have unequal numbers of runs rliable has no matrix to work on; the same definitions are applied
    column by column.
    """
    from rliable import metrics

    if len({len(c) for c in columns}) > 1:
        return aggregates(*columns)
    matrix = np.stack(columns, axis=1)  # [runs, tasks]
    functions = [getattr(metrics, f"aggregate_{name}") for name in AGGREGATES]
    return np.array([f(matrix) for f in functions], dtype=np.float64)


def resample(columns: Sequence[Array], reps: int, rng: np.random.Generator) -> list[Array]:
    """Stratified resamples of columns [runs_t] -> [reps, runs_t], all at once."""
    return [c[rng.integers(len(c), size=(reps, len(c)))] for c in columns]


def fast_interval(
    statistic: Callable[..., Array], columns: Sequence[Array], *, name: tuple[Any, ...], reps: int
) -> tuple[Array, Array]:
    """Compute `rliable_interval`, vectorised and without rliable: for live previews and as a cross-check."""
    rng = np.random.default_rng(stable_seed(*name))
    return percentiles(statistic(*resample(columns, reps, rng)))


def curve_band(tasks: Sequence[Array], *, name: tuple[Any, ...], reps: int) -> tuple[Array, Array | None, Array | None]:
    """IQM over runs of the curves of each task, [runs_t, points], and its pointwise interval: each [points].

    Whole runs are resampled, within their task. The interval is None where a task has one run only. Bands are cached:
    a figure is drawn at two widths, and figures of one study share curves.
    """
    return _band(tuple((t.shape, t.tobytes()) for t in tasks), name, reps)


@functools.lru_cache(maxsize=4096)
def _band(
    content: tuple[tuple[tuple[int, ...], bytes], ...], name: tuple[Any, ...], reps: int
) -> tuple[Array, Array | None, Array | None]:
    tasks = [np.frombuffer(data, np.float64).reshape(shape) for shape, data in content]
    middle = iqm(np.concatenate(tasks).T)
    if min(len(t) for t in tasks) < 2:
        return middle, None, None
    rng = np.random.default_rng(stable_seed(*name))
    places = [rng.integers(len(t), size=(reps, len(t))) for t in tasks]
    # Point by point, so that the sorted values stay in the processor's cache.
    points = zip(*(np.ascontiguousarray(t.T) for t in tasks), strict=True)
    resamples = (np.concatenate([x[at] for x, at in zip(point, places, strict=True)], axis=1) for point in points)
    low, high = percentiles(np.stack([_iqm_of_rows(rows) for rows in resamples], axis=-1))
    return middle, low, high


def _iqm_of_rows(scores: Array) -> Array:
    """`iqm` of [rows, runs], where each row is summed from its smallest value up, whatever the memory layout."""
    count = scores.shape[-1]
    middle = np.sort(scores, axis=-1)[:, count // 4 : count - count // 4]
    return np.asarray(np.ascontiguousarray(middle.T).sum(axis=0) / middle.shape[-1])


def percentiles(replicates: Array) -> tuple[Array, Array]:
    """Ends of the percentile interval over the first axis."""
    low, high = np.percentile(replicates, TAILS, axis=0)
    return low, high


class Engine(NamedTuple):
    """Implementation behind a table: the four aggregates, and an interval of any statistic."""

    points: Callable[..., Array]
    interval: Callable[..., tuple[Array, Array]]


ENGINES = {"rliable": Engine(rliable_points, rliable_interval), "quick": Engine(aggregates, fast_interval)}
