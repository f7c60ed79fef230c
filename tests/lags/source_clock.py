"""A clock, machines and a trainer, in which the tests write down how real systems decide what is trained on.

Nothing here knows a rule of the harness's pipeline: a system is a few processes that wait for one another, as its own
coroutines and threads do. What its rows take is the only input, and the same as the lag model's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from staleharness.base.streams import integer
from staleharness.lag import read_lag
from staleharness.pipeline.workload import Workload
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import NEVER, Demand

Process = Generator[float | Callable[[], bool], None, None]
"""Yields seconds to sleep, or a condition to wait for."""


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
    dropped: bool = False
    masked: dict[int, int] = field(default_factory=dict)  # row -> decisions left out of the loss

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

    def __init__(self, text: str, demand: Demand) -> None:
        model = read_lag(text)
        assert isinstance(model, PipelineLag)
        self.demand, self.clock = demand, Clock()
        pipeline = model.pipeline(demand)
        self.work = Workload(pipeline, integer(demand.seed, "lag"))
        self.room = pipeline.slots // demand.rows  # groups
        self.sync_time, self.still = model.sync_time, False
        self.weights = 0  # version on the machines
        self.step = 0  # version of the trainer
        self.groups: list[Group] = []  # in the order in which they began
        self.running: list[Group] = []

    @property
    def free(self) -> bool:
        """True where a machine can begin a group now."""
        return not self.still and len(self.running) < self.room

    def generate(self) -> Group:
        """Begin a group; `running` has it until it is finished."""
        assert self.free
        self.work.next_group()
        rows, n = self.demand.rows, len(self.groups)
        group = Group(n, self.clock.now, self.work.seconds[n * rows : (n + 1) * rows], self.weights)
        self.groups.append(group)
        self.running.append(group)
        return group

    def send_weights(self, version: int) -> None:
        """Put new weights on the machines; groups under way go on with them where the system does so."""
        self.weights = version
        if self.in_flight:
            for group in self.running:
                group.changes.append((self.clock.now - group.began - group.paused, version))

    def finish(self, group: Group) -> Process:
        """Wait until a group is finished, and free its machine."""
        while (left := group.finish - self.clock.now) > 0:
            yield left
        self.running.remove(group)

    def stand_still(self) -> Process:
        """Let the transfer of new weights take its time, in which nothing is generated."""
        for group in self.running:
            group.paused += self.sync_time
        self.still = True
        yield self.sync_time
        self.still = False

    def train(self, batch: list[Group]) -> Process:
        assert len(batch) == self.demand.groups
        for place, group in enumerate(batch):
            assert group.step == NEVER and not group.dropped
            group.step, group.place = self.step, place
        yield 1.0
        self.step += 1

    def generation(self) -> Process:
        """Begin groups as the system does."""
        raise NotImplementedError

    def training(self) -> Process:
        """Take batches, train on them and send weights as the system does."""
        raise NotImplementedError

    def run(self) -> list[Group]:
        """Run until the last step is made, and return the groups that began."""
        self.clock.start(self.generation(), self.training())
        self.clock.run(lambda: self.step >= self.demand.phases)
        return self.groups


def assert_same_rows(text: str, demand: Demand, groups: list[Group], in_any_order: bool = False) -> None:
    """Compare the rows of a lag model with those of a source, one by one.

    in_any_order: rows of a batch stand in no order of their own.
    """
    plan = read_lag(text).schedule(demand)
    rows, length = demand.rows, demand.length
    assert len(plan) // rows >= len(groups), "those that begin after the last step count for nothing"
    versions, kept = plan.along(np.arange(len(plan)), length)
    for group in groups:
        own = slice(group.number * rows, (group.number + 1) * rows)
        said = f"{text}: group {group.number}"
        assert (plan.phase[own] == group.step).all(), f"{said} trains in {plan.phase[own]}, not {group.step}"
        if not in_any_order:
            assert (plan.place[own] == group.place).all(), f"{said} has place {plan.place[own]}, not {group.place}"
        gone = (plan.phase[own] == NEVER) & (plan.left[own] != NEVER)
        assert (gone == group.dropped).all(), f"{said} is dropped: {gone}, not {group.dropped}"
        if group.step == NEVER:
            assert (versions[own, 0] == group.version).all(), f"{said} begins with {versions[own, 0]}"
            continue
        for row in range(rows):
            expected = group.versions(row, length)
            i = group.number * rows + row
            assert versions[i].tolist() == expected, f"{said}, row {row}: {versions[i]} and not {expected}"
            assert (~kept[i]).sum() == group.masked.get(row, 0), f"{said}, row {row}: {(~kept[i]).sum()} masked"
