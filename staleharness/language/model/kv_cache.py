"""Keys and values of past tokens, written in place: the cache that transformers ships copies itself at every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from .past import Layer

if TYPE_CHECKING:
    from ...tokens.policy import Forward
    from .past import Prompts


class RoomyLayer(DynamicLayer, Layer):  # type: ignore[misc]
    """One layer's cache with room for `columns` tokens, kept in the precision that attention is computed in."""

    def __init__(self, columns: int, kept: torch.dtype) -> None:
        super().__init__()
        self.columns, self.kept = columns, kept
        self.room: tuple[Tensor, ...] = ()  # keys and values [B, heads, columns, width]
        self.used = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.room = tuple(self._empty(x) for x in (key_states, value_states))
        begin, self.used = self.used, self.used + key_states.shape[-2]
        for room, states in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, begin : self.used] = states
        self.keys, self.values = (room[:, :, : self.used] for room in self.room)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.used > 0:
            self.room = tuple(room.index_select(0, indices) for room in self.room)
            self.keys, self.values = (room[:, :, : self.used] for room in self.room)

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_empty((*like.shape[:2], self.columns, like.shape[-1]), dtype=self.kept)


class RoomyCache(DynamicCache):  # type: ignore[misc]
    """transformers' cache with room for `columns` tokens in each layer that keeps them all."""

    def __init__(self, config: Any, columns: int, kept: torch.dtype) -> None:
        super().__init__(config=config)
        for i, layer in enumerate(self.layers):
            if type(layer) is DynamicLayer:
                self.layers[i] = RoomyLayer(columns, kept)

    def begin(self, prompts: Prompts, forward: Forward) -> None:
        """Read all but the last token of each prompt; then there is a row for each that continues one."""
        prompts.read(forward, self)
        if prompts.which is not None:
            self.batch_select_indices(prompts.which)

    def keep(self, left: Tensor) -> None:
        """Go on with the rows `left` alone."""
        self.batch_select_indices(left)
