"""The trainer: a batch, a step, a new version."""

from __future__ import annotations

from math import inf
from typing import Literal

from ..base.streams import stream
from .settings import Pipeline

State = Literal["waiting", "training", "syncing", "down"]


class Trainer:
    """Where the trainer stands. `until` is when that ends by itself."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.step_seconds, self.token_seconds = pipeline.train_seconds, pipeline.train_token_seconds
        self.mtbf, self.restart = pipeline.trainer_mtbf, pipeline.trainer_restart
        self.rng = stream(seed, "pipeline-trainer")
        self.version = 0  # steps made
        self.state: State = "waiting"
        self.until = inf
        self.spans: list[tuple[float, float, str]] = []  # begin, end, state
        self.since = 0.0  # when the state was entered
        self._needs = 0.0  # seconds of the step under way
        self._lasts = self._lifetime()  # seconds of training until the next failure

    def train(self, tokens: int, now: float) -> None:
        """Begin a step on a batch of `tokens` decisions."""
        self._needs = self.step_seconds + self.token_seconds * tokens
        self._begin(now)

    def finish(self, now: float) -> Literal["step", "failed", "restarted"]:
        """What happened at `until`: a step is made, or a failure came first, or the restart after it is over."""
        if self.state == "down":
            self._lasts = self._lifetime()
            self._begin(now)
            return "restarted"
        if self._lasts < self._needs:
            self.enter("down", now, now + self.restart)
            return "failed"
        self._lasts -= self._needs
        self.version += 1
        self.enter("waiting", now)
        return "step"

    def enter(self, state: State, now: float, until: float = inf) -> None:
        if now > self.since:
            self.spans.append((self.since, now, self.state))
        self.state, self.until, self.since = state, until, now

    def _begin(self, now: float) -> None:
        self.enter("training", now, now + min(self._needs, self._lasts))

    def _lifetime(self) -> float:
        return inf if self.mtbf is None else float(self.rng.exponential(self.mtbf))
