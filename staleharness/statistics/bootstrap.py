"""Aggregate scores and their 95 % stratified bootstrap intervals: the one room that knows rliable.

Scores come as one column per task, `columns[t]` of shape [..., runs of task t]: runs are always the last
axis, tasks are always the sequence, so the two cannot be swapped and tasks may have unequal numbers of runs.
A stratified bootstrap resamples the runs of each task independently (Agarwal et al., 2021).

rliable draws from the *global* NumPy generator whatever `random_state` it is given. Here that generator is
seeded from the name of the cell and put back afterwards, so that an interval depends on its own scores and
name only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AGGREGATES = ("iqm", "median", "mean", "optimality_gap")
LEVEL = 0.95  # of every interval


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
    capped = np.stack([np.minimum(c, 1.0).mean(axis=-1) for c in columns], axis=-1)
    parts = [pooled_iqm(*columns), np.median(means, axis=-1), means.mean(axis=-1), 1.0 - capped.mean(axis=-1)]
    return np.stack(parts, axis=-1)


def pooled_iqm(*columns: Array) -> Array:
    """IQM over all runs of all tasks: columns [..., runs_t] -> [...]."""
    return iqm(np.concatenate(columns, axis=-1))


def mean_of_tasks(*columns: Array) -> Array:
    """Mean over tasks of the mean over runs: columns [..., runs_t] -> [..., 1]."""
    return np.asarray(np.stack([c.mean(axis=-1) for c in columns], axis=-1).mean(axis=-1)[..., None])


def improvement(x: Sequence[Array], y: Sequence[Array]) -> Array:
    """P(a run of x scores higher than a run of y), ties counting half, averaged over tasks: [...]."""
    chances = []
    for a, b in zip(x, y, strict=True):
        difference = a[..., :, None] - b[..., None, :]
        chances.append(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(-2, -1)))
    return np.asarray(np.stack(chances, axis=-1).mean(axis=-1))


def stable_seed(*name: Any) -> int:
    """A 32-bit seed from a cell's name, the same in every process and on every machine."""
    text = json.dumps(name, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


@contextlib.contextmanager
def global_numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator inside the block and restore its state afterwards, whatever happens."""
    state = np.random.get_state()  # noqa: NPY002  rliable offers no other way in
    try:
        np.random.seed(seed)  # noqa: NPY002
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def rliable_interval(
    statistic: Callable[..., Array], columns: Sequence[Array], *, name: tuple[Any, ...], reps: int
) -> tuple[Array, Array]:
    """Low and high end of `statistic(*columns) -> [m]` by rliable's stratified percentile bootstrap, each
    [m].

    `name` identifies the cell (metric, algorithm, capacity) and seeds the resampling.
    """
    from rliable import library

    if len({len(c) for c in columns}) == 1:
        bootstrap = library.StratifiedBootstrap(np.stack(columns, axis=1))
    else:  # strata of unequal size, each [runs, 1]
        bootstrap = library.StratifiedIndependentBootstrap(*[c[:, None] for c in columns])
    with global_numpy_seed(stable_seed(*name)):
        drawn = [strata for strata, _ in bootstrap.bootstrap(reps)]
    # rliable would call the statistic for each resample; of all of them at once it takes a fraction of the time.
    matrices = [
        np.stack(strata) for strata in zip(*drawn, strict=True)
    ]  # [reps, runs, tasks], one or one per task
    return percentiles(statistic(*(column for m in matrices for column in np.moveaxis(m, -1, 0))))


def rliable_points(*columns: Array) -> Array:
    """IQM, median, mean, optimality gap as `rliable.metrics` defines them: [4].

    Where tasks have unequal numbers of runs rliable has no matrix to work on; the same definitions, column by
    column.
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
    """As `rliable_interval`, vectorised and without rliable: for live previews and as a cross-check."""
    rng = np.random.default_rng(stable_seed(*name))
    return percentiles(statistic(*resample(columns, reps, rng)))


def curve_band(
    tasks: Sequence[Array], *, name: tuple[Any, ...], reps: int
) -> tuple[Array, Array | None, Array | None]:
    """IQM over runs of the curves of each task, [runs_t, points], and its pointwise interval: each [points].

    Whole runs are resampled, within their task. The interval is None where a task has one run only.
    """
    middle = iqm(np.concatenate(tasks).T)
    if min(len(t) for t in tasks) < 2:
        return middle, None, None
    rng = np.random.default_rng(stable_seed(*name))
    drawn = [t[rng.integers(len(t), size=(reps, len(t)))] for t in tasks]  # each [reps, runs_t, points]
    low, high = percentiles(iqm(np.swapaxes(np.concatenate(drawn, axis=1), 1, 2)))
    return middle, low, high


def percentiles(replicates: Array) -> tuple[Array, Array]:
    """The two ends of the percentile interval over the first axis."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(replicates, [tail, 100 - tail], axis=0)
    return low, high


class Engine(NamedTuple):
    """Who computes the table: the four aggregates, and an interval of any statistic."""

    points: Callable[..., Array]
    interval: Callable[..., tuple[Array, Array]]


ENGINES = {"rliable": Engine(rliable_points, rliable_interval), "quick": Engine(aggregates, fast_interval)}
