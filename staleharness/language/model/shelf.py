"""Versions of the policy that stay on its device, as the quick pass wants them, so that several can act at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...simulator.policy_buffer import Version
from .weights import Weights


class Shelf:
    """Room for a number of versions, in one tensor [room, ...] for each of their weights.

    read: a version's weights on the device, asked once for as long as it stays. Where the room is taken, the oldest of
    those that are not asked for leaves.
    """

    def __init__(self, room: int, read: Callable[[Version], Weights]) -> None:
        self.room, self.read = room, read
        self.held: list[Version | None] = [None] * room
        self.stacks: Weights = {}

    def weights(self, versions: Sequence[Version]) -> Weights:
        """Of one version [...], of several [K, ...] in their order, some of them perhaps the same."""
        places = self.places(versions)
        if len(places) == 1:
            return {name: stack[places[0]] for name, stack in self.stacks.items()}
        if places == list(range(self.room)):
            return self.stacks
        return {name: stack[places] for name, stack in self.stacks.items()}

    @torch.no_grad()
    def places(self, versions: Sequence[Version]) -> list[int]:
        """Where on the shelf each one stands; those that were not there are put there."""
        if len({id(v) for v in versions}) > self.room:
            raise ValueError(f"{len(versions)} versions do not fit on a shelf for {self.room}")
        for version in versions:
            if self._find(version) is None:
                self._put(version, versions)
        found = [self._find(version) for version in versions]
        return [place for place in found if place is not None]

    def _find(self, version: Version) -> int | None:
        return next((i for i, held in enumerate(self.held) if held is version), None)

    def _put(self, version: Version, wanted: Sequence[Version]) -> None:
        free = [i for i, held in enumerate(self.held) if not any(held is v for v in wanted)]
        phase = [-1 if (held := self.held[i]) is None else held.phase for i in free]
        place = free[phase.index(min(phase))]
        weights = self.read(version)
        if not self.stacks:
            self.stacks = {name: w.new_empty((self.room, *w.shape)) for name, w in weights.items()}
        for name, w in weights.items():
            self.stacks[name][place].copy_(w)
        self.held[place] = version
