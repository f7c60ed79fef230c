"""What is read off a recording: a pipeline with its times, and a buffer with its mean lag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from staleharness.lag import read_lag
from staleharness.lags.real_time import Async
from staleharness.store.stored_run import StoredRun
from staleharness.trace import read_trace


def fitted(trace: Path, load: str, capacity: int) -> str:
    """The model `queue` whose actors, room and bound are those of a load, and whose times are those of its trace.

    A row takes a lognormal time, with mean and deviation of the groups that were finished, in units of a training step;
    that lasts from when a batch was taken until the version that it led to was announced.
    """
    header, rows = read_trace(str(trace))
    real = read_lag(load)
    assert isinstance(real, Async)
    groups = rows.drop_duplicates("group")
    took = (groups["made_at"] - groups["began_at"]).dropna()
    step = training_seconds(header["published_at"], rows).mean()
    batch = int((groups["phase"] == 0).sum())
    return (
        f"queue[capacity={max(1.0, real.queue)},max_lag={capacity - 1},slots={real.actors / batch:.4g},"
        f"row_time={took.mean() / step:.4g},cv={took.std() / took.mean():.3g}]"
    )


def training_seconds(published: list[float], rows: pd.DataFrame) -> np.ndarray:
    """Of each phase that a version was announced after, which the last one is not."""
    began = rows[rows["phase"] >= 0].groupby("phase")["trained_at"].first().sort_index().to_numpy()
    return np.array(published) - began[: len(published)]


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
    wanted, phases = mean_lag(run), int(run.record["phases"])
    return min(range(1, phases + 1), key=lambda capacity: abs(uniform_mean(capacity, phases) - wanted))


def uniform_mean(capacity: int, phases: int) -> float:
    """Mean lag of a uniform buffer over a run: phase t has min(t + 1, K) versions to draw from."""
    return float(np.mean([(min(t + 1, capacity) - 1) / 2 for t in range(phases)]))
