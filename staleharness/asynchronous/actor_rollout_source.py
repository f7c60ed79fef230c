"""Actor processes as a source of rollouts, for every kind of task."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..spec import RunSpec
from ..training.policy_buffer import PolicyBuffer
from ..training.sample_ledger import Flow
from .actor_pool import ActorPool, PoolConfig
from .actor_process import ActorTiming, GroupMaker
from .group_lifecycle import Recorder

FILE = "trace.parquet"


class ActorSettings(Protocol):
    """Settings that this module reads from the lag model of a run with actors."""

    actors: int
    queue: float
    fetch: int
    train: float

    def delays(self) -> list[float]: ...


class ProcessRollouts:
    """Groups from actor processes, which start with the first phase. A resumed run starts new actors; the groups that
    the earlier ones held are lost."""

    def __init__(
        self, open: Callable[[int], GroupMaker], spec: RunSpec, settings: ActorSettings, preload: Sequence[str]
    ) -> None:
        demand = spec.demand
        assert demand is not None, "a kind of task with actors has a demand"
        room = max(demand.groups, round(settings.queue * demand.groups))
        timings = [ActorTiming(settings.fetch, delay) for delay in settings.delays()]
        self.config = PoolConfig(
            open, timings, demand.groups, demand.rows, room, spec.capacity - 1, demand.length, preload
        )
        run = {name: getattr(spec, name) for name in ("env", "algorithm", "capacity", "lag", "seed")}
        self.header = {"source": "actors", "decisions": demand.length, "fetch": settings.fetch, "run": run}
        self.min_train_time = settings.train  # seconds between two batches, at least
        self.recorder = Recorder()
        self.pool: ActorPool | None = None
        self.batch_time = 0.0  # when the learner took its last batch

    def take(self, buffer: PolicyBuffer, phase: int) -> tuple[list[bytes], Flow]:
        """Publish the newest version, and wait for the groups that this phase trains on."""
        if self.pool is None:
            self.pool = ActorPool(self.config, self.recorder, buffer.newest)
        else:
            time.sleep(max(0.0, self.batch_time + self.min_train_time - self.recorder.now()))
            self.pool.weights.publish(buffer.newest)
        if phase:
            self.recorder.publish_times.append(self.recorder.now())
        groups, flow = self.pool.take(phase)
        self.batch_time = self.recorder.now()
        return groups, flow

    def artifacts(self) -> dict[str, bytes]:
        """End the actors and return the trace."""
        self.close()
        return {FILE: self.recorder.trace(self.header)}

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None

    def state_dict(self) -> dict[str, Any]:
        return self.recorder.state_dict({}) if self.pool is None else self.pool.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recorder.load_state_dict(state)
