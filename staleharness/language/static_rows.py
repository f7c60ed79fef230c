"""Decoding on a GPU: tensors that stay where they are, so that a step can be recorded once and replayed.

A step reads its input and writes its answer in place and changes nothing else; what it answers is carried over by a
few copies behind it. The newest token's keys and values go to column 0 of the cache, which every step can therefore
write, and from there to their own: attention does not mind the order of what it attends to.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..tokens.policy import Forward
from .decoder import Request
from .model.causal_lm import CausalLM
from .model.past import distinct
from .model.quick_pass import QuickPass
from .model.recording import Recording
from .model.static_cache import StaticCache
from .rows import LOOK_EVERY, Rows
from .sampling import draw

FEW = 0.5  # rows that have ended are dropped when no more than this share is left: dropping copies the cache
COLUMNS = 128  # attention reads whole multiples of so many columns, so that a recording serves for as many tokens


class _Step(NamedTuple):
    """What a step reads (`ended` as well) and what it writes."""

    current: Tensor  # [B, 1] the token before
    position: Tensor  # [B, 1]
    uniform: Tensor  # [B] its noise
    token: Tensor  # [B] what was sampled
    logp: Tensor  # [B]
    over: Tensor  # [B] whether it ends the row


class StaticRows(Rows):
    """Rows of one version or of several, part by part, by the quick pass."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor, real: Tensor, parts: int) -> None:
        super().__init__(policy, request, index, real, parts)
        columns = self.width + self.length + (-(self.width + self.length) % COLUMNS)
        self.cache = StaticCache(policy.model.config, len(index), columns, policy.precision, index.device)
        self.filled = False

    def go_on(self, forward: Forward, first: int, last: int) -> None:
        """Sample tokens `first` … `last` − 1 by one quick pass."""
        assert isinstance(forward, QuickPass)
        forward.make_room(self.width + self.length)
        if not self.filled or self.policy.spec.kv_cache == "recompute":
            self._read(forward, first)
        step, recording, reach = self._begin(first), None, 0
        for t in range(first, last):
            column = self.width + t  # where this token's keys and values go; those before it are there
            if recording is None or column > reach:
                reach = min(column + (-column % COLUMNS), self.cache.columns)
                recording = None  # its memory is free before the next one takes its own
                recording = Recording(partial(self._step, forward, step, reach), step.token.device)
            if self.uniform is not None:
                step.uniform.copy_(self.uniform[:, t])
            recording()
            self._carry(step, t, column)
            if t % LOOK_EVERY == LOOK_EVERY - 1:
                self.cut(t + 1)
                left = self.left(FEW)
                if self.over:
                    return
                if left is not None:
                    self.keep(left)
                    step, recording = self._begin(t + 1), None

    def _begin(self, t: int) -> _Step:
        """The tensors of the steps from token `t` on."""
        before = self.token[:, t - 1 : t] if t > 0 else self.prompt[:, -1:]
        shape = (len(before),)
        return _Step(
            before.clone(),
            self.prompt_length + (t - 1),
            self.logp.new_zeros(shape),
            before.new_zeros(shape),
            self.logp.new_zeros(shape),
            self.ended.new_zeros(shape),
        )

    def _step(self, forward: QuickPass, step: _Step, columns: int) -> None:
        past, mask = self.cache.newest(columns), self.cache.mask[..., :columns]
        logits = forward.run(step.current, mask, step.position, past, 1)[:, -1].float()
        token, logp = draw(logits, None if self.uniform is None else step.uniform)
        step.token.copy_(torch.where(self.ended, self.policy.pad, token))
        step.logp.copy_(logp)
        step.over.copy_(torch.isin(token, self.end))

    def _carry(self, step: _Step, t: int, column: int) -> None:
        """What the step answered becomes what is known, and what the next one is asked."""
        self.token[:, t] = step.token
        self.mask[:, t] = (~self.ended).float()
        self.logp[:, t] = step.logp
        self.ended |= step.over
        step.current[:, 0] = step.token
        step.position.add_(1)
        self.cache.settle(column)

    def _read(self, forward: QuickPass, done: int) -> None:
        """Keys and values of the prompts, and of `done` tokens but the last; each prompt once, part by part."""
        size = len(self.prompt) // self.parts
        for part in range(self.parts):
            rows = slice(part * size, (part + 1) * size)
            one = forward.part(part) if self.parts > 1 else forward
            prompt, prompt_mask = self.prompt[rows], self.prompt_mask[rows]
            prompts = distinct(self.policy.shares_prompts, prompt, prompt_mask)
            past = self.policy.past()
            prompts.read(one, past)
            self.cache.fill(rows, 1, past, prompts.which)
            if done == 0:
                continue
            ids = torch.cat([prompt[:, -1:], self.token[rows, : done - 1]], 1)
            attention = torch.cat([prompt_mask, prompt_mask.new_ones((size, done - 1))], 1)
            positions = self.prompt_length[rows] + torch.arange(-1, done - 1, device=ids.device)
            one(ids, attention, positions, self.cache.behind(rows, self.width), 1)
        self.cache.open(self.prompt_mask, self.width + done)
        self.filled = True

    def keep(self, left: Tensor) -> None:
        super().keep(left)
        self.cache.keep(left)
