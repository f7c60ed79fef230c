"""Failures of rollout workers, which interrupt their rows."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from ..base.streams import stream
from .pipeline_settings import Pipeline
from .rollout_slots import RolloutSlots


class WorkerFailures:
    """Failures and restarts of workers, each with a range of the slots. Lifetimes are exponentially distributed."""

    def __init__(self, pipeline: Pipeline, seed: int, slots: RolloutSlots) -> None:
        self.slots, self.keep = slots, pipeline.lost == "continue"
        self.mtbf, self.restart = pipeline.worker_mtbf, pipeline.worker_restart
        self.rng = stream(seed, "pipeline-workers")
        n, workers = pipeline.slots, pipeline.workers
        self.slots_of = [range(w * n // workers, (w + 1) * n // workers) for w in range(workers)]
        self.events: list[tuple[float, int, bool]] = []  # (time, worker, whether it restarts)
        if self.mtbf is not None:
            self.events = [(self._lifetime(), worker, False) for worker in range(workers)]
            heapify(self.events)

    @property
    def next(self) -> float:
        return self.events[0][0] if self.events else inf

    def happen(self) -> bool:
        """Carry out the next failure or restart. Returns whether it interrupted rows."""
        now, worker, restarts = heappop(self.events)
        if restarts:
            self.slots.restart(self.slots_of[worker], now)
            heappush(self.events, (now + self._lifetime(), worker, False))
            return False
        interrupted = self.slots.fail(self.slots_of[worker], self.keep, now)
        self.slots.fill(now)
        heappush(self.events, (now + self.restart, worker, True))
        return interrupted

    def _lifetime(self) -> float:
        return float(self.rng.exponential(self.mtbf or inf))
