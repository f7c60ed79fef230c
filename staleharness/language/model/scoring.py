"""Teacher forcing: what a causal language model says of completions that are there already.

A prompt that neighbouring rows have in common is read once, and completions of like length go through the model
together, so that little is computed for padding.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ...tokens.policy import Entropy, Forward, Scored
from .past import Past, Prompts, distinct


class Model(Protocol):
    """What scoring asks of a policy."""

    shares_prompts: bool
    trains_with_cache: bool

    def past(self) -> Any: ...
    def cache(self) -> Any: ...


LEAST = 32  # completions that go through the model together, where there are more


def score(
    policy: Model,
    prompt: Tensor,
    prompt_mask: Tensor,
    token: Tensor,
    mask: Tensor,
    forward: Forward,
    entropy: Entropy,
    norm: bool,
) -> Scored:
    """As `CausalLM.score`."""
    attention = torch.cat([prompt_mask, mask.long()], 1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    ids, width, last = torch.cat([prompt, token], 1), token.shape[1], prompt.shape[1] - 1
    one_by_one = Prompts(prompt, prompt_mask, None)
    prompts = distinct(policy.shares_prompts, prompt, prompt_mask) if policy.trains_with_cache else one_by_one
    if prompts.which is None:
        logits = forward(ids, attention, positions, None, width + 1)[:, :-1]
        return _scored(logits, token, mask, entropy, norm)
    past = policy.past()
    prompts.read(forward, past)
    pieces, found = by_length(mask), []
    for rows, longest in pieces:
        new = slice(last, last + longest)
        logits = forward(
            ids[rows, new],
            attention[rows, : last + longest],
            positions[rows, new],
            _taken(policy, past, prompts.which[rows]),
            longest,
        )
        piece = _scored(logits, token[rows, :longest], mask[rows, :longest], entropy, norm)
        found.append([x if x is None else F.pad(x, (0, width - longest)) for x in piece])
    back = torch.cat([rows for rows, _ in pieces]).argsort()
    logp, spread, square = (
        torch.cat([x for x in column if x is not None])[back] if column[0] is not None else None
        for column in zip(*found, strict=True)
    )
    assert logp is not None
    return Scored(logp, spread, square)


def by_length(mask: Tensor) -> list[tuple[Tensor, int]]:
    """(rows, their longest completion) of pieces of at least `LEAST` rows of like length, given `mask` [B, T]."""
    length = mask.sum(1).long()
    rows = length.argsort(stable=True)
    longest = length[rows].tolist()
    count = max(1, len(rows) // LEAST)
    bounds = [len(rows) * i // count for i in range(count + 1)]
    return [(rows[a:b], max(1, longest[b - 1])) for a, b in pairwise(bounds)]


def _taken(policy: Model, past: Any, which: Tensor) -> Any:
    """A cache of rows of the cache `past`."""
    if isinstance(past, Past):
        return past.rows(which)
    cache = policy.cache()
    for i, layer in enumerate(past.layers):
        cache.update(layer.keys.index_select(0, which), layer.values.index_select(0, which), i)
    return cache


def _scored(logits: Tensor, token: Tensor, mask: Tensor, entropy: Entropy, norm: bool) -> Scored:
    """From logits [B, T, V] before each token."""
    every = logits.float().log_softmax(-1)
    logp = -F.nll_loss(every.flatten(0, 1), token.flatten(), reduction="none").view(token.shape) * mask
    spread = square = None
    if entropy != "none":
        with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
            spread = -(every.exp() * every).sum(-1) * mask
    if norm:
        with torch.no_grad():
            square = (2.0 * every).exp().sum(-1) * mask
    return Scored(logp, spread, square)
