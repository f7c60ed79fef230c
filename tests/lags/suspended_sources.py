"""Simulations of the code of systems that generate and train in turn, each written from the source that it names."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from source_clock import Group, Process, System


class SlimePartial(System):
    """slime, partial rollouts: THUDM/slime at 0044b40, slime/rollout.

    Each rollout submits `over_sampling_batch_size` groups once, those of its buffer first (sglang_rollout.py, 411;
    data_source.py at 018ff18, 166), waits until `rollout_batch_size` are finished (409), aborts all others into the
    buffer (448), and sorts what it has by number (451). Training and weights come between two rollouts, on the same
    machines. With `mask`, what a sample has when it is taken up again is left out of the loss (204).
    """

    over = 0  # groups of a rollout
    mask = False
    step_time = 0.0  # on the clock of generation

    def generation(self) -> Process:
        return
        yield

    def training(self) -> Process:
        while True:
            self.done: list[Group] = []
            while len(self.running) < self.over:
                self.launch()
            yield lambda: len(self.done) == self.batch
            batch = sorted(self.done, key=lambda group: group.number)
            for group in batch:
                group.youngest = self.step if self.mask else 0
            yield from self.train(batch)
            self.send_weights(self.step)

    def collect(self, group: Group) -> None:
        self.done.append(group)


class Megatron(System):
    """Megatron-LM: NVIDIA/Megatron-LM at d98e8a6, megatron/rl.

    One coroutine submits rows, in units that need a slot of the gate (agent/rollout_pipeline.py, 370 and 313). A slot
    of a row is free when the row is finished (442), one of a group or batch when the trainer asks for the next group
    after it (596, 625, 626).
    The trainer asks for the groups of a batch one by one (rl_utils.py, 868), with inference suspended while it trains
    (2941 to 2947) and new weights for the rows under way afterwards. The README's laws are older: they let a group's
    slot go when the group is finished, as the code did before af3d240.
    """

    submit = consume = "B"
    tasks = 1  # slots of the gate
    held = waiting = next_batch = 0
    step_time = 0.0  # on the clock of generation

    def generation(self) -> Process:
        self.assembled: list[RowByRow] = []
        self.delivered: list[RowByRow] = []
        while True:
            yield from self.acquire("B")
            for _ in range(self.batch):
                yield from self.acquire("G")
                self.work.next_group()
                rows, n = self.demand.rows, len(self.groups)
                seconds = self.work.seconds[n * rows : (n + 1) * rows]
                group = RowByRow(n, math.inf, seconds, self.weights)
                self.groups.append(group)
                for row in range(rows):
                    yield from self.acquire("R")
                    group.starts.append((self.clock.now, self.weights))
                    self.clock.start(self.infer(group, row))
                group.began = self.clock.now

    def acquire(self, unit: str) -> Process:
        if unit == self.submit:
            yield lambda: self.held < self.tasks
            self.held += 1

    def release(self, unit: str) -> None:
        self.held -= unit == self.submit

    def infer(self, group: RowByRow, row: int) -> Process:
        yield group.seconds[row]
        self.release("R")
        group.ended[row] = len(group.switched)
        if len(group.ended) == self.demand.rows:
            self.assembled.append(group)

    def send_weights(self, version: int) -> None:
        self.weights = version
        for group in self.groups:
            if isinstance(group, RowByRow):
                group.switched.append((self.clock.now, version))

    def ready(self) -> bool:
        of_batch = [group for group in self.assembled if group.number // self.batch == self.next_batch]
        if self.delivered or self.consume == "G":
            return bool(self.delivered or self.assembled)
        return len(of_batch) == self.batch

    def next_group(self) -> Process:
        """Answer the trainer's call for a group; only then is the slot of the one before it free."""
        if self.waiting:
            self.release("G")
            if self.consume == "B" and not self.delivered:
                self.release("B")
        yield self.ready
        if self.consume == "G":
            self.delivered, self.assembled = self.delivered + self.assembled, []
        elif not self.delivered:
            first = self.next_batch * self.batch
            self.delivered = sorted(
                (group for group in self.assembled if first <= group.number < first + self.batch),
                key=lambda group: group.number,
            )
            self.assembled = [group for group in self.assembled if group not in self.delivered]
            self.next_batch += 1
        self.waiting = 1

    def training(self) -> Process:
        while True:
            batch: list[Group] = []
            while len(batch) < self.batch:
                yield from self.next_group()
                batch.append(self.delivered.pop(0))
            yield from self.train(batch)
            self.send_weights(self.step)


@dataclass
class RowByRow(Group):
    """A group whose rows begin one by one."""

    starts: list[tuple[float, int]] = field(default_factory=list)  # (when, version) of each row
    switched: list[tuple[float, int]] = field(default_factory=list)  # (when, version) of new weights on the machines
    ended: dict[int, int] = field(default_factory=dict)  # row -> of `switched`, those before it was finished

    def versions(self, row: int, length: int) -> list[int]:
        began, version = self.starts[row]
        versions = [version] * length
        for when, version in self.switched[: self.ended.get(row)]:
            if when >= began:
                done = min(int(length * (when - began) / self.seconds[row]), length)
                versions[done:] = [version] * (length - done)
        return versions
