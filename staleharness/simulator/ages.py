"""How old the rows of a phase are: where they began, their oldest and newest decision, and what taught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .ledger import Count

if TYPE_CHECKING:
    from torch import Tensor

Ints = NDArray[np.int64]
Taken = tuple["Tensor", "Tensor", "Tensor"]  # of a minibatch: lag, lag in gradient steps, mask [R, T]


class Rows(NamedTuple):
    """What a phase's learner was handed, all [B, T]; the first column of each row is a decision."""

    version: Tensor
    gradient_step: Tensor
    valid: Tensor | None = None  # 1 for a decision; None: all are
    taught: Tensor | None = None  # 1 where a decision may teach; None: all that are valid


class Ages(NamedTuple):
    """Of one phase: columns of its metrics, decisions by lag in phases, and how many the learner was handed."""

    columns: dict[str, float]
    handed_lags: Ints
    trained_lags: Ints
    handed: Count
    taught: Count


def ages(rows: Rows, phase: int, gradient_steps: int) -> Ages:
    """Means over the sequences that taught, but `trained`: over decisions. A phase in which none taught has none.

    gradient_steps: done when the phase began.
    """
    lag = phase - rows.version.cpu().numpy()
    step = gradient_steps - rows.gradient_step.cpu().numpy()
    valid = _bools(rows.valid)
    taught = valid if rows.taught is None else _bools(rows.taught)
    handed_lags = np.bincount(lag.ravel() if valid is None else lag[valid])
    trained_lags = handed_lags if taught is valid else np.bincount(lag[taught])
    handed = _count(lag, valid)
    counted = handed if taught is valid else _count(lag, taught)
    columns: dict[str, float] = {}
    if counted.decisions:
        columns |= _columns("lags", lag, taught) | _columns("gradient_lags", step, taught)
    return Ages(columns, handed_lags, trained_lags, handed, counted)


def at_ends(first: Taken | None, last: Taken | None) -> dict[str, float]:
    """Mean lag of the decisions of a phase's first and last minibatch, when their gradient steps began."""
    out: dict[str, float] = {}
    for name, taken in (("first", first), ("last", last)):
        if taken and (count := float(taken[2].sum())):
            lag, step, mask = taken
            out[f"lags/{name}"] = float((lag * mask).sum()) / count
            out[f"gradient_lags/{name}"] = float((step * mask).sum()) / count
    return out


def mean_lag(histogram: Sequence[int] | Ints) -> float | None:
    """Of decisions by lag; None where there are none."""
    counts = np.asarray(histogram, dtype=np.float64)
    return float(counts @ np.arange(len(counts)) / counts.sum()) if counts.sum() else None


def _columns(prefix: str, lag: Ints, taught: NDArray[np.bool_] | None) -> dict[str, float]:
    """Versions only become newer within a completion; an actor whose episode ends may go on with any."""
    if taught is None:
        trained, rows = lag.mean(), lag
        oldest, newest = lag.max(1), lag.min(1)
    else:
        trained, there = lag[taught].mean(), taught.any(1)
        rows, mask = lag[there], taught[there]
        oldest = np.where(mask, rows, np.iinfo(np.int64).min).max(1)
        newest = np.where(mask, rows, np.iinfo(np.int64).max).min(1)
    found = {
        "trained": trained,
        "start": rows[:, 0].mean(),
        "oldest": oldest.mean(),
        "newest": newest.mean(),
        "in_flight": (oldest - newest).mean(),
        "in_queue": newest.mean(),
    }
    return {f"{prefix}/{name}": float(value) for name, value in found.items()}


def _bools(mask: Tensor | None) -> NDArray[np.bool_] | None:
    return None if mask is None else mask.cpu().numpy() > 0


def _count(lag: Ints, mask: NDArray[np.bool_] | None) -> Count:
    if mask is None:
        return Count(len(lag)).rows(lag.shape[1])
    return Count(int(mask.any(1).sum()), int(mask.sum()))
