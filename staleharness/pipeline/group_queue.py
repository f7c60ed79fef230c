"""Admission of new groups to generation, and the queue of finished groups before the trainer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count, takewhile
from typing import Literal

from .pipeline_settings import Pipeline

ROUNDING = 1e-9  # of a group: a cap of one third of three groups is one


class Admission:
    """Limits how many groups may begin, by AReaL's rule.

    A group may begin while fewer than (version + 1 + cap) batches have begun, `version` being that of the slots. A
    group that is dropped gives its place back. Without a cap there is always room. prime-rl counts batches that have
    finished, and not those that have begun.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.cap, self.groups = pipeline.cap, pipeline.groups
        self.counts, self.of_trainer = pipeline.cap_counts, pipeline.cap_version == "trainer"
        self.n_begun = self.n_finished = 0  # groups, without those that were dropped
        self.trained = 0  # version of the trainer

    def admits(self, version: int) -> bool:
        """Return whether one more group may begin; if so, count it."""
        if self.cap is not None:
            version = self.trained if self.of_trainer else version
            groups = self.n_begun if self.counts == "begun" else self.n_finished
            if groups >= math.floor((version + 1 + self.cap) * self.groups + ROUNDING):
                return False
        self.n_begun += 1
        return True

    def release(self, is_finished: bool) -> None:
        """Give back the place of a dropped group, finished or under way."""
        self.n_begun -= 1
        self.n_finished -= is_finished

    def forget(self, trained: int) -> None:
        """Restart with a count of the groups `trained`, and of none that is under way."""
        self.n_begun = self.n_finished = trained


Fate = Literal["dropped_full", "dropped_stale"]


class GroupQueue:
    """Queue of groups that wait for the trainer, by their numbers, which are the order in which they began.

    The order in which the trainer takes them is a setting. `completed`: as they finish. `submitted`: as they began, so
    that a slow one holds up all behind it. `window`: those that are finished, as they began, but only among the first
    `window` that are not taken; a slow one can be passed by that many. `version`: the same, but those of one version
    wait for all that are older; `version_completed`: as they finish among those of the oldest version.

    `version_of(group)` is the oldest version in a group, None for one that has not begun; `discard(group, fate)` is
    called for those that are dropped.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        version_of: Callable[[int], int | None],
        lag_of: Callable[[int], int],
        discard: Callable[[int, Fate], None],
    ) -> None:
        self.needed = pipeline.groups
        self.window = pipeline.window if pipeline.order == "window" else 1
        self.in_order, self.by_version = pipeline.order != "completed", pipeline.order.startswith("version")
        self.as_finished = pipeline.order == "version_completed"
        self.room = None if pipeline.capacity is None else max(self.needed, int(pipeline.capacity * self.needed))
        self.full = pipeline.full
        self.max_lag = pipeline.max_lag if pipeline.stale in ("drop", "recycle") else None
        self.version_of, self.lag_of, self.discard = version_of, lag_of, discard
        self._ready: deque[int] = deque()  # in the order in which they finished
        self._waiting: dict[int, None] = {}  # the same, where the order is another
        self._taken: set[int] = set()  # ahead of the oldest one that is not taken
        self._head = 0  # the oldest group that is not taken
        self._batch: list[int] = []  # taken for the next step

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting) + len(self._batch)

    def put(self, group: int) -> bool:
        """Add a group. Returns False where there is no room and it has to wait outside."""
        if self.room is not None and len(self) >= self.room:
            if self.full == "block":
                return False
            if self.full == "drop_newest":
                self.discard(group, "dropped_full")
                if self.in_order:
                    self._step_over(group)
                return True
            self.discard(self._ready.popleft(), "dropped_full")
        if self.in_order:
            self._waiting[group] = None
        else:
            self._ready.append(group)
        return True

    def skip(self, group: int) -> None:
        """Expect a group no longer."""
        if self.in_order:
            self._step_over(group)

    def take(self) -> list[int]:
        """Remove and return the groups of one batch; empty where there are not enough that may be trained on."""
        batch = self._batch
        while True:
            while len(batch) < self.needed and (group := self._next()) is not None:
                batch.append(group)
            # Versions may have moved on since a group was set aside.
            stale = [group for group in batch if self.too_old(group)]
            for group in stale:
                batch.remove(group)
                self.discard(group, "dropped_stale")
            if len(batch) == self.needed:
                self._batch = []
                return batch
            if not stale:
                return []

    def _next(self) -> int | None:
        if not self.in_order:
            if len(self._ready) + len(self._batch) < self.needed:
                return None
            return self._ready.popleft() if self._ready else None
        open_groups = self._open()
        if self.as_finished:
            open_groups = filter(set(open_groups).__contains__, list(self._waiting))
        for group in open_groups:
            if group in self._waiting:
                del self._waiting[group]
                self._step_over(group)
                return group
        return None

    def _open(self) -> Iterable[int]:
        """Return the groups among which the next one is, including taken and unfinished ones."""
        if not self.by_version:
            return range(self._head, self._head + self.window)
        oldest = self.version_of(self._head)
        return takewhile(lambda group: oldest is not None and self.version_of(group) == oldest, count(self._head))

    def _step_over(self, group: int) -> None:
        self._taken.add(group)
        while self._head in self._taken:
            self._taken.remove(self._head)
            self._head += 1

    def too_old(self, group: int) -> bool:
        """Return whether a group is older than `max_lag`, and may not be trained on."""
        return self.max_lag is not None and self.lag_of(group) > self.max_lag
