"""The trainer's steps, and the weight transfers to the slots."""

from __future__ import annotations

from math import inf
from typing import Literal

from ..base.streams import stream
from .pipeline_settings import Pipeline
from .rollout_slots import RolloutSlots

State = Literal["waiting", "training", "syncing", "down"]


class Trainer:
    """State of the trainer, and the time `until` which it lasts."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.step_seconds, self.token_seconds = pipeline.train_seconds, pipeline.train_token_seconds
        self.mtbf, self.restart = pipeline.trainer_mtbf, pipeline.trainer_restart
        self.rng = stream(seed, "pipeline-trainer")
        self.version = 0  # steps made
        self.state: State = "waiting"
        self.until = inf
        self.spans: list[tuple[float, float, str]] = []  # begin, end, state
        self.since = 0.0  # when the state was entered
        self.has_batch = False
        self._needs = 0.0  # seconds of the step on that batch
        self._lasts = self._lifetime()  # seconds of training until the next failure

    def take(self, tokens: int) -> None:
        """Take a batch of `tokens` decisions for the next step."""
        self._needs, self.has_batch = self.step_seconds + self.token_seconds * tokens, True

    def train(self, now: float) -> None:
        """Begin or repeat the step on the batch, up to the next failure."""
        self.enter("training", now, now + min(self._needs, self._lasts))

    def end_sync(self, now: float) -> None:
        """Go on after a transfer that the trainer waited for."""
        if self.has_batch:
            self.train(now)
        else:
            self.enter("waiting", now)

    def finish(self, now: float) -> Literal["step", "failed", "restarted"]:
        """Return the event at `until`: the end of a step, a failure before it, or the end of the restart after one."""
        if self.state == "down":
            self._lasts = self._lifetime()
            self.train(now)
            return "restarted"
        if self._lasts < self._needs:
            self.enter("down", now, now + self.restart)
            return "failed"
        self._lasts -= self._needs
        self.version, self.has_batch = self.version + 1, False
        self.enter("waiting", now)
        return "step"

    def enter(self, state: State, now: float, until: float = inf) -> None:
        if now > self.since:
            self.spans.append((self.since, now, self.state))
        self.state, self.until, self.since = state, until, now

    def _lifetime(self) -> float:
        return inf if self.mtbf is None else float(self.rng.exponential(self.mtbf))


class WeightSync:
    """Transfers of new weights, one at a time; a version that is made meanwhile waits, and a newer one replaces it."""

    def __init__(self, pipeline: Pipeline, slots: RolloutSlots) -> None:
        self.seconds, self.sync_every = pipeline.sync_seconds, pipeline.sync_every
        self.blocking, self.in_flight = pipeline.blocking, pipeline.in_flight
        self.slots = slots
        self.until = inf  # when the transfer under way arrives
        self.draining = False  # rows under way are finishing first
        self._version = 0  # of the transfer under way
        self._newer: int | None = None  # a version that is waiting for it

    @property
    def under_way(self) -> bool:
        return self.draining or self.until < inf

    def publish(self, version: int, now: float) -> None:
        """Send a new version if it is its turn, now or after the transfer under way."""
        if version % self.sync_every:
            return
        if self.under_way:
            self._newer = version
            return
        self._version = version
        if self.in_flight == "drain":
            self.draining = True
            self.slots.close(now)
        else:
            self._send(now)

    def end_draining(self, now: float) -> None:
        """Send the weights, now that no row is under way."""
        self.draining = False
        self._version, self._newer = self._newer or self._version, None
        self._send(now)

    def arrive(self, now: float) -> None:
        """Give the slots the new weights; rows continue as the settings say."""
        self.until = inf
        self.slots.version = self._version
        self.slots.resume(now, "sync")
        self.slots.open(now)
        if self.in_flight == "switch":
            self.slots.switch(now)
        newer, self._newer = self._newer, None
        if newer is not None:
            self.publish(newer, now)
        self.slots.fill(now)

    def _send(self, now: float) -> None:
        if not self.seconds:
            self.arrive(now)
            return
        if self.blocking:
            self.slots.pause(now, "sync")
        self.until = now + self.seconds
