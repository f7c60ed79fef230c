"""Teacher forcing: log-probabilities of given completions under a causal language model.

A prompt that neighbouring rows have in common is read once, and completions of like length go through the model
together, so that little is computed for padding.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ...tokens.policy_interface import Entropy, Forward, TokenScores
from .chunked_scores import chunked_scores
from .fused_forward import FusedForward
from .kv_caches import DistinctPrompts, PrefixCache, distinct_prompts
from .native_forward import NativeForward


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
    one_by_one = DistinctPrompts(prompt, prompt_mask, None)
    prompts = distinct_prompts(policy.shares_prompts, prompt, prompt_mask) if policy.trains_with_cache else one_by_one
    if isinstance(forward, NativeForward):
        return forward.score(prompts, token, mask, entropy, norm)
    attention = torch.cat([prompt_mask, mask.long()], 1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    ids, width, last = torch.cat([prompt, token], 1), token.shape[1], prompt.shape[1] - 1

    def statistics(token: Tensor, mask: Tensor, *inputs: Any) -> TokenScores:
        """Return the scores of tokens [B, T], given the forward pass's inputs, after which T tokens or T + 1 come."""
        if policy.scores_in_chunks and entropy != "gradient" and isinstance(forward, FusedForward):
            states = forward.last_states(*inputs)[:, : token.shape[1]]
            logp, spread, square = chunked_scores(states, *forward.logits, token, norm)
            return TokenScores(logp * mask, spread * mask, None if square is None else square * mask)
        return _statistics(forward(*inputs)[:, : token.shape[1]], token, mask, entropy, norm)

    if prompts.which is None:
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
            _select(policy, cache, prompts.which[rows]),
            longest,
        )
        scores.append([x if x is None else F.pad(x, (0, width - longest)) for x in piece[:3]])
    back = torch.cat([rows for rows, _ in pieces]).argsort()
    logp, spread, square = (
        torch.cat([x for x in column if x is not None])[back] if column[0] is not None else None
        for column in zip(*scores, strict=True)
    )
    assert logp is not None
    return TokenScores(logp, spread, square)


def by_length(mask: Tensor) -> list[tuple[Tensor, int]]:
    """Split rows into pieces of like length and at least `MIN_ROWS` rows, given `mask` [B, T]; returns (rows, their
    longest completion)."""
    length = mask.sum(1).long()
    rows = length.argsort(stable=True)
    longest = length[rows].tolist()
    count = max(1, len(rows) // MIN_ROWS)
    bounds = [len(rows) * i // count for i in range(count + 1)]
    return [(rows[a:b], max(1, longest[b - 1])) for a, b in pairwise(bounds)]


def _select(policy: CachingModel, prompts: Any, which: Tensor) -> Any:
    """Return a cache for rows that continue `which` of the prompts in a cache."""
    if isinstance(prompts, PrefixCache):
        return prompts.select(which)
    cache = policy.cache()
    for i, layer in enumerate(prompts.layers):
        cache.update(layer.keys.index_select(0, which), layer.values.index_select(0, which), i)
    return cache


def _statistics(logits: Tensor, token: Tensor, mask: Tensor, entropy: Entropy, norm: bool) -> TokenScores:
    """Return log-probabilities, entropies and squared norms from logits [B, T, V] before each token."""
    every = logits.float().log_softmax(-1)
    logp = -F.nll_loss(every.flatten(0, 1), token.flatten(), reduction="none").view(token.shape) * mask
    spread = square = None
    if entropy != "none":
        with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
            spread = -(every.exp() * every).sum(-1) * mask
    if norm:
        with torch.no_grad():
            square = (2.0 * every).exp().sum(-1) * mask
    return TokenScores(logp, spread, square)
