"""Sampling completions: KV cache, left padding, stops, and weights that may change inside a sequence.

The noise of a token is one uniform number that its row brings along, so a completion depends on its own
numbers, its prompt and its versions, never on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..simulator.buffer import PolicyBuffer, Version
from ..tokens.minibatch import parts
from ..tokens.policy import Forward
from .model.causal_lm import CausalLM
from .model.scoring import distinct

LOOK_EVERY = 16  # tokens between looks at which rows have ended, which cost a wait on a GPU
FEW = 0.8  # rows that have ended are dropped when no more than this share is left


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
    """Rows that are decoded together, between two stretches; those that ended are dropped once they are many."""

    def __init__(
        self,
        policy: CausalLM,
        prompt: Tensor,
        prompt_mask: Tensor,
        uniform: Tensor | None,
        length: int,
        stops: Sequence[str],
    ) -> None:
        self.policy, self.stops, self.length = policy, stops, length
        rows, self.width = prompt.shape
        self.prompt, self.prompt_mask, self.uniform = prompt, prompt_mask, uniform
        self.attention = torch.cat([prompt_mask, prompt_mask.new_ones((rows, length))], 1)
        self.prompt_length = prompt_mask.sum(1, keepdim=True)
        self.token = prompt.new_full((rows, length), policy.pad)
        self.mask = torch.zeros((rows, length), device=prompt.device)
        self.logp = torch.zeros((rows, length), device=prompt.device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=prompt.device)
        self.index = torch.arange(rows, device=prompt.device)  # which of all rows each one is
        self.rows: list[int] | None = None  # the same for `forward`; None is all of them
        self.out = [x.clone() for x in (self.token, self.mask, self.logp, self.ended)]
        self.end = torch.tensor(policy.end, device=prompt.device)
        self.over = False
        self.cache: Any = None

    def go_on(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 by one forward pass function."""
        if self.policy.spec.kv_cache == "recompute":
            self.cache = None
        for t in range(first, last):
            logits = self._logits(forward, t)
            token = choose(logits, None if self.uniform is None else self.uniform[:, t])
            alive = ~self.ended
            self.token[:, t] = torch.where(alive, token, self.policy.pad)
            self.mask[:, t] = alive.float()
            self.logp[:, t] = logits.log_softmax(1).gather(1, token[:, None])[:, 0]
            self.ended |= torch.isin(token, self.end)
            if self.policy.device.type == "cpu" or t % LOOK_EVERY == LOOK_EVERY - 1:
                if t % LOOK_EVERY == LOOK_EVERY - 1:
                    self._cut()
                left = int((~self.ended).sum())
                if left == 0:
                    self.over = True
                    return
                if left <= FEW * len(self.ended):
                    self._drop()

    def _logits(self, forward: Forward, t: int) -> Tensor:
        """What token `t` is drawn from: float32 [B, V]."""
        first = t  # of the tokens that the cache lacks; token −1 is the last one of the prompt
        if self.cache is None:
            self.cache = self.policy.cache(self.width + self.length)
            prompts = distinct(self.policy, self.prompt, self.prompt_mask)
            prompts.read(partial(forward, rows=self.rows), self.cache)
            if prompts.which is not None:
                self.cache.batch_select_indices(prompts.which)
            first = 0
        positions = self.prompt_length + torch.arange(first - 1, t, device=self.prompt.device)
        ids = self.token[:, t - 1 : t] if t > 0 else self.prompt[:, -1:]
        if first < t:
            ids = torch.cat([self.prompt[:, -1:], self.token[:, :t]], 1)
        attention = self.attention[:, : self.width + t]
        return forward(ids, attention, positions, self.cache, 1, rows=self.rows)[:, -1].float()

    def _drop(self) -> None:
        """Go on without the rows that have ended."""
        self._write()
        left = (~self.ended).nonzero()[:, 0]
        names = "prompt prompt_mask attention prompt_length token mask logp ended index"
        for name in names.split():
            setattr(self, name, getattr(self, name)[left])
        if self.uniform is not None:
            self.uniform = self.uniform[left]
        self.rows = self.index.tolist()
        self.cache.batch_select_indices(left)

    def _write(self) -> None:
        for whole, part in zip(self.out, (self.token, self.mask, self.logp, self.ended), strict=True):
            whole[self.index] = part

    def finished(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(token, mask, logp, ended) of the completions."""
        self._cut()
        self._write()
        token, mask, logp, ended = self.out
        return token, mask, logp * mask, ended

    def _cut(self) -> None:
        """End rows whose text holds a stop string, right behind the token that completed it."""
        if not self.stops:
            return
        tokenizer = self.policy.tokenizer
        counts = self.mask.sum(1).long().tolist()
        for i, count in enumerate(counts):
            ids = self.token[i, :count].tolist()
            if not any(stop in tokenizer.decode(ids) for stop in self.stops):
                continue
            low, high = 1, count  # the shortest prefix whose text holds a stop
            while low < high:
                middle = (low + high) // 2
                inside = any(stop in tokenizer.decode(ids[:middle]) for stop in self.stops)
                low, high = (low, middle) if inside else (middle + 1, high)
            self.mask[i, low:] = 0
            self.token[i, low:] = self.policy.pad
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
                            entropy="none",
                        )
                    logp[index, first:last] = scored.logp[:, first:last]
    return logp
