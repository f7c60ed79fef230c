"""One token from what a model says of the next: by one uniform number, or the likeliest."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 256  # tokens whose probabilities are summed first


def choose(logits: Tensor, uniform: Tensor | None) -> Tensor:
    """One token per row of `logits` [B, V]: the likeliest, or the inverse of the cumulative distribution at
    `uniform` [B]; float64, so that a token of probability 1e-7 has its place."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    target = uniform.double()[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def draw(logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """(token, its log-probability) [B] from `logits` [B, V] in float32, by the same rule for a GPU, or for a large
    vocabulary anywhere.

    No running sum over the vocabulary: a GPU may add one up in any order, and many releases of torch refuse to where
    algorithms are to be deterministic, as in every run. Nor a float64 copy of the logits. Probabilities are summed in
    blocks; the sums, and what is inside the block that is met, are float64.
    """
    top = logits.amax(-1, keepdim=True)
    if uniform is None:
        token = logits.argmax(-1)
        return token, (logits - top).log_softmax(-1).gather(1, token[:, None])[:, 0]
    mass = F.pad((logits - top).exp(), (0, -logits.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = mass.sum(-1, dtype=torch.float64)
    ends = sums @ _upto(sums)
    target = uniform.double()[:, None] * ends[:, -1:]
    block = (ends <= target).sum(-1, keepdim=True).clamp(max=ends.shape[1] - 1)
    inside = mass.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0].double()
    inside = inside @ _upto(inside)
    rest = (target - ends.gather(1, block) + sums.gather(1, block)).clamp(min=0.0)
    rest = rest.minimum(inside[:, -1:] * (1.0 - 1e-12))  # rounding must not lead out of the block
    token = BLOCK * block[:, 0] + (inside <= rest).sum(-1)
    return token, (logits.gather(1, token[:, None]) - top)[:, 0] - ends[:, -1].log().float()


def _upto(x: Tensor) -> Tensor:
    """What `x` [B, n] is multiplied by to be summed up to each of its numbers."""
    return x.new_ones((x.shape[1], x.shape[1])).triu()
