"""The critic's loss and its gradient, written by hand like those of the networks (see `passes`)."""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(value: Tensor, target: Tensor, start: Tensor, clip: float, coef: float) -> tuple[Tensor, Tensor]:
    """½ E (V − v)² [], and the gradient with respect to V [N] of `coef` times that.

    With `clip` above 0 it is CleanRL's form: of this and the same for V kept within `clip` of `start`, the learner's
    value at the start of the phase, the larger one. Where both are equal, each has half of the gradient.
    """
    slope = value.new_tensor(coef) / value.shape[0]  # divided in the tensors' precision, as autograd does
    miss = value - target
    loss, pull = miss.square(), miss * slope
    if clip > 0:
        moved = value - start
        kept = moved.clamp(-clip, clip)
        held = start + kept - target
        other = held.square()
        share = torch.add(0.5, (loss - other).sign(), alpha=0.5)  # 1, ½ or 0: is `loss` the larger one?
        pull = pull * share + held * slope * (kept == moved) * (1.0 - share)
        loss = torch.maximum(loss, other)
    return 0.5 * loss.mean(), pull
