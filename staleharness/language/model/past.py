"""Prompts that several completions continue: their keys and values, read once, with gradient where one is wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .attention import attend

if TYPE_CHECKING:
    from ...tokens.policy import Forward


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


class Prompts(NamedTuple):
    """Prompts [U, P] that differ from their neighbours, and which of them each row has; None: its own."""

    ids: Tensor
    mask: Tensor
    which: Tensor | None

    def read(self, forward: Forward, cache: Any) -> None:
        """Put all but the last token into the empty `cache`, row by row of these prompts."""
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)
        if positions.shape[1] > 1:
            forward(self.ids[:, :-1], self.mask[:, :-1], positions[:, :-1], cache, 1)


def distinct(shares: bool, prompt: Tensor, prompt_mask: Tensor) -> Prompts:
    """The prompts [B, P] to read, each once if `shares`: the policy can share what it has read."""
    if not shares or prompt.shape[1] == 1:
        return Prompts(prompt, prompt_mask, None)
    both = torch.cat([prompt, prompt_mask], 1)
    found, which = both.unique_consecutive(dim=0, return_inverse=True)
    ids, mask = found.chunk(2, 1)
    return Prompts(ids, mask, None if len(found) == len(prompt) else which)
