"""Actors in processes, as a source of data for a learner; what all kinds of task share of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..spec import RunSpec
from ..training.policy_buffer import PolicyBuffer
from ..training.sample_accounting import Flow
from .actor import ActorTiming, GroupMaker
from .actor_pool import ActorPool, PoolConfig
from .recorder import Recorder

FILE = "trace.parquet"


class ActorSettings(Protocol):
    """The lag model of such a run, as far as it counts here."""

    actors: int
    queue: float
    fetch: int
    train: float

    def delays(self) -> list[float]: ...


class ProcessRollouts:
    """Starts with the first phase it is asked for. A run that is resumed has new actors: those that it had are gone,
    with what they held."""

    def __init__(
        self, open: Callable[[int], GroupMaker], spec: RunSpec, pace: ActorSettings, preload: Sequence[str]
    ) -> None:
        demand = spec.demand
        assert demand is not None, "a kind of task with actors says what it asks of them"
        room = max(demand.groups, round(pace.queue * demand.groups))
        loads = [ActorTiming(pace.fetch, delay) for delay in pace.delays()]
        self.order = PoolConfig(
            open, loads, demand.groups, demand.rows, room, spec.capacity - 1, demand.length, preload
        )
        run = {name: getattr(spec, name) for name in ("env", "algorithm", "capacity", "lag", "seed")}
        self.header = {"source": "actors", "decisions": demand.length, "fetch": pace.fetch, "run": run}
        self.training = pace.train  # seconds that a phase of training takes at least
        self.recorder = Recorder()
        self.pool: ActorPool | None = None
        self.batch_time = 0.0  # when the learner took its last batch

    def take(self, buffer: PolicyBuffer, phase: int) -> tuple[list[bytes], Flow]:
        """Announce the newest version, and wait for what this phase trains on."""
        if self.pool is None:
            self.pool = ActorPool(self.order, self.recorder, buffer.newest)
        else:
            time.sleep(max(0.0, self.batch_time + self.training - self.recorder.now()))
            self.pool.weights.publish(buffer.newest)
        if phase:
            self.recorder.publish_times.append(self.recorder.now())
        groups, flow = self.pool.take(phase)
        self.batch_time = self.recorder.now()
        return groups, flow

    def artifacts(self) -> dict[str, bytes]:
        """The trace, once the actors have ended."""
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
