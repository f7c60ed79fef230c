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
    takes any of them with the same probability, and a batch that was taken takes up room until it would be the oldest.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        seed: int,
        version_of: Callable[[int], int | None],
        discard: Callable[[int, Fate], None],
    ) -> None:
        super().__init__(pipeline, version_of, discard)
        self.capacity = int(pipeline.capacity or 1)
        self.rng = stream(seed, "pipeline-buffer") if pipeline.order == "random" else None
        self._ring: deque[list[int]] = deque()  # taken batches of `random` are empty

    def __len__(self) -> int:
        return sum(map(len, self._ring)) + len(self._batch)

    def put(self, group: int) -> bool:
        self._batch.append(group)
        if len(self._batch) == self.needed:
            if len(self._ring) == self.capacity:
                for each in self._ring.popleft():
                    self.discard(each, "dropped_full")
            self._ring.append(self._batch)
            self._batch = []
        return True

    def take(self) -> list[int]:
        full = [i for i, batch in enumerate(self._ring) if batch]
        if not full:
            return []
        self.taken += 1
        if self.rng is None:
            return self._ring.popleft()
        i = full[int(self.rng.integers(len(full)))]
        batch, self._ring[i] = self._ring[i], []
        return batch
