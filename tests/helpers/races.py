"""Runs with processes: some of them are killed, and what such a run and its replay have in common."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from staleharness.asynchronous.actor import GroupMaker, WeightFeed

if TYPE_CHECKING:
    from whole_runs import Metrics


def learner_digest(simulation: Any) -> str:
    """Hash of all that a learner holds."""
    optimizer = simulation.learner.optimizer
    parts = [*simulation.learner.parameters, *optimizer.mean, *optimizer.square]
    if hasattr(simulation, "moments"):  # of observations and returns, on control
        parts += [simulation.moments.mean, simulation.moments.variance, simulation.reward_scale.moments.variance]
    return hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in parts)).hexdigest()


def digests_and_metrics(simulation: Any, after: Callable[[], object] = lambda: None) -> tuple[list[str], Metrics]:
    """Hash of the learner and metrics after each phase of a run.

    after: called after each phase.
    """
    digests, metrics = [], []
    for record in simulation:
        digests.append(learner_digest(simulation))
        metrics.append(record.metrics)
        after()
    simulation.close()
    return digests, metrics


@dataclass(frozen=True)
class Mortal:
    """Opens actors of which some SIGKILL themselves: `ends` has (nth group, decision before which), by their number. A
    decision that no row has: once the group is made, and before it is handed over."""

    open: Callable[[int], GroupMaker]
    ends: Mapping[int, tuple[int, int]]

    def __call__(self, number: int) -> GroupMaker:
        actor = self.open(number)
        return MortalActor(actor, *self.ends[number]) if number in self.ends else actor


@dataclass
class MortalActor:
    actor: GroupMaker
    nth: int
    decision: int

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        if nth == self.nth:
            feed = FeedWithDeaths(feed.weights, feed.load, feed.counter, group, decision=self.decision)
        made = self.actor.make(group, nth, feed)
        if nth == self.nth:
            feed.finish(made[1])
            end_here()
        return made


@dataclass
class FeedWithDeaths(WeightFeed):
    decision: int = 0

    def step(self, t: int) -> int | None:
        version = super().step(t)
        if t == self.decision:
            end_here()
        return version


def end_here() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_one(processes: Any) -> None:
    """And wait for what its successor makes."""
    pool = processes.pool
    begun = pool.next_number
    os.kill(next(iter(pool.pids.values())), signal.SIGKILL)
    deadline = time.monotonic() + 600.0
    while not any(e.actor >= begun and e.made_at is not None for e in pool.recorder.entries):
        assert time.monotonic() < deadline, "nobody took its place"
        time.sleep(0.01)


def but_assigned(metrics: Metrics) -> Metrics:
    """Without the lags that a model assigned: a race assigns none, and its replay those that came about."""
    return [{k: v for k, v in m.items() if k != "lags/assigned"} for m in metrics]
