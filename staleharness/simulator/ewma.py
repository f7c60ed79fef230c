"""The shadow of a learner: an exponentially weighted mean of its parameters, bias-corrected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def ewma_update(shadow: Iterable[Tensor], parameters: Iterable[Tensor], weight: float, decay: float) -> float:
    """Move `shadow` (in place, without gradient) towards `parameters` after one gradient step; return W'.

    W' = βW + 1 and shadow' = (βW shadow + θ)/W' (Hilton et al. 2022, PPO-EWMA). Start with a copy of the
    parameters and W = 1: after n steps the shadow is Σ β^(n−i) θ_i / Σ β^(n−i), i = 0 … n. Its centre of mass
    lies 1/(1 − β) − 1 gradient steps back; β = 0 is the learner itself.
    """
    total = decay * weight + 1.0
    for mean, new in zip(shadow, parameters, strict=True):
        mean.detach().mul_(decay * weight / total).add_(new.detach(), alpha=1.0 / total)
    return total
