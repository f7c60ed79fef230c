"""The slots' clock, and the progress of rows on it: their decisions so far, and the seconds that they still take."""

from __future__ import annotations

from .pipeline_event_log import EventLog
from .pipeline_settings import Pipeline
from .workload_sampler import Workload


class SlotClock:
    """Clock that stops while generation is paused, so that a pause does not touch the rows."""

    def __init__(self) -> None:
        self.offset = 0.0  # seconds for which generation has been paused
        self.paused_at: float | None = None
        self.pauses: dict[str, None] = {}  # states that pause generation, in the order in which they began

    def read(self, now: float) -> float:
        return (now if self.paused_at is None else self.paused_at) - self.offset

    def pause(self, now: float, state: str) -> None:
        self.paused_at = now if self.paused_at is None else self.paused_at
        self.pauses[state] = None

    def resume(self, now: float, state: str) -> None:
        """End the pause called `state`; the clock goes on once there is no other."""
        self.pauses.pop(state, None)
        if self.paused_at is not None and not self.pauses:
            self.offset += now - self.paused_at
            self.paused_at = None


class RowProgress:
    """Decisions and seconds of each row, from the seconds that it has `left` in its slot.

    A row's time is spread evenly over its decisions. Where its weights change, it first rebuilds its cache, in
    `recompute` seconds per decision so far.
    """

    def __init__(self, pipeline: Pipeline, work: Workload, log: EventLog) -> None:
        self.tokens, self.seconds, self.slot = work.tokens, work.seconds, log.slot
        self.recompute = pipeline.recompute_seconds
        slow = pipeline.slow_slots
        self.pace = [1.0] * (pipeline.slots - slow) + [pipeline.slow_factor] * slow  # of each slot
        self.cut: dict[int, int] = {}  # row -> decisions when its weights last changed

    def duration(self, row: int) -> float:
        """Return the seconds that a row takes in its slot, without rebuilding caches."""
        return self.seconds[row] * self.pace[self.slot[row]]

    def decisions(self, row: int, left: float) -> int:
        """Return the decisions of a row so far."""
        tokens, seconds = self.tokens[row], self.duration(row)
        done = min(tokens, max(0, int(tokens * (1 - left / seconds)))) if seconds else 0
        return max(done, self.cut.get(row, 0))

    def remaining(self, row: int, done: int) -> float:
        """Return the seconds that the decisions after the first `done` take."""
        return (self.tokens[row] - done) * self.duration(row) / self.tokens[row]

    def rebuilding(self, row: int, left: float) -> float:
        """Return the seconds until a row's cache is rebuilt."""
        return max(0.0, left - self.remaining(row, self.decisions(row, left))) if self.recompute else 0.0
