"""Predictions without simulation: means in a steady state, and bounds that always hold. Lags in versions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def tail(lengths: NDArray[np.float64], unit: int) -> float:
    """E[longest of `unit` rows] / E[row], from a sample; the rows left over by whole units are not used."""
    whole = lengths[: len(lengths) // unit * unit].reshape(-1, unit)
    return float(whole.max(1).mean() / lengths.mean())


def mean_lag(concurrency: int, batch: int, capacity: float, load: float, tail: float) -> tuple[float, float]:
    """(before the queue, in the queue) where a full queue drops its oldest rows; Applied Compute, July 2026.

    `concurrency` rows under way, `batch` rows of a step, `capacity` of the queue in batches, `load` = rows generated
    for each that the trainer could train, `tail` of a group. At capacity 1 only the sum is meant. It knows means only:
    at a load of 1 a queue of one batch is now full and now empty, and the lag is lower by about 0.45/√`batch` of it.
    """
    before = concurrency * tail / (batch * max(1.0, load))
    return before, load if load < 1 else (2 * capacity + load - 1) / (2 * load)


def step_seconds(rollout_rate: float, train_rate: float, batch: int) -> float:
    """Seconds of a step, of rows a second that are generated and that could be trained."""
    return batch / min(rollout_rate, train_rate)


def utilisation(tail_submit: float) -> float:
    """Share of time that slots work where they are given out in units; Megatron-LM, megatron/rl."""
    return 1 / tail_submit


def megatron_lag(lag: float, tail_submit: float, tail_consume: float) -> float:
    """Mean lag of a row's first decision with (1 + `lag`) batches under way, by unit; megatron/rl.

    Whole batches are taken to wait for their own rows alone. Consumed in the order of submission, as Megatron does,
    they also wait for those before them, and with heavy tails the law is several times too low.
    """
    return tail_consume / tail_submit * (1 + lag)


def windowed_bound(cap: int, window: int, groups: int) -> int:
    """The largest lag with `cap`, a look-ahead of `window` groups and `groups` of a step; torchtitan. A window of 1 is
    strict order, bounded by the cap."""
    return cap + math.ceil((window - 1) / groups)
