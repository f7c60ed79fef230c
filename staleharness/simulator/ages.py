"""How old the rows of a phase are: where they began, their oldest and newest decision, and what taught."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
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
    """The ages of a phase: columns of its metrics, decisions by lag in phases, and how many the learner was handed."""

    columns: dict[str, float]
    handed_lags: list[int]
    trained_lags: list[int]
    handed: Count
    taught: Count


def ages(rows: Rows, phase: int, gradient_steps: int) -> Ages:
    """Means over the sequences that taught, but `trained`: over decisions. A phase in which none taught has none.

    gradient_steps: done when the phase began.
    """
    version, step = rows.version.cpu().numpy(), rows.gradient_step.cpu().numpy()
    if (version == version[:, :1]).all():  # rows that keep their version have one lag each
        version, step = version[:, :1], step[:, :1]
    lag, back = phase - version, gradient_steps - step
    shape = tuple(rows.version.shape)
    valid, handed = _weights(rows.valid, shape, lag.shape[1])
    taught, trained = valid, handed
    if rows.taught is not None and rows.taught is not rows.valid:
        taught, trained = _weights(rows.taught, shape, lag.shape[1])
    alike = shape[1] // lag.shape[1]  # decisions behind an entry of `lag`, where none is left out
    handed_lags = _histogram(lag, valid, alike)
    trained_lags = handed_lags if taught is valid else _histogram(lag, taught, alike)
    columns: dict[str, float] = {}
    if trained.decisions:
        columns = _columns("lags", lag, taught) | _columns("gradient_lags", back, taught)
    return Ages(columns, handed_lags, trained_lags, handed, trained)


def at_ends(first: Taken | None, last: Taken | None) -> dict[str, float]:
    """Mean lag of the decisions of a phase's first and last minibatch, when their gradient steps began."""
    out: dict[str, float] = {}
    for name, taken in (("first", first), ("last", last)):
        if name == "last" and first is last:
            out |= {key.replace("first", "last"): value for key, value in out.items()}
        elif taken and (count := float(taken[2].sum())):
            lag, step, mask = taken
            out[f"lags/{name}"] = float((lag * mask).sum()) / count
            out[f"gradient_lags/{name}"] = float((step * mask).sum()) / count
    return out


def mean_lag(histogram: Sequence[int]) -> float | None:
    """Of decisions by lag; None where there are none."""
    count = sum(histogram)
    return sum(lag * n for lag, n in enumerate(histogram)) / count if count else None


def added(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The sum of two histograms, of whatever lengths."""
    return [x + y for x, y in zip_longest(a, b, fillvalue=0)]


def _weights(mask: Tensor | None, shape: tuple[int, ...], columns: int) -> tuple[Ints | None, Count]:
    """How many decisions of a row [B, 1], or 1 for each that counts [B, T], and how many there are; None: all alike."""
    if mask is None:
        return None, Count(shape[0], shape[0] * shape[1])
    there = mask.cpu().numpy() > 0
    each = there.sum(1, keepdims=True)
    found = Count(int(np.count_nonzero(each)), int(each.sum()))
    if found.decisions == there.size:
        return None, found
    return (each if columns == 1 else there.astype(np.int64)), found


def _histogram(lag: Ints, weights: Ints | None, alike: int) -> list[int]:
    """Decisions by lag, without zeros at the end."""
    counts = np.bincount(lag.ravel(), None if weights is None else weights.ravel())
    found = [int(n) for n in counts] if weights is not None else [int(n) * alike for n in counts]
    while found and not found[-1]:
        found.pop()
    return found


def _columns(prefix: str, lag: Ints, weights: Ints | None) -> dict[str, float]:
    """Versions only become newer within a completion; an actor whose episode ends may go on with any."""
    if weights is None:
        trained = start = oldest = newest = float(lag.mean())
        if lag.shape[1] > 1:
            start, oldest, newest = (float(x.mean()) for x in (lag[:, 0], lag.max(1), lag.min(1)))
    else:
        trained = float((lag * weights).sum() / weights.sum())
        there = weights.any(1)
        start = oldest = newest = float(lag[there, 0].mean())
        if lag.shape[1] > 1:
            most = np.iinfo(np.int64).max
            oldest = float(np.where(weights > 0, lag, -most).max(1)[there].mean())
            newest = float(np.where(weights > 0, lag, most).min(1)[there].mean())
    return {
        f"{prefix}/trained": trained,
        f"{prefix}/start": start,
        f"{prefix}/oldest": oldest,
        f"{prefix}/newest": newest,
        f"{prefix}/in_flight": oldest - newest,
        f"{prefix}/in_queue": newest,
    }
