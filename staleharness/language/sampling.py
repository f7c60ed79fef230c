"""One token from what a model says of the next: by one uniform number, or the likeliest."""

from __future__ import annotations

import torch
from torch import Tensor


def choose(logits: Tensor, uniform: Tensor | None) -> Tensor:
    """One token per row of `logits` [B, V]: the likeliest, or the inverse of the cumulative distribution at
    `uniform` [B]; float64, so that a token of probability 1e-7 has its place."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    target = uniform.double()[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
