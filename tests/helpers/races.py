"""Runs with processes: some of them are killed, and what such a run and its replay have in common."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from staleharness.asynchronous.actor_process import GroupMaker, WeightFeed

if TYPE_CHECKING:
    from whole_runs import Metrics

    from staleharness.asynchronous.actor_pool import ActorPool


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
    decision that no row has: after the group is made, before it is handed over."""

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
            feed = FeedWithDeaths(feed.weights, feed.timing, feed.counter, group, decision=self.decision)
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
    """Kill an actor's process, and wait until a later actor has made a group."""
    pool = processes.pool
    begun = pool.next_number
    os.kill(next(iter(pids(pool).values())), signal.SIGKILL)
    until(lambda: any(e.actor >= begun and e.made_at is not None for e in pool.recorder.entries))


def pids(pool: ActorPool) -> dict[int, int]:
    """Process ids of the actors at work, by number."""
    with pool.condition:
        return {member.number: member.process.pid for member in pool.members}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600.0
    while not holds():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.01)


@dataclass(frozen=True)
class Patient:
    """Opens actors of which number 1 waits inside its first group, at the first decision where it may fetch weights,
    until there are others than it began with."""

    open: Callable[[int], GroupMaker]

    def __call__(self, number: int) -> GroupMaker:
        actor = self.open(number)
        return PatientActor(actor) if number == 1 else actor


@dataclass
class PatientActor:
    actor: GroupMaker

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        if not nth:
            feed.__class__ = PatientWeights  # not another one: what it holds goes into the message
        return self.actor.make(group, nth, feed)


class PatientWeights(WeightFeed):
    def step(self, t: int) -> int | None:
        while t and t == self.timing.fetch and self.weights.newest_phase == self.versions[-1]:
            self.counter.reach([t] * self.counter.rows)
            self.wait(t)
            time.sleep(0.001)
        return super().step(t)


def change_inside(simulation: Any, processes: Any) -> Callable[[], None]:
    """Give a run an actor whose weights change inside its first group, whatever the speed of the processes. Call
    the returned function after each phase: it waits for the first version to be recorded, later for the
    group to finish."""
    config = processes.config
    processes.config = replace(config, open=Patient(config.open), preload=[*config.preload, "races"])

    def wait() -> None:
        pool = processes.pool
        if config.timings[1].fetch and simulation.phase == 1:
            (member,) = (m for m in pool.members if m.number == 1)
            until(lambda: member.counter.read(member.group) is not None)
        if config.timings[1].fetch and simulation.phase == 2:
            until(lambda: any(e.actor == 1 and e.made_at is not None for e in pool.recorder.entries))

    return wait


def but_assigned(metrics: Metrics) -> Metrics:
    """Return metrics without assigned lags: a race assigns none, and its replay those that occurred."""
    return [{k: v for k, v in m.items() if k != "lags/assigned"} for m in metrics]
