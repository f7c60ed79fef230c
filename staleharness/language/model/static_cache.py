"""Keys and values of all layers in one tensor that stays where it is, with a column for the newest token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attention import ALIGNED, BLOCKED
from .past import Layer, Past


class StaticCache:
    """Column 0 is the newest token's; behind it the prompt's but its last, then that one and the completion's.

    mask [B, 1, 1, C] is what attention adds: 0 where there is something to attend to.
    """

    def __init__(self, config: Any, rows: int, columns: int, kept: torch.dtype, device: torch.device) -> None:
        heads = int(config.num_key_value_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.columns = columns = columns + (-columns % ALIGNED)
        shape = (2 * int(config.num_hidden_layers), rows, heads, columns, width)
        self.room = torch.zeros(shape, dtype=kept, device=device)  # what is blocked is multiplied by 0: no NaN
        self.mask = torch.full((rows, 1, 1, columns), BLOCKED, dtype=kept, device=device)

    def newest(self, columns: int) -> Past:
        """For a pass over one token, which attends to the first so many columns."""
        return Past([_Newest(*pair, columns) for pair in self._layers(slice(None))])

    def behind(self, rows: slice, first: int) -> Past:
        """For a pass that goes on in column `first`."""
        return Past([_Behind(*pair, first) for pair in self._layers(rows)])

    def fill(self, rows: slice, first: int, past: Past, which: Tensor | None) -> None:
        """Put what was read of prompts into the columns from `first` on; `which` of them each row has."""
        for layer, read in zip(self._layers(rows), past.read(), strict=False):  # of prompts of one token, nothing
            for room, found in zip(layer, read, strict=True):
                given = found if which is None else found.index_select(0, which)
                room[:, :, first : first + given.shape[2]] = given

    def settle(self, column: int) -> None:
        """The newest token's goes to a column of its own, and can be attended to there."""
        self.room[:, :, :, column] = self.room[:, :, :, 0]
        self.mask[..., column] = 0.0

    def open(self, prompt_mask: Tensor, columns: int) -> None:
        """Let attention have the newest token, the prompt's tokens [B, P] but the last, and what is behind them."""
        self.mask.fill_(BLOCKED)
        self.mask[..., 0] = 0.0
        width = prompt_mask.shape[1]
        prompt = (prompt_mask[:, :-1] == 0) * BLOCKED
        self.mask[:, 0, 0, 1:width] = prompt.to(self.mask.dtype)
        self.mask[..., width:columns] = 0.0

    def keep(self, left: Tensor) -> None:
        """The rows `left` alone."""
        self.room, self.mask = self.room.index_select(1, left), self.mask.index_select(0, left)

    def _layers(self, rows: slice) -> list[tuple[Tensor, Tensor]]:
        each = self.room[:, rows].unbind(0)
        return list(zip(each[0::2], each[1::2], strict=True))


class _Newest(Layer):
    """One layer, for a pass over one token."""

    def __init__(self, keys: Tensor, values: Tensor, columns: int) -> None:
        self.keys, self.values = keys[:, :, :columns], values[:, :, :columns]

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[:, :, :1] = keys
        self.values[:, :, :1] = values
        return self.keys, self.values


class _Behind(Layer):
    """One layer, for a pass over tokens that go on in column `first`."""

    def __init__(self, keys: Tensor, values: Tensor, first: int) -> None:
        self.keys, self.values, self.first = keys, values, first

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        end = self.first + keys.shape[2]
        self.keys[:, :, self.first : end] = keys
        self.values[:, :, self.first : end] = values
        return self.keys[:, :, 1:end], self.values[:, :, 1:end]
