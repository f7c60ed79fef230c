"""Teacher forcing: log-probabilities of given completions under a causal language model.

A prompt that neighbouring rows have in common is read once, and completions of similar length go through the model
together, so that little is computed for padding. A chunk's logits, which take the most memory in a training step, are
computed, summed up and freed, and recomputed in the backward pass: memory is that of one chunk.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ...tokens.policy_interface import Entropy, Forward, TokenScores
from .fused_forward import FusedForward
from .kv_cache import PrefixCache, distinct_prompts
from .native_forward_backward import NativeForward, chunks


class CachingModel(Protocol):
    """Part of a policy that scoring uses."""

    shares_prompts: bool
    trains_with_cache: bool
    scores_in_chunks: bool

    def prefix_cache(self) -> Any: ...
    def cache(self) -> Any: ...


MIN_ROWS = 32  # completions that go through the model together, where there are more


def score(
    policy: CachingModel,
    prompt: Tensor,
    prompt_mask: Tensor,
    token: Tensor,
    mask: Tensor,
    forward: Forward,
    entropy: Entropy,
    norm: bool,
) -> TokenScores:
    """Score completions like `CausalLM.score`."""
    prompts = distinct_prompts(policy.shares_prompts and policy.trains_with_cache, prompt, prompt_mask)
    if isinstance(forward, NativeForward):
        return forward.score(prompts, token, mask, entropy, norm)
    attention = torch.cat([prompt_mask, mask.long()], 1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    ids, width, last = torch.cat([prompt, token], 1), token.shape[1], prompt.shape[1] - 1

    def statistics(token: Tensor, mask: Tensor, *inputs: Any) -> TokenScores:
        """Return the scores of tokens [B, T], given the forward pass's inputs, after which T tokens or T + 1 come."""
        if policy.scores_in_chunks and entropy != "gradient" and isinstance(forward, FusedForward):
            states = forward.last_states(*inputs)[:, : token.shape[1]]
            logp, entropies, square = chunked_scores(states, *forward.logits, token, norm)
            return TokenScores(logp * mask, entropies * mask, None if square is None else square * mask)
        return _statistics(forward(*inputs)[:, : token.shape[1]], token, mask, entropy, norm)

    if prompts.prompt_index is None:
        return statistics(token, mask, ids, attention, positions, None, width + 1)
    cache = policy.prefix_cache()
    prompts.read(forward, cache)
    pieces, scores = by_length(mask), []
    for rows, longest in pieces:
        new = slice(last, last + longest)
        piece = statistics(
            token[rows, :longest],
            mask[rows, :longest],
            ids[rows, new],
            attention[rows, : last + longest],
            positions[rows, new],
            _select(policy, cache, prompts.prompt_index[rows]),
            longest,
        )
        scores.append([x if x is None else F.pad(x, (0, width - longest)) for x in piece[:3]])
    back = torch.cat([rows for rows, _ in pieces]).argsort()
    logp, entropies, square = (
        torch.cat([x for x in column if x is not None])[back] if column[0] is not None else None
        for column in zip(*scores, strict=True)
    )
    assert logp is not None
    return TokenScores(logp, entropies, square)


def by_length(mask: Tensor) -> list[tuple[Tensor, int]]:
    """Split rows into pieces of like length and at least `MIN_ROWS` rows, given `mask` [B, T]; returns (rows, their
    longest completion)."""
    length = mask.sum(1).long()
    rows = length.argsort(stable=True)
    longest = length[rows].tolist()
    count = max(1, len(rows) // MIN_ROWS)
    bounds = [len(rows) * i // count for i in range(count + 1)]
    return [(rows[a:b], max(1, longest[b - 1])) for a, b in pairwise(bounds)]


def _select(policy: CachingModel, prompts: Any, prompt_index: Tensor) -> Any:
    """Return a cache for rows that continue the prompts `prompt_index` [R] in a cache."""
    if isinstance(prompts, PrefixCache):
        return prompts.select(prompt_index)
    cache = policy.cache()
    for i, layer in enumerate(prompts.layers):
        cache.update(layer.keys.index_select(0, prompt_index), layer.values.index_select(0, prompt_index), i)
    return cache


def _statistics(logits: Tensor, token: Tensor, mask: Tensor, entropy: Entropy, norm: bool) -> TokenScores:
    """Return log-probabilities, entropies and squared norms from logits [B, T, V] before each token."""
    logps = logits.float().log_softmax(-1)
    logp = -F.nll_loss(logps.flatten(0, 1), token.flatten(), reduction="none").view(token.shape) * mask
    entropies = square = None
    if entropy != "none":
        with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
            entropies = -(logps.exp() * logps).sum(-1) * mask
    if norm:
        with torch.no_grad():
            square = (2.0 * logps).exp().sum(-1) * mask
    return TokenScores(logp, entropies, square)


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


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, token: Tensor, norm: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        logp, entropy, square, total = torch.zeros((4, len(token)), device=token.device).unbind()
        for rows in chunks(len(token), len(weight)):
            logits = F.linear(states[rows], weight, bias).float()
            total[rows] = logits.logsumexp(-1)
            logits -= total[rows, None]
            logp[rows] = logits.gather(1, token[rows, None])[:, 0]
            p = logits.exp()
            if norm:
                square[rows] = torch.linalg.vector_norm(p, dim=-1).square()
            entropy[rows] = -logits.mul_(p).sum(-1)
        ctx.save_for_backward(states, weight, bias, token, total)
        ctx.mark_non_differentiable(entropy, square)
        return logp, entropy, square

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        states, weight, bias, token, total = ctx.saved_tensors
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        states_grad = torch.empty_like(states) if needs_states else None
        weight_grad = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        bias_grad = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        for rows in chunks(len(token), len(weight)):
            grad = (F.linear(states[rows], weight, bias).float() - total[rows, None]).exp_()
            grad[torch.arange(len(grad), device=grad.device), token[rows]] -= 1.0
            grad = grad.mul_(-logp_gradient[rows, None]).to(weight.dtype)
            if states_grad is not None:
                states_grad[rows] = grad @ weight
            if weight_grad is not None:
                weight_grad += grad.mT @ states[rows]
            if bias_grad is not None:
                bias_grad += grad.sum(0)
        grads = weight_grad, bias_grad
        return states_grad, *(None if x is None else x.to(weight.dtype) for x in grads), None, None
