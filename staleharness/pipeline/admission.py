"""May another group begin?"""

from __future__ import annotations

import math

from .settings import Pipeline


class Admission:
    """AReaL's rule: while fewer than (version + 1 + cap) batches have begun, `version` being that of the slots.

    A group that is dropped gives its place back. Without a cap there is always room. prime-rl counts batches that have
    finished, and not those that have begun.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.cap, self.groups = pipeline.cap, pipeline.groups
        self.counts, self.of_trainer = pipeline.cap_counts, pipeline.cap_version == "trainer"
        self.begun = self.finished = 0  # groups, without those that were dropped
        self.trained = 0  # version of the trainer

    def admits(self, version: int) -> bool:
        """Whether one more group may begin; if so, it counts."""
        if self.cap is not None:
            version = self.trained if self.of_trainer else version
            counted = self.begun if self.counts == "begun" else self.finished
            if counted >= math.floor((version + 1 + self.cap) * self.groups):
                return False
        self.begun += 1
        return True

    def give_back(self, finished: bool) -> None:
        """A group was dropped, finished or under way."""
        self.begun -= 1
        self.finished -= finished

    def forget(self, trained: int) -> None:
        """A restart that remembers the groups `trained` and none that is under way."""
        self.begun = self.finished = trained
