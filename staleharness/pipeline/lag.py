"""How old the data were when they were trained on: per row and per decision, in versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .log import FATES, Ints, Record

TRAINED = FATES.index("trained")


def masked(record: Record) -> NDArray[np.bool_]:
    """[m] stretches of rows that were taken by the trainer, but are left out of the loss: those older than `max_lag`,
    or with stale=drop_row all of a row that has one."""
    pipeline, row = record.pipeline, record.stretch_row
    none = np.zeros(len(row), dtype=bool)
    if pipeline.max_lag is None or pipeline.stale not in ("mask", "drop_row"):
        return none
    old = (record.fate[row] == TRAINED) & (record.step[row] - record.stretch_version > pipeline.max_lag)
    if pipeline.stale == "mask":
        return np.asarray(old, dtype=np.bool_)
    whole: NDArray[np.bool_] = np.bincount(row[old], minlength=len(record.slot))[row] > 0
    return whole


def trained_rows(record: Record) -> NDArray[np.bool_]:
    """[n] rows of which at least a stretch was trained on."""
    kept = np.bincount(record.stretch_row[~masked(record)], minlength=len(record.slot)) > 0
    rows: NDArray[np.bool_] = (record.fate == TRAINED) & kept
    return rows


def measured(record: Record) -> NDArray[np.bool_]:
    """[n] rows that were trained on, from the step `warm` on."""
    rows: NDArray[np.bool_] = trained_rows(record) & (record.step >= record.warm)
    return rows


def row_lags(record: Record) -> dict[str, NDArray[np.float64]]:
    """Lags of the measured rows: of the version a row began with, its oldest, its newest, and the mean over its
    decisions (masked ones too); and how much of the first was gathered before the queue and how much in it."""
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
    """Lag -> decisions, over the stretches of the measured rows that are in the loss."""
    row = record.stretch_row
    kept = measured(record)[row] & ~masked(record)
    lag = (record.step[row] - record.stretch_version)[kept]
    counted = np.bincount(lag, stretch_lengths(record)[kept])
    return {int(lag): int(n) for lag, n in enumerate(counted) if n}


def lag_summary(record: Record) -> dict[str, Any]:
    """The lags in numbers. `under_way` is what Little's law makes of the rows found on the way at each new version;
    it equals the mean of `start` where weights arrive at once, none is dropped and the state is steady. The bound
    is `max_lag`, or else the cap. Raises `UserError` where a bound leaves nothing in the loss.
    """
    lags, pipeline = row_lags(record), record.pipeline
    bound = pipeline.cap if pipeline.max_lag is None else pipeline.max_lag
    start = lags["start"]
    if not len(start):
        raise UserError(f"max_lag={pipeline.max_lag} masks all that is trained on from step {record.warm} on")
    trained, begun = record.tokens[measured(record)], record.tokens
    return {
        **{f"{name}_mean": float(values.mean()) for name, values in lags.items()},
        "start_p95": float(np.percentile(start, 95)),
        "start_max": int(start.max()),
        "oldest_max": int(lags["oldest"].max()),
        "under_way": float(record.under_way[record.warm :].mean() / record.pipeline.batch),
        "share_at_bound": None if bound is None else float((start == int(bound)).mean()),
        "share_above_bound": None if bound is None else float((start > bound).mean()),
        "rows": {str(int(lag)): int(n) for lag, n in zip(*np.unique(start, return_counts=True), strict=True)},
        "tokens": {str(lag): n for lag, n in histogram(record).items()},
        "tokens_trained_mean": float(trained.mean()),
        "tokens_begun_mean": float(begun.mean()),
        "length_bias": float(trained.mean() / begun.mean() - 1),
    }
