"""Actors that make nothing but what tests look at; importable, so that they can be sent to a process."""

from __future__ import annotations

import os
import pickle
import signal
import time
from dataclasses import dataclass, replace

import torch

from staleharness.asynchronous.actor_process import WeightFeed
from staleharness.errors import Diverged, UserError
from staleharness.training.policy_buffer import Version

LENGTH = 5
ERRORS = {"mistake": UserError, "not finite": Diverged, "no memory": MemoryError}


def version(phase: int, size: int = 8) -> Version:
    """One whose every number is its phase."""
    tensors = {
        "weights": torch.full((size,), float(phase)),
        "count": torch.full((3, 1), phase),
        "flag": torch.full((5,), phase % 2 == 1),
    }
    return Version(phase, 10 * phase, tensors)


@dataclass(frozen=True)
class Toy:
    """Rows of `LENGTH` decisions; says what it was asked and which weights it had. It may end in several ways."""

    seconds: float = 0.0  # of a decision
    # a key of `ERRORS`, "raise", "no file", "exit", "never opens", "killed" (number 0, in its first group), "waits"
    end: str = ""
    number: int = -1

    def __call__(self, number: int) -> Toy:
        if self.end == "never opens":
            os._exit(3)
        return replace(self, number=number)

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        acted = []
        for t in range(LENGTH):
            if self.end == "killed" and self.number == 0:
                self._wait(t, feed)
            if self.end == "waits" and nth == 1 and t == 3:  # until the version that it began with is not the newest
                self._wait(t, feed, feed.versions[-1] + 1)
            feed.step(t)
            if self.end == "killed" and self.number == 0 and t == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            acted.append(float(feed.buffer.newest.tensors["weights"][0]))
            time.sleep(self.seconds)
        if self.end == "raise" and nth == 2:
            raise ValueError("the floor is wet")
        if self.end in ERRORS:
            raise ERRORS[self.end](f"{self.end}: see above")
        if self.end == "no file":
            raise FileNotFoundError("no floor")
        if self.end == "exit" and nth == 2:
            os._exit(1)
        return pickle.dumps((group, nth, acted, os.getpid())), [LENGTH, LENGTH - 2]

    def _wait(self, t: int, feed: WeightFeed, phase: int | None = None) -> None:
        """For version t, or another, before decision t; meanwhile t decisions are made."""
        feed.counter.reach([t] * feed.counter.rows)
        while feed.weights.newest_phase < (t if phase is None else phase):
            feed.wait(t)
            time.sleep(0.001)
