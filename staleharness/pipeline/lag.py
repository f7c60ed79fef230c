"""How old the data were when they were trained on: per row and per decision, in versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .log import FATES, Ints, Record

TRAINED = FATES.index("trained")


def measured(record: Record) -> NDArray[np.bool_]:
    """[n] rows that were trained on, from the step `warm` on."""
    rows: NDArray[np.bool_] = (record.fate == TRAINED) & (record.step >= record.warm)
    return rows


def row_lags(record: Record) -> dict[str, NDArray[np.float64]]:
    """Lags of the measured rows: of the version a row began with, its oldest, its newest, and the mean over its
    decisions; and how much of the first was gathered before the queue and how much in it."""
    rows = measured(record)
    first = np.searchsorted(record.stretch_row, np.arange(len(rows)))
    last = np.append(first[1:], len(record.stretch_row)) - 1
    length = stretch_lengths(record)
    weighted = np.bincount(record.stretch_row, length * record.stretch_version, len(rows))
    step = record.step[rows]
    at_queue = np.searchsorted(record.step_ended, record.queued[rows], side="right")
    start = record.stretch_version[first][rows]
    return {
        "start": (step - start).astype(float),
        "oldest": (step - np.minimum.reduceat(record.stretch_version, first)[rows]).astype(float),
        "newest": (step - record.stretch_version[last][rows]).astype(float),
        "token_weighted": step - (weighted / np.maximum(record.done, 1))[rows],
        "before_queue": (at_queue - start).astype(float),
        "in_queue": (step - at_queue).astype(float),
    }


def stretch_lengths(record: Record) -> Ints:
    """[m] decisions of each stretch."""
    begin = np.append(0, record.stretch_end[:-1])
    begin[np.append(True, record.stretch_row[1:] != record.stretch_row[:-1])] = 0
    length: Ints = record.stretch_end - begin
    return length


def histogram(record: Record) -> dict[int, int]:
    """Lag -> decisions, over the stretches of the measured rows."""
    row = record.stretch_row
    kept = measured(record)[row]
    lag = (record.step[row] - record.stretch_version)[kept]
    counted = np.bincount(lag, stretch_lengths(record)[kept])
    return {int(lag): int(n) for lag, n in enumerate(counted) if n}


def lag_summary(record: Record) -> dict[str, Any]:
    """The lags in numbers. `under_way` is what Little's law makes of the rows found on the way at each new version;
    it equals the mean of `start` where weights arrive at once, none is dropped and the state is steady. The bound
    is `max_lag`, or else the cap."""
    lags, pipeline = row_lags(record), record.pipeline
    bound = pipeline.cap if pipeline.max_lag is None else pipeline.max_lag
    start = lags["start"]
    trained, begun = record.tokens[measured(record)], record.tokens
    return {
        **{f"{name}_mean": float(values.mean()) for name, values in lags.items()},
        "start_p95": float(np.percentile(start, 95)), "start_max": int(start.max()),
        "oldest_max": int(lags["oldest"].max()),
        "under_way": float(record.under_way[record.warm :].mean() / record.pipeline.batch),
        "share_at_bound": None if bound is None else float((start == int(bound)).mean()),
        "share_above_bound": None if bound is None else float((start > bound).mean()),
        "rows": {str(int(lag)): int(n) for lag, n in zip(*np.unique(start, return_counts=True), strict=True)},
        "tokens": {str(lag): n for lag, n in histogram(record).items()},
        "tokens_trained_mean": float(trained.mean()), "tokens_begun_mean": float(begun.mean()),
    }  # fmt: skip
