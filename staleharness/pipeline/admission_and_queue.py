"""Admission of new groups to generation, and the queue of finished groups before the trainer."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import count
from typing import Literal

from ..base.streams import stream
from .pipeline_settings import Pipeline

ROUNDING = 1e-9  # in groups, so that a cap of 1/3 with three groups per batch admits one group


class Admission:
    """Limits how many groups may begin, by AReaL's rule.

    A group may begin while fewer than (version + 1 + cap) batches have begun, where `version` is that of the slots. A
    group that is dropped gives its place back. Without a cap there is always room. prime-rl counts batches that have
    finished instead of those that have begun.
    """

    def __init__(self, pipeline: Pipeline, n_taken: Callable[[], int]) -> None:
        """`n_taken` counts the groups that have entered batches."""
        self.n_taken = n_taken
        self.cap, self.groups = pipeline.cap, pipeline.groups
        self.counts, self.cap_version = pipeline.cap_counts, pipeline.cap_version
        self.n_begun = self.n_finished = 0  # groups, without those that were dropped
        self.trained = 0  # version of the trainer

    def admits(self, version: int) -> bool:
        """Return whether one more group may begin; if so, count it."""
        if self.cap is not None:
            version = self.trained if self.cap_version == "trainer" else version
            base = self.n_taken() if self.cap_version == "taken" else (version + 1) * self.groups
            groups = self.n_begun if self.counts == "begun" else self.n_finished
            if groups >= math.floor(base + self.cap * self.groups + ROUNDING):
                return False
        self.n_begun += 1
        return True

    def release(self, is_finished: bool) -> None:
        """Give back the place of a dropped group, finished or under way."""
        self.n_begun -= 1
        self.n_finished -= is_finished

    def forget(self, trained: int) -> None:
        """Reset the counts to the `trained` groups, with none under way."""
        self.n_begun = self.n_finished = trained


Fate = Literal["dropped_full", "dropped_stale"]


class GroupQueue:
    """Queue of groups that wait for the trainer; groups are numbered in the order in which they began.

    `order` sets the order in which the trainer takes them. `completed`: as they finish. `began`: finished groups by
    number. `submitted`: all groups by number, so that a slow one holds up all behind it. `window`: as `began`, but only
    among the first `window` groups that are not taken, so that at most `window` − 1 others can overtake a slow one.
    `version`: as `began`, but groups of one version wait for all of older versions. `version_completed`: as they
    finish, among groups of the oldest version. With `ahead`, batches are assembled as groups finish: that many wait,
    and one more may be complete; otherwise a batch is assembled when the trainer asks for it.

    `version_of(group)` returns the oldest version in a group, None if it has not begun; `discard(group, fate)` is
    called for groups that are dropped.
    """

    def __init__(
        self, pipeline: Pipeline, version_of: Callable[[int], int | None], discard: Callable[[int, Fate], None]
    ) -> None:
        self.groups, self.order = pipeline.groups, pipeline.order
        self.window = pipeline.window if pipeline.order == "window" else 1
        self.ahead = pipeline.ahead
        self.room = None if pipeline.capacity is None else max(self.groups, int(pipeline.capacity * self.groups))
        self.full = pipeline.full
        self.max_lag = pipeline.max_lag if pipeline.stale in ("drop", "recycle") else None
        self.wait_lag = pipeline.max_lag if pipeline.stale == "wait" else None
        self.version_of, self.discard = version_of, discard
        self.batch_count = 0  # batches taken
        self._waiting: OrderedDict[int, None] = OrderedDict()  # in the order in which they finished
        self._absent: set[int] = set()  # taken or dropped, with numbers above the head
        self._head = 0  # the oldest group that is neither
        self._batch: list[int] = []  # groups of the batch being assembled
        self._batches: deque[list[int]] = deque()  # complete, ahead of the trainer

    def __len__(self) -> int:
        """Return the number of groups that take up room."""
        return len(self._waiting) + (len(self._batch) if self.ahead is None else 0)

    @property
    def n_taken(self) -> int:
        """Number of groups that have entered batches, including one being assembled ahead."""
        return self.step * self.groups + (0 if self.ahead is None else len(self._batch))

    @property
    def step(self) -> int:
        """Number of the step that trains on the batch being assembled."""
        return self.batch_count + len(self._batches)

    @property
    def has_room(self) -> bool:
        return self.room is None or len(self) < self.room

    def put(self, group: int) -> bool:
        """Add a group. Returns False if there is no room and it has to wait outside."""
        if not self.has_room and self.full != "pause":
            if self.full == "block":
                return False
            if self.full == "drop_newest":
                self.discard(group, "dropped_full")
                self.skip(group)
                return True
            oldest, _ = self._waiting.popitem(last=False)
            self.discard(oldest, "dropped_full")
            self.skip(oldest)
        self._waiting[group] = None
        return True

    def skip(self, group: int) -> None:
        """Stop waiting for a group: it is taken, or will not come."""
        self._absent.add(group)
        while self._head in self._absent:
            self._absent.remove(self._head)
            self._head += 1

    def take(self) -> list[int]:
        """Remove and return the groups of one batch; empty if too few may be trained on."""
        batch = self._batches.popleft() if self._batches else self._make_up()
        self.batch_count += bool(batch)
        return batch

    def make_ahead(self) -> None:
        """Assemble batches until `ahead` of them wait and one more is complete; without `ahead`, do nothing."""
        while self.ahead is not None and len(self._batches) < self.ahead and (batch := self._make_up()):
            self._batches.append(batch)
        if self.ahead is not None and len(self._batches) == self.ahead:
            self._fill_batch()

    def _make_up(self) -> list[int]:
        """Return a complete batch, and begin the next one; empty if there is none."""
        self._fill_batch()
        if len(self._batch) < self.groups:
            return []
        batch, self._batch = self._batch, []
        return batch

    def _fill_batch(self) -> None:
        """Add groups to the batch until it is complete, and drop those that are too old for its step."""
        if self.wait_lag is not None and self._is_late():
            return
        batch = self._batch
        while True:
            while len(batch) < self.groups and (group := self._next()) is not None:
                batch.append(group)
            # A group that is too old for this step gives its place in the batch to another.
            stale = [group for group in batch if self.too_old(group)]
            for group in stale:
                batch.remove(group)
                self.discard(group, "dropped_stale")
            if not stale:
                return

    def _is_late(self) -> bool:
        """Return whether the oldest unfinished group is so old that the trainer waits for it."""
        group = next(group for group in count(self._head) if group not in self._absent and group not in self._waiting)
        version = self.version_of(group)
        return version is not None and self.wait_lag is not None and self.step - version >= self.wait_lag

    def _next(self) -> int | None:
        is_short = self.ahead is None and len(self._waiting) + len(self._batch) < self.groups
        if self.order == "completed" and is_short:
            return None
        group = self._first()
        if group is not None:
            del self._waiting[group]
            self.skip(group)
        return group

    def _first(self) -> int | None:
        """Return the next group among those that wait; None if none of them may be taken yet."""
        if self.order == "completed":
            return next(iter(self._waiting), None)
        if self.order in ("submitted", "window"):
            open_groups = range(self._head, self._head + self.window)
            return next((group for group in open_groups if group in self._waiting), None)
        if self.order == "version_completed":
            oldest = self.version_of(self._head)
            return next((group for group in self._waiting if self.version_of(group) == oldest), None)
        first = min(self._waiting, default=None)
        if first is None or self.order == "began":
            return first
        return first if self.version_of(first) == self.version_of(self._head) else None

    def too_old(self, group: int) -> bool:
        """Return whether a group is older than `max_lag` at the step of the batch being assembled."""
        version = self.version_of(group)
        return self.max_lag is not None and version is not None and self.step - version > self.max_lag


class BatchQueue(GroupQueue):
    """Queue of the last `capacity` batches, filled with groups as they finish.

    `completed`: the trainer takes the oldest waiting batch, and only waiting batches take up room. `random`: it draws
    uniformly from the batches that it has taken fewer than `uses` times; a batch that it may not take again takes up
    room until it is the oldest and a new one replaces it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        version_of: Callable[[int], int | None],
        discard: Callable[[int, Fate], None],
    ) -> None:
        super().__init__(pipeline, version_of, discard)
        self.capacity, self.uses = int(pipeline.capacity or 1), pipeline.uses
        self.rng = stream(seed, "pipeline-buffer") if pipeline.order == "random" else None
        self._ring: deque[tuple[list[int], int]] = deque()  # batches, and how often each was taken

    def __len__(self) -> int:
        return sum(len(batch) for batch, count in self._ring if count < self.uses) + len(self._batch)

    def put(self, group: int) -> bool:
        self._batch.append(group)
        if len(self._batch) == self.groups:
            if len(self._ring) == self.capacity:
                batch, count = self._ring.popleft()
                for old_group in [] if count else batch:
                    self.discard(old_group, "dropped_full")
            self._ring.append((self._batch, 0))
            self._batch = []
        return True

    def take(self) -> list[int]:
        open_batches = [i for i, (_, count) in enumerate(self._ring) if count < self.uses]
        if not open_batches:
            return []
        self.batch_count += 1
        if self.rng is None:
            return self._ring.popleft()[0]
        i = open_batches[int(self.rng.integers(len(open_batches)))]
        batch, count = self._ring[i]
        self._ring[i] = batch, count + 1
        return batch
