"""Lags of a phase's rows: of their first, oldest and newest decision, and of the decisions trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..rollout_schedule import Ints
from .sample_ledger import Count

if TYPE_CHECKING:
    from torch import Tensor

MinibatchLags = tuple["Tensor", "Tensor", "Tensor"]  # of a minibatch: lag, lag in gradient steps, mask [B, T]


class LearnerRows(NamedTuple):
    """Data that a phase's learner was handed, all [B, T]; the first column of each row is a decision."""

    version: Tensor
    gradient_step: Tensor
    valid: Tensor | None = None  # 1 for a decision; None: all are
    trained: Tensor | None = None  # 1 where a decision may be trained on; None: all that are valid


class LagStats(NamedTuple):
    """Lags of a phase: metrics, histograms of decisions by lag in phases, and counts, as handed to the learner and as
    trained on."""

    columns: dict[str, float]
    handed_lags: list[int]
    trained_lags: list[int]
    handed_count: Count
    trained_count: Count


def lag_stats(rows: LearnerRows, phase: int, gradient_steps: int) -> LagStats:
    """Compute the lags of a phase. Columns are means over the sequences trained on (`trained`: over decisions); none
    where nothing was trained on.

    gradient_steps: done when the phase began.
    """
    version, step = rows.version.cpu().numpy(), rows.gradient_step.cpu().numpy()
    if (version == version[:, :1]).all():  # rows that keep their version have one lag each
        version, step = version[:, :1], step[:, :1]
    lag, gradient_lag = phase - version, gradient_steps - step
    shape = tuple(rows.version.shape)
    valid, handed_count = _weights(rows.valid, shape, lag.shape[1])
    trained, trained_count = valid, handed_count
    if rows.trained is not None and rows.trained is not rows.valid:
        trained, trained_count = _weights(rows.trained, shape, lag.shape[1])
    decisions = shape[1] // lag.shape[1]  # for each entry of `lag`, where none is left out
    handed_lags = _histogram(lag, valid, decisions)
    trained_lags = handed_lags if trained is valid else _histogram(lag, trained, decisions)
    columns: dict[str, float] = {}
    if trained_count.decisions:
        columns = _columns("lags", lag, trained) | _columns("gradient_lags", gradient_lag, trained)
    return LagStats(columns, handed_lags, trained_lags, handed_count, trained_count)


def backward_lag_metrics(rows: LearnerRows, phase: int, gradient_steps: int) -> dict[str, Any]:
    """Return backward lag over all decisions that the learner was handed: phases (mean, 95th percentile, maximum,
    histogram from lag 0 up) and gradient steps. Unlike `lags/trained`, it includes decisions that are masked or that a
    method leaves out by ending its first epoch early.

    The means are taken in single precision: they enter the checksum of published metrics.
    """
    import torch

    version, step = rows.version.flatten(), rows.gradient_step.flatten()
    if rows.valid is not None:
        valid = rows.valid.flatten() > 0
        version, step = version[valid], step[valid]
    lag = phase - version
    counts = torch.bincount(lag)
    return {
        "lag_mean": float(lag.float().mean()),
        "lag_p95": float((counts.cumsum(0) < math.ceil(0.95 * lag.numel())).sum()),
        "lag_max": len(counts) - 1,
        "lag_histogram": counts.tolist(),
        "gradient_lag_mean": float((gradient_steps - step).float().mean()),
    }


def first_and_last_lags(first: MinibatchLags | None, last: MinibatchLags | None) -> dict[str, float]:
    """Return the mean lag of the decisions of a phase's first and last minibatch, before their gradient steps."""
    out: dict[str, float] = {}
    for name, lags in (("first", first), ("last", last)):
        if lags and (count := float(lags[2].sum())):
            lag, step, mask = lags
            out[f"lags/{name}"] = float((lag * mask).sum()) / count
            out[f"gradient_lags/{name}"] = float((step * mask).sum()) / count
    return out


def mean_lag(histogram: Sequence[int]) -> float | None:
    """Return the mean lag of decisions by lag; None where there are none."""
    count = sum(histogram)
    return sum(lag * n for lag, n in enumerate(histogram)) / count if count else None


def add_histograms(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return the sum of two histograms of any lengths."""
    return [x + y for x, y in zip_longest(a, b, fillvalue=0)]


def _weights(mask: Tensor | None, shape: tuple[int, ...], columns: int) -> tuple[Ints | None, Count]:
    """Return weights and the count that they sum to: decisions of each row [B, 1], or 1 for each that counts [B, T].
    None where every decision counts."""
    if mask is None:
        return None, Count(shape[0], shape[0] * shape[1])
    present = mask.cpu().numpy() > 0
    counts = present.sum(1, keepdims=True)
    total = Count(int(np.count_nonzero(counts)), int(counts.sum()))
    if total.decisions == present.size:
        return None, total
    return (counts if columns == 1 else present.astype(np.int64)), total


def _histogram(lag: Ints, weights: Ints | None, decisions: int) -> list[int]:
    """Decisions by lag, without trailing zeros; without weights, each entry of `lag` stands for `decisions` of them."""
    counts = np.bincount(lag.ravel()) * decisions if weights is None else np.bincount(lag.ravel(), weights.ravel())
    return [int(n) for n in np.trim_zeros(counts, "b")]


def _columns(prefix: str, lag: Ints, weights: Ints | None) -> dict[str, float]:
    """Means of the lag. A row of control may go on with an older version after an episode ends, so oldest and newest
    are extremes, not its first and last decision."""
    if weights is None:
        mean = start = oldest = newest = float(lag.mean())
        if lag.shape[1] > 1:
            start, oldest, newest = (float(x.mean()) for x in (lag[:, 0], lag.max(1), lag.min(1)))
    else:
        mean = float((lag * weights).sum() / weights.sum())
        present = weights.any(1)
        start = oldest = newest = float(lag[present, 0].mean())
        if lag.shape[1] > 1:
            bound = np.iinfo(np.int64).max
            oldest = float(np.where(weights > 0, lag, -bound).max(1)[present].mean())
            newest = float(np.where(weights > 0, lag, bound).min(1)[present].mean())
    return {
        f"{prefix}/trained": mean,
        f"{prefix}/start": start,
        f"{prefix}/oldest": oldest,
        f"{prefix}/newest": newest,
        f"{prefix}/in_flight": oldest - newest,
        f"{prefix}/in_queue": newest,
    }


def external_lag_metrics(gradient_step: Tensor, now: int, updates: int) -> dict[str, float]:
    """Return the lag of a phase's decisions as other systems count it.

    gradient_step: optimiser steps done when the versions of the decisions were stored.
    now: optimiser steps done before the phase's own `updates`.

    Sample Factory: optimiser steps between the version and the phase's last one, epochs included. RLlib: the same
    difference, averaged over the phase's steps (PPO with 2 epochs of 2 minibatches and fresh data has 1.5).
    """
    lag = (now - gradient_step).double()
    last = updates - 1
    return {
        "sample_factory_lag_min": float(lag.min()) + last,
        "sample_factory_lag_mean": float(lag.mean()) + last,
        "sample_factory_lag_max": float(lag.max()) + last,
        "rllib_lag_mean": float(lag.mean()) + last / 2,
    }
