"""Lag of actors and learner that run concurrently, as real processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.lag import LAGS, LagModel


@LAGS.register("async")
@dataclass(frozen=True)
class Async(LagModel):
    """Actors and learner run concurrently, as processes on this machine, and lag follows from their timing.

    A finished group waits in a queue of `queue` batches (at least one); when the queue is full, its actor waits. With K
    versions in the buffer, groups that would be more than K − 1 phases behind when trained on are dropped. A decision
    takes at least `delay` seconds, `spread` times as long for the slowest actor; a phase of training takes at least
    `train` seconds. Where these are longer than the work itself, they set the pace, whatever else the machine does. An
    actor that is killed is replaced.

    Such a run is not a function of its spec. The trace stored beside its record replays it, bit for bit
    (`trace:<file>`).
    """

    real: ClassVar[bool] = True

    actors: int = 4  # processes
    queue: float = 1.0  # batches
    fetch: int = 0  # decisions after which an actor fetches the newest weights; 0: when it begins a group
    delay: float = 0.0  # minimum seconds per decision
    spread: float = 1.0  # ratio of the slowest actor's delay to the fastest one's
    slow: int = 0  # number of actors with the longest delay, the others having the shortest; 0: delays rise evenly
    train: float = 0.0  # minimum seconds per phase of training

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("actors", 1 <= self.actors <= 256, "from 1 to 256")
        self.require("queue", 0 <= self.queue <= 1000, "from 0 to 1000 batches")
        self.require("fetch", self.fetch >= 0, "0 or above")
        self.require("delay", 0 <= self.delay <= 60, "from 0 to 60 seconds")
        self.require("spread", self.spread >= 1, "at least 1")
        self.require("slow", 0 <= self.slow < self.actors, "0, or fewer than there are actors")
        self.require("train", 0 <= self.train <= 3600, "from 0 to 3600 seconds")

    def delays(self) -> list[float]:
        """Return the minimum seconds per decision of each actor."""
        last, fast = max(1, self.actors - 1), self.actors - self.slow
        shares = [float(i >= fast) if self.slow else i / last for i in range(self.actors)]
        return [self.delay * (1 + (self.spread - 1) * share) for share in shares]
