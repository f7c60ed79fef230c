"""Log-probabilities of tokens without the logits of all of them at once, which are the most memory of a training step.

A chunk's logits are computed, summed up and forgotten; the backward pass computes them again. So memory is that of one
chunk, whatever the batch and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK = 1 << 28  # logits at a time
BYTES = 14  # per logit of a chunk at the worst moment: in two precisions, its exponential, its gradient


def chunked_scores(
    states: Tensor, weight: Tensor, bias: Tensor | None, token: Tensor, norm: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return log p(token), entropy and, if `norm`, Σ p² [B, T], with p the softmax of states · weightᵀ + bias.

    states [B, T, width], weight [V, width], bias [V], token [B, T]. The gradient of log p reaches states, weight and
    bias; entropy and norm have none.
    """
    logp, entropy, square = _ChunkedScores.apply(  # type: ignore[no-untyped-call]
        states.flatten(0, 1), weight, bias, token.flatten(), norm
    )
    return logp.view(token.shape), entropy.view(token.shape), square.view(token.shape) if norm else None


def _rows(count: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, CHUNK // vocabulary)
    return (slice(first, first + size) for first in range(0, count, size))


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, token: Tensor, norm: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        logp, entropy, square, total = torch.zeros((4, len(token)), device=token.device).unbind()
        for rows in _rows(len(token), len(weight)):
            every = F.linear(states[rows], weight, bias).float()
            total[rows] = every.logsumexp(-1)
            every -= total[rows, None]
            logp[rows] = every.gather(1, token[rows, None])[:, 0]
            p = every.exp()
            if norm:
                square[rows] = torch.linalg.vector_norm(p, dim=-1).square()
            entropy[rows] = -every.mul_(p).sum(-1)
        ctx.save_for_backward(states, weight, bias, token, total)
        ctx.mark_non_differentiable(entropy, square)
        return logp, entropy, square

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        states, weight, bias, token, total = ctx.saved_tensors
        of_states, of_weight, of_bias = ctx.needs_input_grad[:3]
        states_grad = torch.empty_like(states) if of_states else None
        weight_grad = torch.zeros_like(weight, dtype=torch.float32) if of_weight else None
        bias_grad = torch.zeros_like(bias, dtype=torch.float32) if of_bias else None
        for rows in _rows(len(token), len(weight)):
            grad = (F.linear(states[rows], weight, bias).float() - total[rows, None]).exp_()
            grad[torch.arange(len(grad), device=grad.device), token[rows]] -= 1.0
            grad = grad.mul_(-pull[rows, None]).to(weight.dtype)
            if states_grad is not None:
                states_grad[rows] = grad @ weight
            if weight_grad is not None:
                weight_grad += grad.mT @ states[rows]
            if bias_grad is not None:
                bias_grad += grad.sum(0)
        grads = weight_grad, bias_grad
        return states_grad, *(None if x is None else x.to(weight.dtype) for x in grads), None, None
