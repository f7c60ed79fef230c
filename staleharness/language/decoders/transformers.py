"""The policy's own forward pass as decoder: KV cache, left padding, stops, weights that change inside a sequence.

The noise of a token is one uniform number that its row brings along, so a completion depends on its own
numbers, its prompt and its versions, never on the rows beside it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...simulator.buffer import PolicyBuffer
from ...tokens.policy import Forward
from ..decoder import DECODERS, Decoded, Decoder, Request
from ..model.causal_lm import CausalLM
from ..model.scoring import distinct
from ..sampling import choose

LOOK_EVERY = 16  # tokens between looks at which rows have ended, which cost a wait on a GPU
FEW = 0.8  # rows that have ended are dropped when no more than this share is left


@DECODERS.register("transformers")
class TransformersDecoder(Decoder):
    """The policy's own model and forward pass, in the process of the run."""

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        policy, rows = self.policy, len(request.prompt)
        shape = rows, request.length
        token = torch.full(shape, policy.pad, device=policy.device)
        mask = torch.zeros(shape, device=policy.device)
        logp = torch.zeros(shape, device=policy.device)
        ended = torch.zeros(rows, dtype=torch.bool, device=policy.device)
        for group in policy.groups(request.versions):
            index = torch.from_numpy(group).to(policy.device)
            state = _State(policy, request, index)
            for s, column in enumerate(request.versions[group].T):
                first, last = s * request.stretch, min((s + 1) * request.stretch, request.length)
                used, position = np.unique(column, return_inverse=True)
                with policy.acting([buffer[v] for v in used.tolist()], position) as forward:
                    state.go_on(forward, first, last)
                if state.over:
                    break
            token[index], mask[index], logp[index], ended[index] = state.finished()
        longest = max(1, int(mask.sum(1).max()))
        return Decoded(
            token[:, :longest], mask[:, :longest], ended, logp[:, :longest], request.version(longest)
        )

    def trusted(self, request: Request) -> bool:
        """Where keys and values of earlier versions stay in the cache, no version alone says what was sampled from."""
        return self.policy.spec.kv_cache == "keep" and request.versions.shape[1] > 1


class _State:
    """Rows that are decoded together, between two stretches; those that ended are dropped once they are many."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor) -> None:
        """Rows `index` of the request."""
        prompt, prompt_mask, length = request.prompt[index], request.prompt_mask[index], request.length
        self.policy, self.stops, self.length = policy, request.stops, length
        rows, self.width = prompt.shape
        self.prompt, self.prompt_mask = prompt, prompt_mask
        self.uniform = None if request.uniform is None else request.uniform[index]
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
