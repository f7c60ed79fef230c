"""Simulations of the code of systems that generate whole batches, each written from the source that it names."""

from __future__ import annotations

from source_clock import BatchSystem, Group, Process


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

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            self.weights = self.step
            self.requests += 1
            yield from self.train(self.ready.pop())


class Slime(BatchSystem):
    """slime: THUDM/slime at 624b824, train_async.py.

    A rollout is asked for in advance, before the step on the one before it (42); after every `interval` steps the
    trainer waits for it, and then sends weights (66 to 70).
    """

    interval = 1

    def training(self) -> Process:
        while True:
            yield lambda: bool(self.ready)
            batch = self.ready.pop()
            self.requests += 1
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
        self.in_flight = self.partial
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


class LlamaRL(BatchSystem):
    """LlamaRL: arXiv 2505.24034, section 4; no code is published.

    One controller lets all executors make a step at the same time, and then lets them communicate: a batch goes from
    the generator to the trainer over `delay` such rounds, and weights come back after each. Delays of 1 and more are
    asynchronous training; with 0 the trainer waits for the batch of its own round.
    """

    delay = 1  # rounds

    def generation(self) -> Process:
        self.turn = False
        while True:
            yield lambda: self.turn
            yield from self.make()
            self.turn = False

    def training(self) -> Process:
        channel: list[list[Group]] = []
        while True:
            self.turn = True
            if self.delay and len(channel) == self.delay:
                yield from self.train(channel.pop(0))
            yield lambda: not self.turn
            channel.append(self.made)
            if not self.delay:
                yield from self.train(channel.pop())
            self.weights = self.step
