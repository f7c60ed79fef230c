"""Completions under way: what has been sampled, which rows have ended, and where a stop string ends one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .decoder import Request
from .model.causal_lm import CausalLM

LOOK_EVERY = 16  # tokens between looks at what was sampled, each a wait on a GPU


class Rows:
    """Rows that are decoded together, one part per version (or sequence of versions) and all parts of one length."""

    def __init__(self, policy: CausalLM, request: Request, index: Tensor, real: Tensor, parts: int) -> None:
        """Rows `index` [B] of the request; those that are not `real` fill up their part and are never looked at."""
        self.policy, self.stops, self.length, self.parts = policy, request.stops, request.length, parts
        self.prompt, self.prompt_mask = request.prompt[index], request.prompt_mask[index]
        rows, self.width = self.prompt.shape
        self.uniform = None if request.uniform is None else request.uniform[index]
        self.prompt_length = self.prompt_mask.sum(1, keepdim=True)
        self.token = self.prompt.new_full((rows, self.length), policy.pad)
        self.mask = torch.zeros((rows, self.length), device=index.device)
        self.logp = torch.zeros((rows, self.length), device=index.device)
        self.ended = ~real
        self.index = torch.arange(rows, device=index.device)  # which of all rows each one is
        self.out = [x.clone() for x in (self.token, self.mask, self.logp, self.ended)]
        self.end = torch.tensor(policy.end, device=index.device)
        self.over = False
        self.cut_before = 0  # tokens in which stops have been looked for
        # a tail of so many tokens holds a stop that ends in its last one, however few bytes a token is
        self.reach = 1 + max((len(stop.encode()) for stop in self.stops), default=0)

    def left(self, few: float) -> Tensor | None:
        """The rows to go on with, once at most the share `few` of them has not ended; None: with all. Sets `over`."""
        alive = (~self.ended).view(self.parts, -1)
        size = alive.shape[1]
        most = int(alive.sum(1).max())
        self.over = most == 0
        if self.over or most > few * size:
            return None
        first = torch.arange(self.parts, device=alive.device)[:, None] * size
        return (first + (~alive).long().argsort(dim=1, stable=True)[:, :most]).flatten()

    def keep(self, left: Tensor) -> None:
        """Go on with the rows `left` alone."""
        self._write()
        for name in "prompt prompt_mask prompt_length token mask logp ended index".split():
            setattr(self, name, getattr(self, name).index_select(0, left))
        if self.uniform is not None:
            self.uniform = self.uniform.index_select(0, left)

    def _write(self) -> None:
        for whole, part in zip(self.out, (self.token, self.mask, self.logp, self.ended), strict=True):
            whole[self.index] = part

    def finished(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(token, mask, logp, ended) of the completions."""
        self.cut(self.length)
        self._write()
        token, mask, logp, ended = self.out
        return token, mask, logp * mask, ended

    def cut(self, done: int) -> None:
        """End rows whose text holds a stop string, right behind the token that completed it; `done` tokens are there.

        Looked for in what is new, with as many tokens before it as a stop can reach back.
        """
        if not self.stops or done <= self.cut_before:
            return
        first = max(0, self.cut_before - self.reach)
        counts = self.mask[:, :done].sum(1, keepdim=True).long()
        for i, (count, *tail) in enumerate(torch.cat([counts, self.token[:, first:done]], 1).tolist()):
            if count > self.cut_before and self._holds_stop(tail[: count - first]):
                self._end_at_stop(i, count)
        self.cut_before = done

    def _end_at_stop(self, i: int, count: int) -> None:
        ids = self.token[i, :count].tolist()
        if not self._holds_stop(ids):
            return
        low, high = 1, count  # the shortest prefix whose text holds a stop
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds_stop(ids[:middle]) else (middle + 1, high)
        self.mask[i, low:] = 0
        self.token[i, low:] = self.policy.pad
        self.ended[i] = True

    def _holds_stop(self, ids: Sequence[int]) -> bool:
        text = self.policy.tokenizer.decode(ids)
        return any(stop in text for stop in self.stops)
