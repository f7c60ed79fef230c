"""Cache of keys and values for sampling that holds each prompt once, and memory for the tokens of each completion.

All completions of a prompt attend to it in one matrix product (Hydragen: Juravsky et al. 2024, arXiv 2402.05099,
section 3); a kernel that goes row by row reads it again for each. Scores, weights and sums are float32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .kv_cache import MASK_VALUE, CacheLayer, DistinctPrompts, Mask, attend

if TYPE_CHECKING:
    from ...tokens.policy_interface import Forward


MAX_TOKENS = 4096  # of prompts that go through the model at once, padding included


class SharedPromptCache:
    """Cache that reads distinct prompts first, then serves passes over the rows that continue them."""

    def __init__(self, layers: int, columns: int) -> None:
        """columns: tokens beyond the prompts, at most."""
        self.columns = columns
        self.rows: PromptRows | None = None
        self.mask = torch.empty(0)  # term of attention for the prompts [U, 1, 1, P]
        self.reading: tuple[Tensor, int] = (torch.empty(0), 0)  # prompts that are being read, from this column on
        self.layers = [_SharedLayer(self) for _ in range(layers)]

    def begin(self, prompts: DistinctPrompts, forward: Forward) -> None:
        """Read all but the last token of each prompt, those of like length together, then lay out the rows that
        continue them."""
        ids, mask = prompts.ids[:, :-1], prompts.mask[:, :-1]
        self.mask = ((mask == 0) * MASK_VALUE).float()[:, None, None]
        for rows, longest in length_batches(mask.sum(1)):
            if longest:
                first = mask.shape[1] - longest
                self.reading = rows, first
                real = mask[rows, first:]
                forward(ids[rows, first:], real, (real.cumsum(1) - 1).clamp(min=0), self, 1)
        self.rows = PromptRows(torch.arange(len(mask)) if prompts.prompt_index is None else prompts.prompt_index)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows [B] alone, and with their prompts."""
        assert self.rows is not None
        prompts, prompt_index = self.rows.prompt_index.index_select(0, rows).unique(return_inverse=True)
        self.rows, self.mask = PromptRows(prompt_index), self.mask.index_select(0, prompts)
        for layer in self.layers:
            layer.select(rows, prompts)

    def copy(self) -> SharedPromptCache:
        """Return a cache that changes independently from here on."""
        cache = copy.copy(self)
        cache.layers = [copy.copy(layer) for layer in self.layers]
        for layer in cache.layers:
            layer.cache = cache
        return cache

    def join(self, other: SharedPromptCache) -> None:
        """Continue with the rows of both, all of which have equally many tokens."""
        assert self.rows is not None and other.rows is not None
        self.rows = PromptRows(torch.cat([self.rows.prompt_index, other.rows.prompt_index + len(self.mask)]))
        for layer, other_layer in zip(self.layers, other.layers, strict=True):
            layer.join(other_layer)
        self.mask = torch.cat([self.mask, other.mask])


def length_batches(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield (rows, the longest of them) in pieces of at most `MAX_TOKENS` tokens, padding included, given the rows'
    lengths [U]; a longer row is a piece of its own."""
    order = lengths.argsort(stable=True)
    first = 0
    for i, longest in enumerate(lengths[order].tolist()):
        if i > first and (i + 1 - first) * longest > MAX_TOKENS:
            yield order[first:i], int(lengths[order[i - 1]])
            first = i
    yield order[first:], int(lengths[order[-1]])


class _SharedLayer(CacheLayer):
    """One layer's part."""

    def __init__(self, cache: SharedPromptCache) -> None:
        self.cache = cache
        self.prompt: tuple[Tensor, ...] = ()  # keys and values [U, G, P, head]
        self.completion: tuple[Tensor, ...] = ()  # memory for them [B, G, columns, head]
        self.length = 0

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens; return those of all tokens after the prompts."""
        if not self.completion:
            shape = (len(keys), keys.shape[1], self.cache.columns, keys.shape[3])
            self.completion = tuple(torch.empty(shape) for _ in range(2))
        begin, self.length = self.length, self.length + keys.shape[2]
        for memory, new in zip(self.completion, (keys, values), strict=True):
            memory[:, :, begin : self.length] = new
        all_keys, all_values = (memory[:, :, : self.length] for memory in self.completion)
        return all_keys, all_values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask, scale: float) -> Tensor:
        rows = self.cache.rows
        if rows is None:
            self._store_prompts(keys, values)
            return attend(query, keys, values, mask, scale)
        keys, values = self.update(keys, values)
        count, _, new, width = query.shape
        # queries that have keys in common become further rows of one head
        queries = (scale * query.float()).reshape(count, keys.shape[1], -1, width)
        scores = queries @ keys.mT
        if new > 1:
            later = torch.full((new, keys.shape[2]), MASK_VALUE).triu(keys.shape[2] - new + 1)
            scores += later.repeat(queries.shape[2] // new, 1)
        if not self.prompt:  # each has one token, which counts as the completion's first
            output = scores.softmax(-1) @ values
        else:
            prompt_keys, prompt_values = self.prompt
            prompt_scores = rows.scatter(rows.gather(queries) @ prompt_keys.mT + self.cache.mask)
            weights = torch.cat([prompt_scores, scores], -1).softmax(-1)
            prompt_weights, completion_weights = weights.split([prompt_keys.shape[2], keys.shape[2]], -1)
            output = completion_weights @ values + rows.scatter(rows.gather(prompt_weights) @ prompt_values)
        return output.view(query.shape).to(query.dtype)

    def _store_prompts(self, keys: Tensor, values: Tensor) -> None:
        """Store keys and values of the prompts being read. Padding before them stays 0: it is masked, but must still
        be a number."""
        prompts, first = self.cache.reading
        if not self.prompt:
            count, columns = len(self.cache.mask), self.cache.mask.shape[-1]
            self.prompt = tuple(torch.zeros((count, keys.shape[1], columns, keys.shape[3])) for _ in range(2))
        for memory, states in zip(self.prompt, (keys, values), strict=True):
            memory[prompts, :, first:] = states.float()

    def join(self, other: _SharedLayer) -> None:
        """Append prompts and rows of `other`. Prompts of one token have no keys: zeros, which are masked."""
        if self.prompt or other.prompt:
            shape = (self.prompt or other.prompt)[0].shape[1:]
            pairs = [x.prompt or [torch.zeros((len(x.cache.mask), *shape))] * 2 for x in (self, other)]
            self.prompt = tuple(map(torch.cat, zip(*pairs, strict=True)))
        self.completion = tuple(map(torch.cat, zip(self.completion, other.completion, strict=True)))

    def select(self, rows: Tensor, prompts: Tensor) -> None:
        self.prompt = tuple(x.index_select(0, prompts) for x in self.prompt)
        fresh = []
        for memory in self.completion:
            fresh.append(torch.empty((len(rows), *memory.shape[1:])))
            fresh[-1][:, :, : self.length] = memory[:, :, : self.length].index_select(0, rows)
        self.completion = tuple(fresh)


class PromptRows:
    """Layout of rows by prompt: one block per prompt, all blocks as long as that of the prompt with the most rows."""

    def __init__(self, prompt_index: Tensor) -> None:
        """prompt_index [B]: the prompt of each row, from 0 to U − 1, each one present."""
        self.prompt_index, count = prompt_index, len(prompt_index)
        sizes = prompt_index.bincount()
        self.shape = len(sizes), int(sizes.max())
        order = prompt_index.argsort(stable=True)
        nth = torch.empty_like(prompt_index)  # among its prompt's rows
        nth[order] = torch.arange(count) - (sizes.cumsum(0) - sizes)[prompt_index[order]]
        place = prompt_index * self.shape[1] + nth
        self.row_at = torch.zeros(self.shape[0] * self.shape[1], dtype=torch.long)  # 0 where there is no row
        self.row_at[place] = torch.arange(count)
        self.place = None if torch.equal(place, torch.arange(len(self.row_at))) else place

    def gather(self, x: Tensor) -> Tensor:
        """Return [B, G, n, w] as [U, G, block · n, w]."""
        if self.place is not None:
            x = x.index_select(0, self.row_at)
        return x.view(*self.shape, *x.shape[1:]).transpose(1, 2).flatten(2, 3)

    def scatter(self, x: Tensor) -> Tensor:
        """Return [U, G, block · n, w] as [B, G, n, w]."""
        x = x.view(*x.shape[:2], self.shape[1], -1, x.shape[3]).transpose(1, 2).flatten(0, 1)
        return x if self.place is None else x.index_select(0, self.place)
