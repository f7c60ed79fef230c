"""A clock, machines and a trainer, in which the tests write down how real systems decide what is trained on.

Nothing here knows a rule of the harness's pipeline: a system is a few processes that wait for one another, as its own
coroutines and threads do. What its rows take is the only input, and the same as the lag model's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from staleharness.base.streams import integer
from staleharness.lag import read_lag
from staleharness.pipeline.workload_sampler import Workload
from staleharness.pipeline_lag_model import PipelineLag
from staleharness.rollout_schedule import NEVER, Demand

Wish = float | Callable[[], bool]
"""Seconds to sleep, or a condition to wait for."""
Process = Generator[Wish, None, None]


class Clock:
    """Runs processes; those that wait for a condition go on in the order in which they were started."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Process]] = []
        self._waiting: list[tuple[int, Callable[[], bool], Process]] = []
        self._count = count()

    def start(self, *processes: Process) -> None:
        for process in processes:
            self._resume(next(self._count), process)

    def run(self, done: Callable[[], bool]) -> None:
        while True:
            while not done() and (ready := next((w for w in self._waiting if w[1]()), None)):
                self._waiting.remove(ready)
                self._resume(ready[0], ready[2])
            if done():
                return
            self.now, number, process = heapq.heappop(self._timers)
            self._resume(number, process)

    def _resume(self, number: int, process: Process) -> None:
        for wish in process:
            if callable(wish):
                self._waiting.append((number, wish, process))
                self._waiting.sort(key=lambda entry: entry[0])
            else:
                heapq.heappush(self._timers, (self.now + wish, number, process))
            return


@dataclass
class Group:
    """A prompt's rows, which begin together."""

    number: int
    began: float
    seconds: list[float]  # of each row
    version: int  # of the weights that it begins with
    changes: list[tuple[float, int]] = field(default_factory=list)  # (after seconds, version) of new weights inside
    paused: float = 0.0  # seconds that its machine stood still
    step: int = NEVER  # that trains on it
    place: int = NEVER  # in its batch
    left: int = NEVER  # the step before which it was dropped
    again: list[int] = field(default_factory=list)  # later steps that train on it
    youngest: int = 0  # version of the oldest decision that is in the loss

    @property
    def finish(self) -> float:
        return self.began + max(self.seconds) + self.paused

    def versions(self, row: int, length: int) -> list[int]:
        """Return the version of every decision [length] of a row, which are made at even distances."""
        versions = [self.version] * length
        for after, version in self.changes:
            done = int(length * after / self.seconds[row])
            versions[min(done, length) :] = [version] * (length - min(done, length))
        return versions


class System:
    """Machines that hold some groups at once, weights, and a count of steps. A system adds its own rules."""

    in_flight = True  # groups under way go on with new weights
    step_time = 1.0
    reuses = False  # a batch may be trained on more than once

    def __init__(self, text: str, demand: Demand, **options: Any) -> None:
        model = read_lag(text)
        assert isinstance(model, PipelineLag)
        self.demand, self.clock = demand, Clock()
        pipeline = model.pipeline(demand)
        self.seed = integer(demand.seed, "lag")
        self.work = Workload(pipeline, self.seed)
        self.room = pipeline.slots // demand.rows  # groups
        self.sync_time, self.since = model.sync_time, math.nan
        self.weights = 0  # version on the machines
        self.step = 0  # version of the trainer
        self.taken = 0  # batches that it has begun to train on
        self.groups: list[Group] = []  # in the order in which they began
        self.running: list[Group] = []
        self.queue: list[Group] = []  # finished groups
        for name, value in options.items():
            setattr(self, name, value)
        self.setup()

    def setup(self) -> None:
        """Make what the system's processes share."""

    @property
    def batch(self) -> int:
        """Groups of a batch."""
        return self.demand.groups

    @property
    def still(self) -> bool:
        """True while nothing is generated."""
        return not math.isnan(self.since)

    @property
    def free(self) -> bool:
        """True where a machine can begin a group now."""
        return not self.still and len(self.running) < self.room

    def next_prompt(self) -> list[float]:
        """Take the prompt that is generated next; return the seconds of its rows."""
        return self.new_prompt()

    def new_prompt(self) -> list[float]:
        self.work.next_group()
        return self.work.seconds[-self.demand.rows :]

    def launch(self) -> Group:
        """Begin a group; `hand_over` is called when it is."""
        assert self.free
        group = Group(len(self.groups), self.clock.now, self.next_prompt(), self.weights)
        self.groups.append(group)
        self.running.append(group)
        self.clock.start(self._generate(group))
        return group

    def _generate(self, group: Group) -> Process:
        while group in self.running:
            if self.still and group.finish > self.since:
                yield lambda: not self.still
            elif self.clock.now + (left := group.finish - self.clock.now) > self.clock.now:
                yield left
            else:
                yield from self.hand_over(group)
                return

    def hand_over(self, group: Group) -> Process:
        """Hand over a finished group, and free its machine."""
        self.running.remove(group)
        self.collect(group)
        return
        yield

    def collect(self, group: Group) -> None:
        """Take a finished group as the system does."""
        self.queue.append(group)

    def take_batch(self, stale: Callable[[Group], bool] = lambda group: False) -> Generator[Wish, None, list[Group]]:
        """Get groups from the queue one by one, as many as a batch has; those that are stale by then are dropped."""
        taken: list[Group] = []
        while len(taken) < self.batch:
            yield lambda: bool(self.queue)
            group = self.queue.pop(0)
            if stale(group):
                self.drop(group)
            else:
                taken.append(group)
        return taken

    def drop(self, group: Group) -> None:
        group.left = self.taken
        if group in self.running:
            self.running.remove(group)

    def send_weights(self, version: int) -> None:
        """Put new weights on the machines; groups under way go on with them where the system does so."""
        self.weights = version
        if self.in_flight:
            for group in self.running:
                group.changes.append((self.clock.now - group.began - group.paused, version))

    def pause(self) -> None:
        """Let generation stand still."""
        self.since = self.clock.now

    def resume(self) -> None:
        for group in self.running:
            group.paused += self.clock.now - self.since
        self.since = math.nan

    def stand_still(self) -> Process:
        """Let the transfer of new weights take its time, in which nothing is generated."""
        self.pause()
        yield self.sync_time
        self.resume()

    def train(self, batch: list[Group]) -> Process:
        assert len(batch) == self.batch
        for place, group in enumerate(batch):
            assert group.left == NEVER
            if group.step != NEVER:
                assert self.reuses and group.place == place
                group.again.append(self.step)
                continue
            group.step, group.place = self.step, place
        self.taken += 1
        yield self.step_time
        self.step += 1
        if self.step == self.demand.phases:
            yield lambda: False

    def admits(self) -> bool:
        """True where the system lets a group begin."""
        return True

    def generation(self) -> Process:
        """Begin groups as the system does."""
        while True:
            yield lambda: self.admits() and self.free
            self.launch()

    def training(self) -> Process:
        """Take batches, train on them and send weights as the system does."""
        raise NotImplementedError

    def processes(self) -> list[Process]:
        return [self.generation(), self.training()]

    def run(self) -> list[Group]:
        """Run until the last step is made, and return the groups that began before."""
        self.clock.start(*self.processes())
        self.clock.run(lambda: self.step >= self.demand.phases)
        return [group for group in self.groups if group.began < self.clock.now]


class BatchSystem(System):
    """A system whose machines hold whole batches, from the first row to the last."""

    in_flight = False

    def setup(self) -> None:
        self.made: list[Group] = []  # the last batch
        self.ready: list[list[Group]] = []  # batches that the trainer has not taken
        self.requests = 1  # batches that may begin

    def make(self) -> Process:
        """Generate a batch, which `made` is then."""
        yield lambda: self.room - len(self.running) >= self.batch
        batch = [self.launch() for _ in range(self.batch)]
        yield lambda: all(group in self.queue for group in batch)
        for group in batch:
            self.running.remove(group)
        self.made = batch

    def generation(self) -> Process:
        """Generate a batch whenever one is asked for."""
        while True:
            yield lambda: self.requests > 0
            self.requests -= 1
            yield from self.make()
            self.ready.append(self.made)

    def hand_over(self, group: Group) -> Process:
        self.queue.append(group)
        return
        yield


class BoundedBuffer(System):
    """A system with a buffer of finished groups; where it is full, a group waits in its machine."""

    capacity = 0  # groups

    def setup(self) -> None:
        self.blocked: list[Group] = []

    def hand_over(self, group: Group) -> Process:
        self.blocked.append(group)
        yield lambda: self.blocked[0] is group and len(self.queue) < self.capacity
        self.running.remove(self.blocked.pop(0))
        self.queue.append(group)


def assert_same_rows(text: str, demand: Demand, groups: list[Group], in_any_order: bool = False) -> None:
    """Compare the rows of a lag model with those of a source, one by one.

    in_any_order: rows of a batch stand in no order of their own.
    """
    plan = read_lag(text).schedule(demand)
    rows, length = demand.rows, demand.length
    assert len(plan) // rows >= len(groups), f"{text}: {len(groups)} groups begin, not {len(plan) // rows}"
    versions, kept = plan.along(np.arange(len(plan)), length)
    again: dict[int, list[int]] = {}
    for row, phase in [] if plan.reused is None else plan.reused.tolist():
        again.setdefault(row, []).append(phase)
    for group in groups:
        own = slice(group.number * rows, (group.number + 1) * rows)
        said = f"{text}: group {group.number}"
        assert (plan.phase[own] == group.step).all(), f"{said} trains in {plan.phase[own]}, not {group.step}"
        for row in range(own.start, own.stop):
            assert again.get(row, []) == group.again, f"{said} trains again in {again.get(row)}, not {group.again}"
        if not in_any_order:
            assert (plan.place[own] == group.place).all(), f"{said} has place {plan.place[own]}, not {group.place}"
        if group.step == NEVER:
            left = plan.left[own] if (plan.left[own] < demand.phases).all() else NEVER  # not in the last step
            expected_left = group.left if group.left < demand.phases else NEVER
            assert np.all(left == expected_left), f"{said} is dropped at {left}, not {expected_left}"
            expected = [group.versions(row, length)[0] for row in range(rows)]
            if expected_left != NEVER:
                assert versions[own, 0].tolist() == expected, f"{said} begins with {versions[own, 0]}, not {expected}"
            continue
        for row in range(rows):
            expected = group.versions(row, length)
            i = group.number * rows + row
            assert versions[i].tolist() == expected, f"{said}, row {row}: {versions[i]} and not {expected}"
            masked = [version < group.youngest for version in expected]
            assert (~kept[i]).tolist() == masked, f"{said}, row {row}: {(~kept[i]).sum()} masked, not {sum(masked)}"
