"""Caches of keys and values, and the attention that reads them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers.cache_utils import DynamicCache, DynamicLayer

from .matrix_products import masked_attention

if TYPE_CHECKING:
    from ...tokens.policy_interface import Forward

# Added before the softmax: 0 after it, and finite, since a row of padding may attend to nothing. Not larger: on a GPU
# the backward pass of such a row takes a difference of two numbers of this size, and at -1e30 its exponential is NaN.
MASK_VALUE = -1e6
ALIGNMENT = 16
READ_TOKENS = 65_536  # of prompts that go through the model at once on a GPU, padding included
HEAD_ALIGNMENT = 8  # numbers of a head that flash attention reads at once
MAX_HEAD = 256  # most numbers of a head that it takes
# A query's and a padded key's number beside their own: exact in bfloat16, and their product 2^20 below any score.
QUERY_MARK, PADDING_MARK = 256.0, -4096.0
NATIVE_GQA_DEVICES = ("cpu",)  # devices whose attention takes a mask and grouped heads at once


class CausalWithPadding(NamedTuple):
    """Mask of the newest of L tokens, causal and without padding, for flash attention, which takes no mask.

    Padding is marked in the keys: a query has one more number, QUERY_MARK, and a key 0, or PADDING_MARK where it is
    padding, so their product lowers the score of padding below all others. Nothing of the size new x L is stored.
    """

    marks: Tensor  # [B, 1, L, HEAD_ALIGNMENT] what follows a key's own numbers

    @staticmethod
    def serves(device: torch.device, dtype: torch.dtype, head: int) -> bool:
        """Return whether flash attention takes heads of this many numbers."""
        return device.type == "cuda" and dtype == torch.bfloat16 and head + HEAD_ALIGNMENT <= MAX_HEAD

    @classmethod
    def of(cls, attention: Tensor, dtype: torch.dtype) -> CausalWithPadding:
        """attention [B, L]: 1 for tokens."""
        marks = ((attention == 0) * PADDING_MARK).to(dtype)[:, None, :, None]
        return cls(F.pad(marks, (0, HEAD_ALIGNMENT - 1)))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Return the attention of queries [B, H, new, head] to fewer heads of keys and values [B, G, L, head]."""
        width, pad = query.shape[-1], (0, HEAD_ALIGNMENT - 1)
        mark = F.pad(query.new_full((1, 1, 1, 1), QUERY_MARK), pad)
        query = torch.cat([query, mark.expand(*query.shape[:3], -1)], -1)
        keys = torch.cat([keys, self.marks.expand(-1, keys.shape[1], -1, -1)], -1)
        values = F.pad(values, (0, HEAD_ALIGNMENT))
        causal = causal_lower_right(query.shape[2], keys.shape[2])
        gqa = query.shape[1] > keys.shape[1]
        return F.scaled_dot_product_attention(query, keys, values, causal, scale=scale, enable_gqa=gqa)[..., :width]


Mask = Tensor | CausalWithPadding


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Mask, scale: float) -> Tensor:
    """Attention of queries [B, H, new, head] to fewer heads of keys and values [B, G, L, head]; `mask`: `mask_term`'s.

    The fused kernels of a GPU take a mask or grouped heads; given both, torch falls back to one that writes the whole
    matrix and copies keys and values for every head of queries. So on a GPU queries of one group become further rows
    of one head, and keys and values are not copied.
    """
    if isinstance(mask, CausalWithPadding):
        return mask.attend(query, keys, values, scale)
    count, heads, new, width = query.shape
    group = heads // keys.shape[1]
    if group == 1 or query.device.type in NATIVE_GQA_DEVICES:
        return masked_attention(query, keys, values, mask, scale, group > 1)
    rows = query.reshape(count, keys.shape[1], group * new, width)
    return F.scaled_dot_product_attention(rows, keys, values, mask, scale=scale).reshape(query.shape)


def mask_term(attention: Tensor, new: int, dtype: torch.dtype, group: int = 1) -> Tensor:
    """Return the term [B, 1, new, L] by which the last `new` of L tokens attend to `attention` [B, L], causally.

    On a GPU its rows are repeated `group` times, as `attend` lays out queries, and begin at multiples of `ALIGNMENT`
    numbers, without which its kernels would copy it in every layer.
    """
    mask = ((attention == 0) * MASK_VALUE).to(dtype)[:, None, None]
    length = attention.shape[1]
    if new > 1:
        later = torch.full((new, length), MASK_VALUE, dtype=dtype, device=attention.device)
        mask = torch.minimum(mask, later.triu(length - new + 1))
    if attention.device.type in NATIVE_GQA_DEVICES:
        return mask
    mask = F.pad(mask, (0, -length % ALIGNMENT))
    return (mask.repeat(1, 1, group, 1) if new > 1 else mask)[..., :length]


class CacheLayer(ABC):
    """One layer's part of a cache."""

    @abstractmethod
    def update(self, keys: Tensor, values: Tensor, /) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens; return all that the new tokens attend to."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask, scale: float) -> Tensor:
        """Attend as `attend` does, given keys and values of the new tokens alone."""
        return attend(query, *self.update(keys, values), mask, scale)


class PrefixLayer(CacheLayer):
    """Keys and values of one layer, which no update extends, so that recomputing a layer for its gradient finds the
    same ones."""

    def __init__(self, states: tuple[Tensor, Tensor] | None = None) -> None:
        """states: keys and values of tokens before; None: each update stores those it is given."""
        self.states, self.continues = states, states is not None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.states is None or not self.continues:
            self.states = keys, values
            return keys, values
        return torch.cat([self.states[0], keys], -2), torch.cat([self.states[1], values], -2)


class PrefixCache:
    """Prompts that several rows continue, layer by layer, for the fused forward pass."""

    def __init__(self, layers: Sequence[CacheLayer]) -> None:
        self.layers = layers

    def states(self) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values of each `PrefixLayer` that has any."""
        return [x.states for x in self.layers if isinstance(x, PrefixLayer) and x.states is not None]

    def select(self, prompt_index: Tensor) -> PrefixCache:
        """Return the cache for rows that continue the prompts `prompt_index` [R]."""
        pairs = [
            (keys.index_select(0, prompt_index), values.index_select(0, prompt_index)) for keys, values in self.states()
        ]
        return PrefixCache([PrefixLayer(pair) for pair in pairs])


class DistinctPrompts(NamedTuple):
    """Prompts [U, P] that differ from their neighbours, and the prompt of each row; None: one per row."""

    ids: Tensor
    mask: Tensor
    prompt_index: Tensor | None

    def read(self, forward: Forward, cache: Any) -> None:
        """Put all but the last token of each prompt into the empty `cache`."""
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)
        if positions.shape[1] > 1:
            forward(self.ids[:, :-1], self.mask[:, :-1], positions[:, :-1], cache, 1)


def distinct_prompts(shares: bool, prompt: Tensor, prompt_mask: Tensor) -> DistinctPrompts:
    """Return the prompts [B, P] to read, equal neighbours once if the policy `shares` their cache."""
    if not shares or prompt.shape[1] == 1:
        return DistinctPrompts(prompt, prompt_mask, None)
    ids_and_masks = torch.cat([prompt, prompt_mask], 1)
    unique, inverse = ids_and_masks.unique_consecutive(dim=0, return_inverse=True)
    ids, mask = unique.chunk(2, 1)
    return DistinctPrompts(ids, mask, None if len(unique) == len(prompt) else inverse)


class PreallocatedLayer(DynamicLayer, CacheLayer):  # type: ignore[misc]
    """One layer with memory for `columns` tokens, written in place; transformers' own copies itself at every token."""

    def __init__(self, columns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.columns, self.precision = columns, dtype
        self.memory: tuple[Tensor, ...] = ()  # keys and values [B, heads, columns, width]
        self.length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.memory = tuple(
                x.new_empty((*x.shape[:2], self.columns, x.shape[-1]), dtype=self.precision)
                for x in (key_states, value_states)
            )
        begin, self.length = self.length, self.length + key_states.shape[-2]
        for memory, states in zip(self.memory, (key_states, value_states), strict=True):
            memory[:, :, begin : self.length] = states
        self.keys, self.values = (memory[:, :, : self.length] for memory in self.memory)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.length > 0:
            self._set(tuple(memory.index_select(0, indices) for memory in self.memory))

    def join(self, other: PreallocatedLayer) -> None:
        """Append the rows of `other`."""
        if self.length > 0:
            self._set(tuple(map(torch.cat, zip(self.memory, other.memory, strict=True))))

    def _set(self, memory: tuple[Tensor, ...]) -> None:
        self.memory = memory
        self.keys, self.values = (x[:, :, : self.length] for x in memory)


class PreallocatedCache(DynamicCache):  # type: ignore[misc]
    """transformers' cache with memory for `columns` tokens in each layer that keeps them all."""

    def __init__(self, config: Any, columns: int, dtype: torch.dtype) -> None:
        super().__init__(config=config)
        for i, layer in enumerate(self.layers):
            if type(layer) is DynamicLayer:
                self.layers[i] = PreallocatedLayer(columns, dtype)

    def begin(self, prompts: DistinctPrompts, forward: Forward) -> None:
        """Read all but the last token of each prompt, then give each row that continues one its own copy."""
        prompts.read(forward, self)
        if prompts.prompt_index is not None:
            self.batch_select_indices(prompts.prompt_index)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows alone."""
        self.batch_select_indices(rows)

    def copy(self) -> PreallocatedCache:
        """Return a cache that changes independently from here on."""
        cache = copy.copy(self)
        cache.layers = [copy.copy(layer) for layer in self.layers]
        return cache

    def join(self, other: PreallocatedCache) -> None:
        """Continue with the rows of both, all of which have equally many tokens."""
        for layer, other_layer in zip(self.layers, other.layers, strict=True):
            layer.join(other_layer)


class StaticCache:
    """Keys and values of all layers in one tensor that is never moved, as CUDA graphs require.

    Column 0 is the newest token's. After it come the prompt's except its last, then that and the completion's.
    mask [B, 1, 1, C] is the term of attention: 0 where there is something to attend to.
    """

    def __init__(self, config: Any, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        heads = int(config.num_key_value_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.columns = columns = columns + (-columns % ALIGNMENT)
        shape = (int(config.num_hidden_layers), 2, rows, heads, columns, width)
        self.memory = torch.zeros(shape, dtype=dtype, device=device)  # masked values are multiplied by 0: no NaN
        self.mask = torch.full((rows, 1, 1, columns), MASK_VALUE, dtype=dtype, device=device)

    def newest(self, columns: int) -> PrefixCache:
        """Return the cache for a pass over one token, which attends to the first `columns` columns."""
        return PrefixCache([_StaticLayer(keys, values, 0, columns) for keys, values in self.memory])

    def append(self, rows: slice, first: int) -> PrefixCache:
        """Return the cache for a pass over tokens that go to the columns from `first` on."""
        return PrefixCache([_StaticLayer(keys, values, first) for keys, values in self.memory[:, :, rows]])

    def fill(self, rows: slice, prefix: PrefixCache, prompt_index: Tensor | None) -> None:
        """Copy prompts into the columns after the newest token's; `prompt_index`: the prompt of each row."""
        all_states = prefix.states()  # of prompts of one token: none
        for layer, states in zip(self.memory[:, :, rows], all_states, strict=False):
            for memory, source in zip(layer, states, strict=True):
                source = source if prompt_index is None else source.index_select(0, prompt_index)
                memory[:, :, 1 : 1 + source.shape[2]] = source

    def settle(self, column: int) -> None:
        """Copy the newest token's keys and values to its own column, where later tokens can attend to it."""
        self.memory[..., column, :] = self.memory[..., 0, :]
        self.mask[..., column] = 0.0

    def unmask(self, prompt_mask: Tensor, columns: int) -> None:
        """Let attention see the newest token, the prompt's tokens [B, P] but the last, and the columns after them."""
        self.mask.fill_(MASK_VALUE)
        self.mask[..., 0] = 0.0
        width = prompt_mask.shape[1]
        prompt = (prompt_mask[:, :-1] == 0) * MASK_VALUE
        self.mask[:, 0, 0, 1:width] = prompt.to(self.mask.dtype)
        self.mask[..., width:columns] = 0.0

    def select(self, rows: Tensor) -> None:
        """Continue with these rows alone."""
        self.memory, self.mask = self.memory.index_select(2, rows), self.mask.index_select(0, rows)


class _StaticLayer(CacheLayer):
    """One layer, written from column `first` on. A pass over the newest token reads the first `columns`, any other
    pass all that was written but the newest token's column 0."""

    def __init__(self, keys: Tensor, values: Tensor, first: int, columns: int | None = None) -> None:
        self.keys, self.values, self.first, self.columns = keys, values, first, columns

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = self.first + keys.shape[2]
        self.keys[:, :, self.first : end] = keys
        self.values[:, :, self.first : end] = values
        visible = slice(1, end) if self.columns is None else slice(self.columns)
        return self.keys[:, :, visible], self.values[:, :, visible]
