"""Queue of whole batches, in which the oldest gives way to a new one: RLlib's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..base.streams import stream
from .group_queue import Fate, GroupQueue
from .pipeline_settings import Pipeline


class BatchQueue(GroupQueue):
    """Holds the last `capacity` batches, made up of groups as they finish.

    `completed`: the trainer takes the oldest batch that waits, and only those that wait take up room. `random`: it
    takes any that it has taken fewer than `uses` times with the same probability, and one that it may not take again
    takes up room until it would be the oldest.
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
        if len(self._batch) == self.needed:
            if len(self._ring) == self.capacity:
                batch, count = self._ring.popleft()
                for each in [] if count else batch:
                    self.discard(each, "dropped_full")
            self._ring.append((self._batch, 0))
            self._batch = []
        return True

    def take(self) -> list[int]:
        open_batches = [i for i, (_, count) in enumerate(self._ring) if count < self.uses]
        if not open_batches:
            return []
        self.taken += 1
        if self.rng is None:
            return self._ring.popleft()[0]
        i = open_batches[int(self.rng.integers(len(open_batches)))]
        batch, count = self._ring[i]
        self._ring[i] = batch, count + 1
        return batch
