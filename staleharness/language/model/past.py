"""Prompts that several completions continue: their keys and values, read once, with gradient where one is wanted."""

from __future__ import annotations

import torch
from torch import Tensor


class Read:
    """Keys and values of one layer as they were read at once, which stay what they are: computing a layer again for
    its gradient finds here what it found the first time."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self.keys, self.values = keys, values
        self.given = keys is not None and values is not None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """With what is there already, if anything was given; otherwise this is what is read."""
        if not self.given:
            self.keys, self.values = keys, values
            return keys, values
        assert self.keys is not None and self.values is not None
        return torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)


class Past:
    """`Read` layers, as a cache for the quick pass."""

    def __init__(self, layers: list[Read]) -> None:
        self.layers = layers

    def rows(self, which: Tensor) -> Past:
        """What rows that continue the row `which` [R] of these find."""
        return Past([
            Read(layer.keys.index_select(0, which), layer.values.index_select(0, which))
            for layer in self.layers
            if layer.keys is not None and layer.values is not None
        ])  # fmt: skip
