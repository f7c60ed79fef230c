"""Simulations of the code of systems with a buffer of batches or groups, each written from the source that it names."""

from __future__ import annotations

import math

from source_clock import BatchSystem, Group, Process, System

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
    the learner takes the leftmost (`step`). APPO (appo/utils.py at 0f93eac): `add` lets the oldest entry of a full
    deque go, and `sample` draws an entry until it has a batch; with one iteration per batch the entry has none
    afterwards.
    """

    in_flight = False
    size = 1  # batches
    circular = False
    interval = 1

    def generation(self) -> Process:
        self.part: list[Group] = []
        self.entries: list[list[Group] | None] = []
        self.rng = stream(self.seed, "pipeline-buffer")
        while True:
            yield lambda: self.free
            self.launch()

    def collect(self, group: Group) -> None:
        self.part.append(group)
        if len(self.part) == self.batch:
            if len(self.entries) == self.size:
                for each in self.entries.pop(0) or []:
                    self.drop(each)
            self.entries.append(self.part)
            self.part = []

    def training(self) -> Process:
        while True:
            yield lambda: any(entry is not None for entry in self.entries)
            i = 0
            if self.circular:
                valid = [i for i, entry in enumerate(self.entries) if entry is not None]
                i = valid[int(self.rng.integers(len(valid)))]
            batch = self.entries[i]
            assert batch is not None
            if self.circular:
                self.entries[i] = None
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

    def generation(self) -> Process:
        self.available = self.buffers
        self.trajectories: list[Group] = []
        self.queue: list[list[Group]] = []
        while True:
            yield lambda: self.free
            self.launch()

    def collect(self, group: Group) -> None:
        self.trajectories.append(group)
        self.enqueue()

    def enqueue(self) -> None:
        while self.available and len(self.trajectories) >= self.batch:
            self.available -= 1
            self.queue.append(self.trajectories[: self.batch])
            del self.trajectories[: self.batch]
            if not self.available:
                self.pause()

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.queue)
            batch = self.queue.pop(0)
            for group in batch:
                group.youngest = 0 if self.bound == math.inf else self.step - int(self.bound) + 1
            yield from self.train(batch)
            if not self.available:
                self.resume()
            self.send_weights(self.step)
            self.available += 1
            self.enqueue()


class Cleanba(BatchSystem):
    """Cleanba: vwxyzjn/cleanba at d1f8979, cleanba/cleanba_ppo.py.

    Parameters and rollouts go through queues of one (671, 672). The actor gets parameters before each rollout, but not
    before the second (292). The learner puts parameters after each update (725).
    """

    def generation(self) -> Process:
        self.parameters, self.rollouts = [0], list[list[Group]]()
        update = 0
        while True:
            update += 1
            if update != 2:
                yield lambda: bool(self.parameters)
                self.weights = self.parameters.pop()
            yield from self.make()
            batch = self.made
            yield lambda: not self.rollouts
            self.rollouts.append(batch)

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.rollouts)
            yield from self.train(self.rollouts.pop())
            yield lambda: not self.parameters
            self.parameters.append(self.step)


class VerlOneStepOff(BatchSystem):
    """verl, one step off: verl-project/verl at 1dda039, verl/experimental/one_step_off_policy/ray_trainer.py.

    `_fit_generate` (385) waits for the batch, sends weights (398), and lets the next batch begin (403) before it
    trains.
    """

    def generation(self) -> Process:
        self.ready: list[list[Group]] = []
        self.asked = 1
        while True:
            yield lambda: self.asked > 0
            self.asked -= 1
            yield from self.make()
            self.ready.append(self.made)

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            self.weights = self.step
            self.asked += 1
            yield from self.train(self.ready.pop())


class Slime(BatchSystem):
    """slime: THUDM/slime at 624b824, train_async.py.

    A rollout is asked for in advance, before the step on the one before it (42); after every `interval` steps the
    trainer waits for it, and then sends weights (66 to 70).
    """

    interval = 1

    def generation(self) -> Process:
        self.ready: list[list[Group]] = []
        self.asked = 1
        while True:
            yield lambda: self.asked > 0
            self.asked -= 1
            yield from self.make()
            self.ready.append(self.made)

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            batch = self.ready.pop()
            self.asked += 1
            yield from self.train(batch)
            if self.step % self.interval == 0:
                yield lambda: bool(self.ready)
                self.weights = self.step


class OpenRLHF(BatchSystem):
    """OpenRLHF: OpenRLHF/OpenRLHF at 3c3be62, openrlhf/trainer/ppo_trainer_async.py.

    A batch needs a token, of which there are `async_queue_size` (296); the trainer gives one back when it takes a batch
    (232). Generation of a batch and the broadcast of weights after a step exclude one another by a lock (128, 257),
    which goes to who has waited longest; with partial rollouts only the broadcast takes it, and rows go on (258).
    """

    tokens = 1
    locked = False
    broadcasting = False
    partial = False

    def generation(self) -> Process:
        self.in_flight, self.ready = self.partial, list[list[Group]]()
        while True:
            yield lambda: self.tokens > 0
            self.tokens -= 1
            yield lambda: self.partial or not self.broadcasting
            self.locked = not self.partial
            yield from self.make()
            self.locked = False
            self.ready.append(self.made)

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            batch = self.ready.pop(0)
            self.tokens += 1
            yield from self.train(batch)
            self.broadcasting = True
            yield lambda: not self.locked
            self.send_weights(self.step)
            self.broadcasting = False
