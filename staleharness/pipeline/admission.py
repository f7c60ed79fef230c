"""May another group begin?"""

from __future__ import annotations

import math

from .settings import Pipeline


class Admission:
    """AReaL's rule: while fewer than (version + 1 + cap) batches have begun, `version` being that of the slots.

    A group that is dropped gives its place back. Without a cap there is always room.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.cap, self.groups = pipeline.cap, pipeline.groups
        self.begun = 0  # groups, without those that were dropped

    def admits(self, version: int) -> bool:
        """Whether one more group may begin; if so, it counts."""
        if self.cap is not None and self.begun >= math.floor((version + 1 + self.cap) * self.groups):
            return False
        self.begun += 1
        return True

    def give_back(self) -> None:
        """A group was dropped."""
        self.begun -= 1

    def forget(self, trained: int) -> None:
        """A restart that remembers the groups `trained` and none that is under way."""
        self.begun = trained
