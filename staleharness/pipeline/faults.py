"""Workers that fail, each on its own and at any time, and come back."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from ..base.streams import stream
from .settings import Pipeline
from .slots import Slots


class Faults:
    """The slots of worker w are a stretch of all slots. Times between failures are exponential."""

    def __init__(self, pipeline: Pipeline, seed: int, slots: Slots) -> None:
        self.slots, self.keep = slots, pipeline.lost == "continue"
        self.mtbf, self.restart = pipeline.worker_mtbf, pipeline.worker_restart
        self.rng = stream(seed, "pipeline-workers")
        n, workers = pipeline.slots, pipeline.workers
        self.of = [range(w * n // workers, (w + 1) * n // workers) for w in range(workers)]
        self.events: list[tuple[float, int, bool]] = []  # when, worker, whether it comes back
        if self.mtbf is not None:
            self.events = [(self._lifetime(), worker, False) for worker in range(workers)]
            heapify(self.events)

    @property
    def next(self) -> float:
        return self.events[0][0] if self.events else inf

    def happen(self) -> None:
        """The next failure or restart."""
        now, worker, back = heappop(self.events)
        if back:
            self.slots.restart(self.of[worker], now)
            heappush(self.events, (now + self._lifetime(), worker, False))
        else:
            self.slots.fail(self.of[worker], self.keep, now)
            self.slots.fill(now)
            heappush(self.events, (now + self.restart, worker, True))

    def _lifetime(self) -> float:
        return float(self.rng.exponential(self.mtbf or inf))
