"""Actors in processes, as a source of data for a learner; what all kinds of task share of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..simulator.buffer import PolicyBuffer
from ..simulator.ledger import Flow
from ..spec import RunSpec
from .actor import Load, Making
from .fleet import Fleet, Order
from .recorder import Recorder

FILE = "trace.parquet"


class Pace(Protocol):
    """The lag model of such a run, as far as it counts here."""

    actors: int
    queue: float
    fetch: int
    train: float

    def delays(self) -> list[float]: ...


class Processes:
    """Starts with the first phase it is asked for. A run that is resumed has new actors: those that it had are gone,
    with what they held."""

    def __init__(self, open: Callable[[int], Making], spec: RunSpec, pace: Pace, preload: Sequence[str]) -> None:
        demand = spec.demand
        assert demand is not None, "a kind of task with actors says what it asks of them"
        room = max(demand.groups, round(pace.queue * demand.groups))
        loads = [Load(pace.fetch, delay) for delay in pace.delays()]
        self.order = Order(open, loads, demand.groups, demand.rows, room, spec.capacity - 1, demand.length, preload)
        said = {name: getattr(spec, name) for name in ("env", "algorithm", "capacity", "lag", "seed")}
        self.header = {"source": "actors", "decisions": demand.length, "fetch": pace.fetch, "run": said}
        self.training = pace.train  # seconds that a phase of training takes at least
        self.recorder = Recorder()
        self.fleet: Fleet | None = None
        self.taken = 0.0  # when the learner took its last batch

    def take(self, buffer: PolicyBuffer, phase: int) -> tuple[list[bytes], Flow]:
        """Announce the newest version, and wait for what this phase trains on."""
        if self.fleet is None:
            self.fleet = Fleet(self.order, self.recorder, buffer.newest)
        else:
            time.sleep(max(0.0, self.taken + self.training - self.recorder.now()))
            self.fleet.board.publish(buffer.newest)
        if phase:
            self.recorder.published.append(self.recorder.now())
        groups, flow = self.fleet.take(phase)
        self.taken = self.recorder.now()
        return groups, flow

    def beside(self) -> dict[str, bytes]:
        """The trace, once the actors have ended."""
        self.close()
        return {FILE: self.recorder.trace(self.header)}

    def close(self) -> None:
        if self.fleet is not None:
            self.fleet.close()
            self.fleet = None

    def state_dict(self) -> dict[str, Any]:
        return self.recorder.state_dict({}) if self.fleet is None else self.fleet.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recorder.load_state_dict(state)
