"""Simulations of the code of systems that drop what is stale, each written from the source that it names."""

from __future__ import annotations

import math

from source_clock import BoundedBuffer, Group, Process, System


class TRLAsyncGRPO(System):
    """TRL: huggingface/trl at f2cd577, trl/experimental/async_grpo.

    max_staleness × (samples of a step) tasks are under way (async_grpo_trainer.py, 769), a group's version is that of
    its first one (async_rollout_worker.py, `_generate_loop`), and the version counts syncs, of which there is one after
    every `weight_sync_steps` steps (843, 1139). Samples come from a queue one by one, and go where the version is more
    than `max_staleness` beyond theirs (277). Generation is paused with mode=keep meanwhile (vllm_client.py, 80).
    """

    most = 4
    every = 1

    def training(self) -> Process:
        while True:
            taken = yield from self.take_batch(
                lambda group: self.step // self.every - group.version // self.every > self.most
            )
            yield from self.train(taken)
            if self.step % self.every == 0:
                self.send_weights(self.step)


class VerlV1(System):
    """verl v1, separate_async: verl-project/verl at 1dda039, verl/trainer/ppo/v1.

    `num_warmup_batches` are sent in advance (trainer_separate_async.py, `on_train_begin`) and one at each step
    (trainer_base.py, 1420); weights are sent after it (463). Before a batch is taken, finished groups with global step
    − their step + 1 above the threshold are evicted, and as many new prompts sent (replay_buffer.py,
    `wait_for_sampleable`). Those of the oldest steps are taken first (`_select_prompt_uids`). With `wait` none is
    evicted, and no batch is taken while a prompt that is not finished has reached the threshold
    (`_has_enough_samples`).
    """

    threshold = 8
    waits = False
    warm_up = 1

    def setup(self) -> None:
        self.limit = self.warm_up * self.batch  # prompts that are sent

    def admits(self) -> bool:
        return len(self.groups) < self.limit

    def stale(self) -> list[Group]:
        return [] if self.waits else [g for g in self.queue if self.step - g.version + 1 > self.threshold]

    def has_batch(self) -> bool:
        late = self.waits and any(self.step - g.version + 1 >= self.threshold for g in self.running)
        return len(self.queue) >= self.batch and not late

    def training(self) -> Process:
        while True:
            self.limit += self.batch
            while True:
                yield lambda: bool(self.stale()) or self.has_batch()
                if not self.stale():
                    break
                for group in self.stale():
                    self.drop(group)
                    self.queue.remove(group)
                    self.limit += 1
            self.queue.sort(key=lambda group: (group.version, group.number))
            taken, self.queue = self.queue[: self.batch], self.queue[self.batch :]
            yield from self.train(taken)
            self.send_weights(self.step)


class Miles(BoundedBuffer):
    """miles: radixark/miles at 31f1ca9, miles/rollout and train_async.py.

    A worker keeps a number of groups under way and puts finished ones into a buffer, for which it waits where that is
    full (fully_async_rollout.py, `_worker_loop`; fully_async_data_buffer.py, `put`). A batch is asked for before the
    step on the one before it (train_async.py): groups are got one by one, and go where the version at that time is more
    than the bound beyond their oldest one (`get`). After the step the trainer waits for the next
    batch, and then sends weights. With async_unused_samples_handler=retry, prompts of what goes are added to the data
    source's buffer (`_recycle`), whose first one is taken before any new one (data_source.py, `get_samples`).
    """

    bound = -1
    retries = False
    by_sample = False

    def setup(self) -> None:
        super().setup()
        self.requests, self.ready = [0], list[list[Group]]()  # versions; batches
        self.recycled: list[list[float]] = []
        self.samples_in_flight = 0
        self.sample_done = False
        self.tasks_done: list[Group] = []

    def next_prompt(self) -> list[float]:
        return self.recycled.pop(0) if self.recycled else self.new_prompt()

    def drop(self, group: Group) -> None:
        super().drop(group)
        if self.retries:
            self.recycled.append(group.seconds)

    def processes(self) -> list[Process]:
        return [self.drain(), self.training(), self.worker_loop() if self.by_sample else self.generation()]

    def worker_loop(self) -> Process:
        size = self.demand.rows
        while True:
            while self.samples_in_flight + size <= self.room * size:
                group = Group(len(self.groups), self.clock.now, self.next_prompt(), self.weights)
                self.groups.append(group)
                self.running.append(group)
                self.samples_in_flight += size
                self.clock.start(*(self.generate(group, row) for row in range(size)))
            self.sample_done = False
            yield lambda: self.sample_done or bool(self.tasks_done)
            if self.sample_done:
                continue
            done, self.tasks_done = self.tasks_done, []
            for group in done:
                if len(self.queue) >= self.capacity:
                    yield lambda: len(self.queue) < self.capacity
                self.queue.append(group)

    def generate(self, group: Group, row: int) -> Process:
        yield group.seconds[row]
        self.samples_in_flight -= 1
        self.sample_done = True
        if self.clock.now >= group.finish:
            self.running.remove(group)
            self.tasks_done.append(group)

    def drain(self) -> Process:
        while True:
            yield lambda: bool(self.requests)
            version = self.requests.pop()
            batch = yield from self.take_batch(
                lambda group, version=version: 0 <= self.bound < version - group.version  # type: ignore[misc]
            )
            self.ready.append(batch)

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            self.send_weights(self.step)
            self.requests.append(self.weights)
            yield from self.train(self.ready.pop())


class OpenInstruct(System):
    """open-instruct: allenai/open-instruct at e6c3044, open_instruct/data_loader.py.

    async_steps batches of prompts are sent at first (1390), and one for each result that comes into a batch or is
    dropped (1101, `process_group`). Batch p is made up of results in turn once p − (last one that was consumed) is at
    most async_steps (1405), without those whose model step is more than that behind p (1087).
    """

    steps = 8
    consumed = -1

    def setup(self) -> None:
        self.prepared: list[list[Group]] = []
        self.sent = self.steps * self.batch  # prompts
        self.preparing = 0  # the batch

    def processes(self) -> list[Process]:
        return [self.generation(), self.preparation(), self.training()]

    def admits(self) -> bool:
        return len(self.groups) < self.sent

    def is_stale(self, group: Group) -> bool:
        self.sent += 1
        return self.preparing - group.version > self.steps

    def preparation(self) -> Process:
        while True:
            yield lambda: self.preparing - self.consumed <= self.steps
            taken = yield from self.take_batch(self.is_stale)
            self.prepared.append(taken)
            self.preparing += 1

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.prepared)
            batch = self.prepared.pop(0)
            self.consumed = self.step
            yield from self.train(batch)
            self.send_weights(self.step)


class Tinker(System):
    """tinker: thinking-machines-lab/tinker-cookbook at 9dfcc3a, tinker_cookbook/rl/train.py.

    As many workers as a batch has groups (1000) keep the client that they began with (1038), and put groups into an
    unbounded queue. Those more than max_steps_off_policy steps old are thrown away, or their prompts sent again (1099):
    put into the queue of prompts behind what is there, a batch (975), and behind the prompt with which the data loader
    waits for room in it (1015).
    """

    in_flight = False
    bound = 0
    requeues = False

    def setup(self) -> None:
        self.prompts: list[list[float]] = []  # in the queue, and behind a batch of them those that wait to be put
        self.loaded = 0  # place behind the data loader's last prompt
        self.load()

    def load(self) -> None:
        while self.loaded <= self.batch:  # the last one is in the queue
            self.prompts.append(self.new_prompt())
            self.loaded = len(self.prompts)

    def next_prompt(self) -> list[float]:
        prompt = self.prompts.pop(0)
        self.loaded -= 1
        self.load()
        return prompt

    def drop(self, group: Group) -> None:
        super().drop(group)
        if self.requeues:
            self.prompts.append(group.seconds)

    def training(self) -> Process:
        while True:
            taken = yield from self.take_batch(lambda group: self.step - group.version > self.bound)
            yield from self.train(taken)
            self.send_weights(self.step)


class PipelineRL(System):
    """PipelineRL: ServiceNow/PipelineRL at 58d3934, pipelinerl.

    With a `max_lag`, max_lag + interval batches of groups may be submitted, and `interval` more with each new version
    (actor.py, 531, 553, 562); the ring is off (preprocess.py, 408), and what is too old is counted, not dropped
    (finetune_loop.py, 679). Without one, nothing is held back, and a full ring drops its oldest entry (preprocess.py,
    576 to 584); entries go from it to the trainer up to the end of a batch, once no more than
    `max_ready_samples_per_lead` are unprocessed (590), which is less than a batch here.
    """

    max_lag = -1
    interval = 1
    ring_size = 0  # groups
    published = processed = 0

    def setup(self) -> None:
        self.ring: list[Group] = []
        self.ready: list[Group] = []
        self.can_submit = math.inf if self.max_lag < 0 else (self.max_lag + self.interval) * self.batch

    def admits(self) -> bool:
        return len(self.groups) < self.can_submit

    def collect(self, group: Group) -> None:
        if self.max_lag < 0 and len(self.ring) == self.ring_size:
            self.drop(self.ring.pop(0))
        self.ring.append(group)
        self.write()

    def write(self) -> None:
        while self.ring and (self.published % self.batch or self.published == self.processed):
            self.published += 1
            self.ready.append(self.ring.pop(0))

    def training(self) -> Process:
        while True:
            yield lambda: len(self.ready) == self.batch
            yield from self.train(self.ready)
            self.ready = []
            self.processed += self.batch
            if self.step % self.interval == 0:
                self.send_weights(self.step)
                self.can_submit += self.interval * self.batch
            self.write()
