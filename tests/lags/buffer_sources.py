"""Simulations of the code of systems with a buffer of batches or groups, each written from the source that it names."""

from __future__ import annotations

import math

from source_clock import BoundedBuffer, Group, Process, System

from staleharness.base.streams import stream


class NeMoRL(System):
    """NeMo-RL: NVIDIA-NeMo/RL at 7ea279a, nemo_rl/algorithms.

    A slot of the buffer is taken when a group begins (single_controller.py, `_launch`, 564) and freed when it is taken,
    evicted or aborted (499, 889, 941). All samplers but `windowed` let a batch of prompts begin while its number is at
    most version + window (async_utils/staleness_sampler.py, 325). The slots stand in the order of beginning, and each
    sampler takes the first finished ones that it may (`select`), when there are as many as a batch
    (`min_groups_for_streaming_train`). `windowed` evicts finished groups below its window before each selection (single
    controller, 879) and aborts those under way before weights are sent (1478, 1636).
    """

    sampler = "in_order"
    window = 1
    capacity = 10**9  # groups
    used = 0

    def generation(self) -> Process:
        self.buffer: list[Group] = []
        self.ready: set[int] = set()
        dispatch, left = -1, 0
        while True:
            if not left:
                yield lambda dispatch=dispatch: self.sampler == "windowed" or dispatch < self.step + self.window
                dispatch, left = dispatch + 1, self.batch
            yield lambda: self.used < self.capacity and self.free
            self.used += 1
            left -= 1
            self.buffer.append(self.launch())

    def collect(self, group: Group) -> None:
        self.ready.add(group.number)

    def in_window(self) -> list[Group]:
        oldest = max(0, self.step - self.window)
        return [group for group in self.buffer if oldest <= group.version <= self.step]

    def selection(self) -> list[Group]:
        if self.sampler == "in_order":
            groups = [group for group in self.buffer if group.number // self.batch == self.step]
        elif self.sampler == "weight_fifo":
            target = min((group.version for group in self.in_window()), default=0)
            groups = [group for group in self.buffer if group.version == target]
        elif self.sampler == "windowed":
            groups = self.in_window()
        else:
            groups = self.buffer
        groups = [group for group in groups if group.number in self.ready]
        return groups[: self.batch] if len(groups) >= self.batch else []

    def remove(self, groups: list[Group]) -> None:
        self.buffer = [group for group in self.buffer if group not in groups]
        self.used -= len(groups)

    def stale(self, finished: bool) -> list[Group]:
        oldest = max(0, self.step - self.window)
        return [group for group in self.buffer if group.version < oldest and (group.number in self.ready) is finished]

    def training(self) -> Process:
        evicts = self.sampler == "windowed"
        while True:
            taken: list[Group] = []
            while not taken:
                yield lambda: bool(self.selection() or (evicts and self.stale(True)))
                for group in self.stale(True) if evicts else []:
                    self.drop(group)
                    self.remove([group])
                taken = self.selection()
            self.remove(taken)
            yield from self.train(taken)
            for group in self.stale(False) if evicts else []:
                self.drop(group)
                self.remove([group])
            self.send_weights(self.step)


class RLlib(System):
    """RLlib: ray-project/ray, rllib/algorithms.

    IMPALA (impala/impala_learner.py at 0007f83): a deque of batches, whose leftmost goes when it is full (`enqueue`);
    the learner takes the leftmost (`step`). APPO (appo/utils.py at 0f93eac, 42 to 89): `add` lets the oldest entry of a
    full deque go, and `sample` draws an entry until it has a batch, which it has until it was drawn
    `circular_buffer_iterations_per_batch` times; that is 2 by default (appo/appo.py).
    """

    in_flight = False
    size = 1  # batches
    circular = False
    interval = iterations = 1

    def setup(self) -> None:
        self.part: list[Group] = []
        self.entries: list[tuple[list[Group] | None, int]] = []  # batch, times drawn
        self.rng = stream(self.seed, "pipeline-buffer")

    def collect(self, group: Group) -> None:
        self.part.append(group)
        if len(self.part) == self.batch:
            if len(self.entries) == self.size:
                batch, k = self.entries.pop(0)
                for each in batch if batch and k == 0 else []:
                    self.drop(each)
            self.entries.append((self.part, 0))
            self.part = []

    def training(self) -> Process:
        while True:
            yield lambda: any(batch is not None for batch, _ in self.entries)
            i = 0
            if self.circular:
                valid = [i for i, (batch, _) in enumerate(self.entries) if batch is not None]
                i = valid[int(self.rng.integers(len(valid)))]
            batch, k = self.entries[i]
            assert batch is not None
            if self.circular:
                self.entries[i] = (None if k == self.iterations - 1 else batch), k + 1
            else:
                self.entries.pop(0)
            yield from self.train(batch)
            if self.step % self.interval == 0:
                self.send_weights(self.step)


class SampleFactory(System):
    """Sample Factory: alex-petrenko/sample-factory at 1894bd1, sample_factory/algo.

    A batch is made up when there are trajectories for it and one of N buffers is free, which it holds until it is
    trained on; without a free one all inference workers stop (learning/batcher.py, 171 to 218, 230;
    sampling/inference_worker.py, 175). Decisions count where the learner's version less theirs is below the bound when
    their batch begins (learning/learner.py, 953).
    """

    buffers = 2
    bound = math.inf
    total = 0

    def setup(self) -> None:
        self.available = self.buffers
        self.batches: list[list[Group]] = []

    def collect(self, group: Group) -> None:
        self.queue.append(group)
        self.enqueue()

    def enqueue(self) -> None:
        while self.available and len(self.queue) >= self.batch:
            self.available -= 1
            self.batches.append(self.queue[: self.batch])
            del self.queue[: self.batch]
            if not self.available:
                self.pause()

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.batches)
            batch = self.batches.pop(0)
            for group in batch:
                group.youngest = 0 if self.bound == math.inf else self.step - int(self.bound) + 1
            yield from self.train(batch)
            if not self.available:
                self.resume()
            self.send_weights(self.step)
            self.available += 1
            self.enqueue()


class Laminar(BoundedBuffer):
    """Laminar: arXiv 2510.12633, sections 3 and 4; no code is published.

    A rollout fetches the newest weights from its relay when it has generated its batch of prompts, here one group, and
    generates each trajectory with one version. Finished ones go to the experience buffer, from which the trainer takes
    a batch when there is one, and pushes weights after each step. Not in the paper, but assumed here: a full buffer
    holds rollouts back, and the trainer takes what came first.
    """

    in_flight = False

    def training(self) -> Process:
        while True:
            yield lambda: len(self.queue) >= self.batch
            batch, self.queue = self.queue[: self.batch], self.queue[self.batch :]
            yield from self.train(batch)
            self.send_weights(self.step)
