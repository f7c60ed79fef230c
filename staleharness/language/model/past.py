"""Prompts that several completions continue: their keys and values, read once, with gradient where one is wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from .attention import attend


class Layer(ABC):
    """One layer's part of a cache."""

    @abstractmethod
    def update(self, keys: Tensor, values: Tensor, /) -> tuple[Tensor, Tensor]:
        """Take in those of new tokens; all that they attend to."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
        """As `attention.attend`, given keys and values of the new tokens alone."""
        return attend(query, *self.update(keys, values), mask, scale)


class Read(Layer):
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
    """A cache for the quick pass, layer by layer."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers

    def read(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each `Read` layer that has any."""
        found = [(x.keys, x.values) for x in self.layers if isinstance(x, Read)]
        return [(keys, values) for keys, values in found if keys is not None and values is not None]

    def rows(self, which: Tensor) -> Past:
        """What rows that continue the row `which` [R] of these find."""
        return Past([Read(*(x.index_select(0, which) for x in pair)) for pair in self.read()])
