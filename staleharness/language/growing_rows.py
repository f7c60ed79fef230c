"""Decoding by any forward pass, with keys and values that grow token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..tokens.policy import Forward
from .decoder import Request
from .model.causal_lm import CausalLM
from .model.past import distinct
from .model.quick_pass import QuickPass
from .rows import LOOK_EVERY, Rows
from .sampling import choose, draw

FEW = 0.8  # rows that have ended are dropped when no more than this share is left
AT_ONCE = 8  # rows whose distributions over so many tokens are drawn from at once
MANY = 4096  # tokens of a vocabulary from which on float64 for each of them costs more than a layer


class GrowingRows(Rows):
    """Rows of one version."""

    shares_prompts = False  # whether their cache has the part of a prompt that several rows continue once

    def __init__(self, policy: CausalLM, request: Request, index: Tensor, real: Tensor, parts: int) -> None:
        super().__init__(policy, request, index, real, parts)
        ones = self.prompt_mask.new_ones((len(index), self.length))
        self.attention = torch.cat([self.prompt_mask, ones], 1)
        self.cache: Any = None
        self.looks_each_time = policy.device.type == "cpu"  # where it costs nothing

    def go_on(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 by one forward pass function."""
        if self.policy.spec.kv_cache == "recompute":
            self.cache = None
        for t in range(first, last):
            logits = self._logits(forward, t)
            token, logp = self._sampled(logits, None if self.uniform is None else self.uniform[:, t])
            alive = ~self.ended
            self.token[:, t] = torch.where(alive, token, self.policy.pad)
            self.mask[:, t] = alive.float()
            self.logp[:, t] = logp
            self.ended |= torch.isin(token, self.end)
            look = t % LOOK_EVERY == LOOK_EVERY - 1
            if look:
                self.cut(t + 1)
            if self.looks_each_time or look:
                left = self.left(FEW)
                if self.over:
                    return
                if left is not None:
                    self.cut(t + 1)  # in rows that leave now too
                    self.keep(left)

    def _sampled(self, logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """(token, its log-probability) [B]. On a CPU a few rows at a time: what lies between then stays in its cache,
        where whole matrices over a large vocabulary are new memory for every token."""
        if self.policy.device.type != "cpu":
            return draw(logits.float(), uniform)
        if logits.shape[1] > MANY:
            rows = logits.split(AT_ONCE)
            noise = [None] * len(rows) if uniform is None else uniform.split(AT_ONCE)
            found = [draw(some.float(), each) for some, each in zip(rows, noise, strict=True)]
            tokens, logps = zip(*found, strict=True)
            return torch.cat(tokens), torch.cat(logps)
        logits = logits.float()
        token = choose(logits, uniform)
        return token, logits.log_softmax(1).gather(1, token[:, None])[:, 0]

    def _logits(self, forward: Forward, t: int) -> Tensor:
        """What token `t` is drawn from: [B, V]."""
        first = t  # of the tokens that the cache lacks; token −1 is the last one of the prompt
        if self.cache is None:
            self.cache = self.policy.sampling_cache(self.width, self.length, self.shares_prompts)
            self.cache.begin(distinct(self.policy.shares_prompts, self.prompt, self.prompt_mask), forward)
            first = 0
        positions = self.prompt_length + torch.arange(first - 1, t, device=self.prompt.device)
        ids = self.token[:, t - 1 : t] if t > 0 else self.prompt[:, -1:]
        if first < t:
            ids = torch.cat([self.prompt[:, -1:], self.token[:, :t]], 1)
        attention = self.attention[:, : self.width + t]
        return forward(ids, attention, positions, self.cache, 1)[:, -1]

    def keep(self, left: Tensor) -> None:
        super().keep(left)
        self.attention = self.attention.index_select(0, left)
        self.cache.keep(left)


class SharingRows(GrowingRows):
    """The same with the keys and values of a prompt kept once."""

    shares_prompts = True


class PackedRows(SharingRows):
    """The same with the weights laid out once, where the quick pass is theirs."""

    def go_on(self, forward: Forward, first: int, last: int) -> None:
        super().go_on(forward.packed() if isinstance(forward, QuickPass) else forward, first, last)
