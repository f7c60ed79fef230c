"""Keys and values while completions are sampled: a prompt's once, whoever continues it, and room for each completion's.

All completions of a prompt ask it in one matrix product (Hydragen: Juravsky et al. 2024, arXiv 2402.05099, section 3);
a kernel that goes row by row and head by head reads it again for each. Scores, weights and sums are float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .attention import BLOCKED, attend
from .past import Layer

if TYPE_CHECKING:
    from ...tokens.policy import Forward
    from .past import Prompts


TOKENS = 4096  # of prompts that go through the model at once, padding included


class SharedPrompts:
    """Empty: it reads prompts, each once; then passes go on with the rows that continue them."""

    def __init__(self, layers: int, columns: int) -> None:
        """columns: tokens that are read beyond the prompts, at most."""
        self.columns = columns
        self.rows: Rows | None = None
        self.mask = torch.empty(0)  # what attention adds for the prompts that were read [U, 1, 1, P]
        self.reading: tuple[Tensor, int] = (torch.empty(0), 0)  # prompts that are being read, from this column on
        self.layers = [SharedLayer(self) for _ in range(layers)]

    def begin(self, prompts: Prompts, forward: Forward) -> None:
        """Read all but the last token of each prompt, those of like length together; then there is a row for each
        that continues one."""
        ids, mask = prompts.ids[:, :-1], prompts.mask[:, :-1]
        self.mask = ((mask == 0) * BLOCKED).float()[:, None, None]
        for some, longest in alike(mask.sum(1)):
            if longest:
                first = mask.shape[1] - longest
                self.reading = some, first
                real = mask[some, first:]
                forward(ids[some, first:], real, (real.cumsum(1) - 1).clamp(min=0), self, 1)
        self.rows = Rows(torch.arange(len(mask)) if prompts.which is None else prompts.which)

    def keep(self, left: Tensor) -> None:
        """Go on with the rows `left` [B] alone, and with the prompts that they continue."""
        assert self.rows is not None
        prompts, which = self.rows.which.index_select(0, left).unique(return_inverse=True)
        self.rows, self.mask = Rows(which), self.mask.index_select(0, prompts)
        for layer in self.layers:
            layer.keep(left, prompts)


def alike(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """(rows, the longest of them) of pieces of at most `TOKENS` tokens, padding included, given the rows' lengths
    [U]; a row that is longer is a piece of its own."""
    order = lengths.argsort(stable=True)
    first = 0
    for i, longest in enumerate(lengths[order].tolist()):
        if i > first and (i + 1 - first) * longest > TOKENS:
            yield order[first:i], int(lengths[order[i - 1]])
            first = i
    yield order[first:], int(lengths[order[-1]])


class SharedLayer(Layer):
    """One layer's part."""

    def __init__(self, cache: SharedPrompts) -> None:
        self.cache = cache
        self.prompt: tuple[Tensor, ...] = ()  # keys and values [U, G, P, head]
        self.own: tuple[Tensor, ...] = ()  # with room for them [B, G, columns, head]
        self.used = 0

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take in those of new tokens; those of all tokens behind the prompts."""
        if not self.own:
            shape = (len(keys), keys.shape[1], self.cache.columns, keys.shape[3])
            self.own = tuple(torch.empty(shape) for _ in range(2))
        begin, self.used = self.used, self.used + keys.shape[2]
        for room, new in zip(self.own, (keys, values), strict=True):
            room[:, :, begin : self.used] = new
        mine, theirs = (room[:, :, : self.used] for room in self.own)
        return mine, theirs

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
        rows = self.cache.rows
        if rows is None:  # prompts are being read
            self._read(keys, values)
            return attend(query, keys, values, mask, scale)
        keys, values = self.update(keys, values)
        count, _, new, width = query.shape
        # queries that have keys in common become further rows of one head
        asked = (scale * query.float()).reshape(count, keys.shape[1], -1, width)
        scores = asked @ keys.mT
        if new > 1:
            later = torch.full((new, keys.shape[2]), BLOCKED).triu(keys.shape[2] - new + 1)
            scores += later.repeat(asked.shape[2] // new, 1)
        if not self.prompt:  # each is of one token, which is the first of those that go on
            found = scores.softmax(-1) @ values
        else:
            prompt_keys, prompt_values = self.prompt
            of_prompt = rows.back(rows.gathered(asked) @ prompt_keys.mT + self.cache.mask)
            weights = torch.cat([of_prompt, scores], -1).softmax(-1)
            of_prompt, own = weights.split([prompt_keys.shape[2], keys.shape[2]], -1)
            found = own @ values + rows.back(rows.gathered(of_prompt) @ prompt_values)
        return found.view(query.shape).to(query.dtype)

    def _read(self, keys: Tensor, values: Tensor) -> None:
        """Those of the prompts that are being read. What is padding in front of them stays 0: it is blocked, and must
        be a number all the same."""
        prompts, first = self.cache.reading
        if not self.prompt:
            count, columns = len(self.cache.mask), self.cache.mask.shape[-1]
            self.prompt = tuple(torch.zeros((count, keys.shape[1], columns, keys.shape[3])) for _ in range(2))
        for room, read in zip(self.prompt, (keys, values), strict=True):
            room[prompts, :, first:] = read.float()

    def keep(self, left: Tensor, prompts: Tensor) -> None:
        self.prompt = tuple(x.index_select(0, prompts) for x in self.prompt)
        fresh = []
        for room in self.own:
            fresh.append(torch.empty((len(left), *room.shape[1:])))
            fresh[-1][:, :, : self.used] = room[:, :, : self.used].index_select(0, left)
        self.own = tuple(fresh)


class Rows:
    """Rows by the prompt that each continues: laid out prompt by prompt, all as many as the prompt with the most."""

    def __init__(self, which: Tensor) -> None:
        """which [B]: a prompt from 0 to U − 1 for each row, all of them used."""
        self.which, count = which, len(which)
        many = which.bincount()
        self.shape = len(many), int(many.max())
        order = which.argsort(stable=True)
        nth = torch.empty_like(which)  # of its prompt's rows
        nth[order] = torch.arange(count) - (many.cumsum(0) - many)[which[order]]
        place = which * self.shape[1] + nth
        # the row in each place, row 0 where there is none
        self.filled = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.long)
        self.filled[place] = torch.arange(count)
        self.place = None if torch.equal(place, torch.arange(len(self.filled))) else place

    def gathered(self, x: Tensor) -> Tensor:
        """[B, G, n, w] as [U, G, most · n, w]."""
        if self.place is not None:
            x = x.index_select(0, self.filled)
        return x.view(*self.shape, *x.shape[1:]).transpose(1, 2).flatten(2, 3)

    def back(self, x: Tensor) -> Tensor:
        """[U, G, most · n, w] as [B, G, n, w]."""
        x = x.view(*x.shape[:2], self.shape[1], -1, x.shape[3]).transpose(1, 2).flatten(0, 1)
        return x if self.place is None else x.index_select(0, self.place)
