"""Sampling completions: KV cache, left padding, stops, and weights that may change inside a sequence.

The noise of a token is one uniform number that its row brings along, so a completion depends on its own
numbers, its prompt and its versions, never on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..buffer import PolicyBuffer, Version
from ..policies.causal_lm import CausalLM, Forward

LOOK_EVERY = 16  # tokens between looks at whether every row has ended, which cost a wait on a GPU


@dataclass(frozen=True)
class Decoded:
    """Completions [B, T], padded on the right; T is the longest."""

    token: Tensor  # int64
    mask: Tensor  # 1 for a token that was sampled, the ending one included
    ended: Tensor  # [B] bool; False where the limit cut the completion
    logp: Tensor  # [B, T] log-probability when sampled, of the version that sampled


def decode(
    policy: CausalLM,
    buffer: PolicyBuffer,
    prompt: Tensor,
    prompt_mask: Tensor,
    versions: NDArray[np.int64],
    uniform: Tensor | None,
    length: int,
    each: int,
    stops: Sequence[str] = (),
) -> Decoded:
    """Complete `prompt` [B, P] (padded on the left) with at most `length` tokens.

    versions [B, S]: the version of each row in each stretch of `each` tokens; with S > 1 the weights change
    inside the sequence. uniform [B, length] in [0, 1) is the noise; None decodes greedily.
    """
    rows = len(prompt)
    token = torch.full((rows, length), policy.pad, device=policy.device)
    mask = torch.zeros((rows, length), device=policy.device)
    logp = torch.zeros((rows, length), device=policy.device)
    ended = torch.zeros(rows, dtype=torch.bool, device=policy.device)
    with torch.no_grad():
        for group in policy.groups(versions[:, 0]):
            index = torch.from_numpy(group).to(policy.device)
            noise = None if uniform is None else uniform[index]
            state = _State(policy, prompt[index], prompt_mask[index], noise, length, stops)
            for s, column in enumerate(versions[group].T):
                first, last = (s * each, min((s + 1) * each, length))
                used, position = np.unique(column, return_inverse=True)
                with policy.acting([buffer[v] for v in used.tolist()], position) as forward:
                    state.go_on(forward, first, last)
                if state.over:
                    break
            token[index], mask[index], logp[index], ended[index] = state.finished()
    longest = max(1, int(mask.sum(1).max()))
    return Decoded(token[:, :longest], mask[:, :longest], ended, logp[:, :longest])


class _State:
    """Rows that are decoded together, between two stretches."""

    def __init__(
        self,
        policy: CausalLM,
        prompt: Tensor,
        prompt_mask: Tensor,
        uniform: Tensor | None,
        length: int,
        stops: Sequence[str],
    ) -> None:
        self.policy, self.uniform, self.stops = policy, uniform, stops
        rows, self.width = prompt.shape
        self.ids = torch.cat([prompt, prompt.new_full((rows, length), policy.pad)], 1)
        self.attention = torch.cat([prompt_mask, prompt_mask.new_zeros((rows, length))], 1)
        self.prompt_length = prompt_mask.sum(1)
        self.logp = torch.zeros((rows, length), device=prompt.device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=prompt.device)
        self.end = torch.tensor(policy.end, device=prompt.device)
        self.over = False
        self.cache = policy.cache()
        self.cached = 0  # columns of `ids` that the cache holds

    def go_on(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 by one forward pass function."""
        if first > 0 and self.policy.spec.kv_cache == "recompute":
            self.cache, self.cached = self.policy.cache(), 0
        for t in range(first, last):
            stop = self.width + t
            positions = (self.attention[:, :stop].cumsum(1) - 1).clamp(min=0)[:, self.cached :]
            new = self.ids[:, self.cached : stop]
            logits = forward(new, self.attention[:, :stop], positions, self.cache, 1)[:, -1].float()
            self.cached = stop
            uniform = None if self.uniform is None else self.uniform[:, t]
            token = choose(logits, uniform)
            alive = ~self.ended
            self.ids[:, stop] = torch.where(alive, token, self.policy.pad)
            self.attention[:, stop] = alive.to(self.attention.dtype)
            self.logp[:, t] = (logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(1)) * alive
            self.ended |= torch.isin(token, self.end)
            look = self.policy.device.type == "cpu" or t % LOOK_EVERY == LOOK_EVERY - 1
            if look and t % LOOK_EVERY == LOOK_EVERY - 1:
                self._cut()
            if look and bool(self.ended.all()):
                self.over = True
                return

    def finished(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(token, mask, logp, ended) of the completions."""
        self._cut()
        mask = self.attention[:, self.width :].float()
        return self.ids[:, self.width :], mask, self.logp * mask, self.ended

    def _cut(self) -> None:
        """End rows whose text holds a stop string, right behind the token that completed it."""
        if not self.stops:
            return
        tokenizer, token = self.policy.tokenizer, self.ids[:, self.width :]
        counts = self.attention[:, self.width :].sum(1).tolist()
        for i, count in enumerate(counts):
            ids = token[i, :count].tolist()
            if not any(stop in tokenizer.decode(ids) for stop in self.stops):
                continue
            low, high = 1, count  # the shortest prefix whose text holds a stop
            while low < high:
                middle = (low + high) // 2
                inside = any(stop in tokenizer.decode(ids[:middle]) for stop in self.stops)
                low, high = (low, middle) if inside else (middle + 1, high)
            self.attention[i, self.width + low :] = 0
            self.ids[i, self.width + low :] = self.policy.pad
            self.ended[i] = True


def choose(logits: Tensor, uniform: Tensor | None) -> Tensor:
    """One token per row of `logits` [B, V]: the likeliest, or the inverse of the cumulative distribution at
    `uniform` [B]; float64, so that a token of probability 1e-7 has its place."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    target = uniform.double()[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)


def behaviour_logp(
    policy: CausalLM,
    buffer: PolicyBuffer,
    prompt: Tensor,
    prompt_mask: Tensor,
    decoded: Decoded,
    versions: NDArray[np.int64],
    each: int,
    micro_batch: int,
) -> Tensor:
    """Teacher-forced log-probability [B, T] of each token under the version that sampled it.

    versions [B, S] for stretches of `each` tokens.
    """
    logp = torch.zeros_like(decoded.mask)
    width = decoded.mask.shape[1]
    with torch.no_grad():
        for group in policy.groups(versions[:, 0]):
            for part in parts(group, micro_batch):
                index = torch.from_numpy(part).to(policy.device)
                for s, column in enumerate(versions[part].T):
                    first, last = (s * each, (s + 1) * each)
                    if first >= width:
                        break
                    used, position = np.unique(column, return_inverse=True)
                    acted: list[Version] = [buffer[v] for v in used.tolist()]
                    with policy.acting(acted, position) as forward:
                        scored = policy.score(
                            prompt[index],
                            prompt_mask[index],
                            decoded.token[index],
                            decoded.mask[index],
                            forward,
                        )
                    logp[index, first:last] = scored.logp[:, first:last]
    return logp


def parts(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """`rows` in pieces of at most `size`; 0 is all at once."""
    return (
        [rows] if size == 0 or len(rows) <= size else [rows[i : i + size] for i in range(0, len(rows), size)]
    )
