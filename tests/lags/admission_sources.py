"""Simulations of the code of systems that hold generation back, each written from the source that it names."""

from __future__ import annotations

import math
from collections import Counter

from source_clock import Group, Process, System


class Roll(System):
    """ROLL: alibaba/ROLL at 8eb27cc, roll/distributed/scheduler/generate_scheduler.py.

    A prompt is bound to the step in which it is sent (`begin`, line 263), while fewer than B(n + 1) + ⌈B·ratio⌉ have
    been (`advance_step`, 221; `_check_send_new_request`, 245). `get_batch` (342) goes from the oldest step on, and
    waits for each: at most that share of the batch comes from the oldest where the ratio has a fraction (370). `gc`
    (398) asserts that no prompt is left that would be too old (430). Weights are sent while sampling is suspended and
    the trainer waits (roll/pipeline/rlvr/rlvr_pipeline.py, 512 to 547).
    """

    ratio = 0.0
    limit = 0

    def setup(self) -> None:
        self.done: dict[int, list[Group]] = {}  # step of beginning -> as they finish
        self.unfinished: Counter[int] = Counter()

    def admits(self) -> bool:
        return len(self.groups) < self.limit

    def launch(self) -> Group:
        self.unfinished[self.step] += 1
        group = super().launch()
        assert group.version == self.step
        return group

    def collect(self, group: Group) -> None:
        self.unfinished[group.version] -= 1
        self.done[group.version].append(group)

    def training(self) -> Process:
        oldest = math.ceil(self.ratio)
        while True:
            for begin in [begin for begin in self.done if begin <= self.step - 1 - oldest]:
                assert not self.done.pop(begin) and not self.unfinished[begin], "the assertion of ROLL's gc"
            if self.step:
                yield from self.stand_still()
            self.send_weights(self.step)
            self.done[self.step] = []
            self.limit += self.batch + (0 if self.limit else math.ceil(self.batch * self.ratio))
            taken: list[Group] = []
            for begin in list(self.done)[:-1]:
                if len(taken) < self.batch:
                    yield from self.get(begin, self.batch_share(begin, len(taken)), taken)
            while len(taken) < self.batch:
                yield lambda: bool(self.done[self.step])
                yield from self.get(self.step, self.batch - len(taken), taken)
            yield from self.train(taken)

    def batch_share(self, begin: int, n_taken: int) -> int:
        share, rows = self.ratio % 1, self.demand.rows
        if share and begin == self.step - math.ceil(self.ratio):
            return math.ceil(int(self.batch * rows * share) / rows)  # counted in samples, taken by prompt
        return self.batch - n_taken

    def get(self, begin: int, most: int, taken: list[Group]) -> Process:
        yield lambda: len(self.done[begin]) >= most or not self.unfinished[begin]
        taken.extend(self.done[begin][:most])
        del self.done[begin][:most]


class AReaL(System):
    """AReaL: inclusionAI/AReaL at 4aef98d, areal/infra.

    (eta + version + 1)·B − (accepted + running) more may be submitted (staleness_manager.py, 104). `wait_results`
    waits for a batch, sorts what there is by when it was made, takes the first of it, and shuffles that
    (workflow_executor.py, 573 to 601).
    """

    eta = 0
    accepted = 0

    def admits(self) -> bool:
        return (self.eta + self.weights + 1) * self.batch - self.accepted - len(self.running) > 0

    def collect(self, group: Group) -> None:
        self.accepted += 1
        self.queue.append(group)

    def training(self) -> Process:
        while True:
            yield lambda: len(self.queue) >= self.batch
            self.queue.sort(key=lambda group: group.number)
            taken, self.queue = self.queue[: self.batch], self.queue[self.batch :]
            yield from self.train(taken)
            self.send_weights(self.step)


class SkyRL(System):
    """SkyRL: NovaSky-AI/SkyRL at a956457, skyrl/train/fully_async_trainer.py.

    (max_staleness_steps + global step)·B − (accepted + running) more may be submitted (`_compute_capacity_unlocked`,
    181), the global step being the one that is worked on. Finished groups go through a queue (930), from which the
    trainer gets one after the other (809). Weights are sent, and then the step is counted (598, 662).
    """

    most = 0
    accepted = 0
    global_step = 1

    def admits(self) -> bool:
        return (self.most + self.global_step) * self.batch - self.accepted - len(self.running) > 0

    def collect(self, group: Group) -> None:
        self.queue.append(group)
        self.accepted += 1

    def training(self) -> Process:
        while True:
            taken = yield from self.take_batch()
            yield from self.train(taken)
            self.send_weights(self.step)
            self.global_step += 1


class Torchtitan(System):
    """torchtitan: pytorch/torchtitan at b5bcd76, torchtitan/experiments/rl.

    B = (S + 1)·P slots are active, from the beginning of a group until the trainer has trained on it and sent weights
    (components/work_buffer.py, 202; controller.py, `_trainer_loop`). A batcher takes the oldest finished group among
    the W from the oldest one on (`take_finalized`, 155) and puts batches into a queue of one (controller.py, 811).
    """

    staleness = 0
    window = 1
    active = 0

    def processes(self) -> list[Process]:
        return [*super().processes(), self.batcher()]

    def setup(self) -> None:
        self.work_by_id: dict[int, Group] = {}
        self.finalized: set[int] = set()
        self.batches: list[list[Group]] = []

    def admits(self) -> bool:
        return self.active < (self.staleness + 1) * self.batch

    def launch(self) -> Group:
        self.active += 1
        group = super().launch()
        self.work_by_id[group.number] = group
        return group

    def collect(self, group: Group) -> None:
        self.finalized.add(group.number)

    def takeable(self) -> int | None:
        head = next(iter(self.work_by_id), 0)
        window = range(head, head + self.window)
        return next((n for n in self.work_by_id if n in self.finalized and n in window), None)

    def batcher(self) -> Process:
        batch: list[Group] = []
        while True:
            yield lambda: self.takeable() is not None
            number = self.takeable()
            assert number is not None
            batch.append(self.work_by_id.pop(number))
            if len(batch) == self.batch:
                yield lambda: not self.batches
                self.batches.append(batch)
                batch = []

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.batches)
            yield from self.train(self.batches.pop())
            self.send_weights(self.step)
            self.active -= self.batch


class PrimeRL(System):
    """prime-rl: PrimeIntellect-ai/prime-rl at 559b447, src/prime_rl/orchestrator.

    Nothing is dispatched while more than TARGET_LAG batches are shipped beyond the version (orchestrator.py,
    `update_dispatch_gate`, 969). A finished group goes into the batch that is being made up, unless its version is more
    than the bound behind the number of that batch (train_sink.py, `_drop_stale`, 166; utils.py, 51). A full batch is
    held until version (number − TARGET_LAG) is there (orchestrator.py, 668), and meanwhile nothing else is processed.
    Groups under way are cancelled by the same rule before new weights are applied (dispatcher.py, 367).
    """

    target = 1
    bound = 8
    shipped = 0

    def setup(self) -> None:
        self.sent: list[list[Group]] = []

    def processes(self) -> list[Process]:
        return [self.training(), self.main_loop(), self.generation()]

    def admits(self) -> bool:
        return self.shipped - self.step <= self.target

    def is_stale(self, group: Group) -> bool:
        return group.version < self.shipped - self.bound

    def main_loop(self) -> Process:
        while True:
            batch = yield from self.take_batch(self.is_stale)
            yield lambda: self.step >= self.shipped - self.target
            self.sent.append(batch)
            self.shipped += 1

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.sent)
            yield from self.train(self.sent.pop(0))
            for group in list(self.running):
                if self.is_stale(group):
                    self.drop(group)
            self.send_weights(self.step)


class VerlFullyAsync(System):
    """verl, fully asynchronous: verl-project/verl at 1dda039, verl/experimental/fully_async_policy.

    At most int(B·(1 + threshold)·trigger) samples begin (fully_async_rollouter.py, 493, 1155); at a sync those count
    that are under way or in the queue (605). The trainer gets samples one by one (fully_async_trainer.py, 404), and
    syncs after every `trigger` steps (684).
    """

    threshold = 0.0
    trigger = 1
    stale_samples = 0

    def admits(self) -> bool:
        return self.stale_samples < int(self.batch * (self.threshold + 1) * self.trigger)

    def launch(self) -> Group:
        self.stale_samples += 1
        return super().launch()

    def training(self) -> Process:
        while True:
            for _ in range(self.trigger):
                taken = yield from self.take_batch()
                yield from self.train(taken)
            self.send_weights(self.step)
            self.stale_samples = len(self.running) + len(self.queue)
