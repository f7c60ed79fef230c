"""Lag as other systems count it, so that their numbers can be compared with ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def counted_elsewhere(gradient_step: Tensor, now: int, updates: int) -> dict[str, float]:
    """Of a phase's decisions, whose versions were stored after `gradient_step` optimiser steps, where `now` are done
    before the phase's own `updates`.

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
