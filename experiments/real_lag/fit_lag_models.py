"""Models fitted to a recording: a pipeline with its times, and a buffer with its mean lag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

from staleharness.lag import read_lag
from staleharness.lags.real_time import Async
from staleharness.store.stored_run import StoredRun
from staleharness.trace import read_trace


def fit_pipeline(trace: Path, load: str, capacity: int) -> str:
    """The model `queue` whose actors, room and bound are those of a load, and whose times are those of its trace.

    There a row takes a lognormal time, and its group is finished with the last of them; here actors finish all rows of
    a group at once. So a row has the time of which the longest of a group's has mean and deviation of the recorded
    groups, in units of a training step; that lasts from when a batch was taken until the version that it led to was
    announced. Of a load with slow actors the model has slow slots, as many and as slow as in the trace.
    """
    header, rows = read_trace(str(trace))
    real = read_lag(load)
    assert isinstance(real, Async)
    groups = rows.drop_duplicates("group")
    took = (groups["made_at"] - groups["began_at"]).dropna()
    mean, deviation, slow = took.mean(), took.std(), ""
    if real.slow and real.spread > 1:
        mean, deviation, share, factor = two_kinds(took, groups["actor"][took.index], real.actors)
        slow = f",slow={share:.4g},slow_factor={factor:.4g}"
    step = training_seconds(header["published_at"], rows).mean()
    batch = int((groups["phase"] == 0).sum())
    mean, deviation = row_times(mean / step, deviation / step, len(rows) // len(groups))
    return (
        f"queue[capacity={max(1.0, real.queue)},max_lag={capacity - 1},slots={real.actors / batch:.4g},"
        f"row_time={mean:.4g},cv={deviation / mean:.3g}{slow}]"
    )


def two_kinds(took: pd.Series, actor: pd.Series, actors: int) -> tuple[float, float, float, float]:
    """Mean and deviation of the fast actors' times, the share of the actors that are slow, and how many times as long
    these take.

    Actors, in the order of their mean times, are parted where the next one's is the most times as long; those that
    finished nothing are slow. Both kinds have one coefficient of variation, of all times over the means of their kinds.
    """
    means = took.groupby(actor).mean().sort_values()
    fast = 1 + int(np.argmax(np.diff(np.log(means))))
    kind = actor.isin(means.index[fast:])
    mean, late = took.groupby(kind).mean()
    over = took / took.groupby(kind).transform("mean")
    cv = np.sqrt(((over - 1) ** 2).sum() / (len(over) - 2))
    return mean, cv * mean, 1 - fast / actors, late / mean


def row_times(mean: float, deviation: float, rows: int) -> tuple[float, float]:
    """Mean and deviation of a lognormal time, of which the longest of `rows` has the mean and deviation given."""
    quantiles = norm.ppf(((np.arange(100_000) + 0.5) / 100_000) ** (1 / rows))

    def longest(sigma: float) -> tuple[float, float]:
        times = np.exp(sigma * quantiles)
        return float(times.mean()), float(times.std())

    def excess(sigma: float) -> float:
        middle, spread = longest(sigma)
        return spread / middle - deviation / mean

    sigma = float(brentq(excess, 1e-6, 3.0))
    time = mean / longest(sigma)[0] * np.exp(sigma**2 / 2)
    return float(time), float(time * np.sqrt(np.expm1(sigma**2)))


def training_seconds(publish_times: list[float], rows: pd.DataFrame) -> np.ndarray:
    """Seconds of training in each phase that ends with a new version; the last one does not."""
    began = rows[rows["phase"] >= 0].groupby("phase")["trained_at"].first().sort_index().to_numpy()
    durations: np.ndarray = np.array(publish_times) - began[: len(publish_times)]
    return durations


def histogram(run: StoredRun) -> list[float]:
    """Share of the decisions that were trained on, by lag in phases."""
    counts = {int(lag): count for lag, count in run.record["lag_histogram"].items()}
    total = sum(counts.values())
    return [counts.get(lag, 0) / total for lag in range(max(counts) + 1)]


def mean_lag(run: StoredRun) -> float:
    """In phases, of the decisions that were trained on."""
    return sum(lag * share for lag, share in enumerate(histogram(run)))


def equal_mean(run: StoredRun) -> int:
    """The capacity of the uniform buffer whose mean lag over as many phases, filling up included, is nearest."""
    target, phases = mean_lag(run), int(run.record["phases"])
    return min(range(1, phases + 1), key=lambda capacity: abs(uniform_mean(capacity, phases) - target))


def uniform_mean(capacity: int, phases: int) -> float:
    """Mean lag of a uniform buffer over a run: phase t has min(t + 1, K) versions to draw from."""
    return float(np.mean([(min(t + 1, capacity) - 1) / 2 for t in range(phases)]))
