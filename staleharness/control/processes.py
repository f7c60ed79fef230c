"""Actors of control that are processes: what each does, and how its groups come back."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..asynchronous.processes import Pace, Processes
from ..simulator.buffer import PolicyBuffer
from ..task import find_env
from .crew import Actor, Consumed, as_group, as_plain, consumed
from .spec import ControlSpec

if TYPE_CHECKING:
    from ..asynchronous.actor import Feed


class ControlActor:
    """An actor that acts with whatever version is the newest."""

    def __init__(self, spec: ControlSpec, number: int) -> None:
        task: Any = find_env(spec.env)[1]()
        self.actor = Actor(spec, task, None, number)
        self.size = spec.envs_per_actor
        self.lengths = [spec.num_steps] * self.size

    def make(self, group: int, nth: int, feed: Feed) -> tuple[bytes, list[int]]:
        def versions(t: int, done: NDArray[np.bool_]) -> NDArray[np.int64] | None:
            version = feed.step(t)
            return None if version is None else np.full(self.size, version)

        made = self.actor.make(feed.buffer, nth, versions)
        stream = io.BytesIO()
        torch.save(as_plain(made), stream)
        return stream.getvalue(), self.lengths


@dataclass(frozen=True)
class Opening:
    """Makes an actor in its own process."""

    spec: ControlSpec

    def __call__(self, number: int) -> ControlActor:
        return ControlActor(self.spec, number)


class ControlProcesses(Processes):
    """Processes as the source of a run's rows."""

    def __init__(self, spec: ControlSpec, pace: Pace, preload: tuple[str, ...]) -> None:
        super().__init__(Opening(spec), spec, pace, preload)

    def collect(self, buffer: PolicyBuffer, phase: int) -> Consumed:
        contents, flow = self.take(buffer, phase)
        groups = [torch.load(io.BytesIO(content), weights_only=True) for content in contents]
        return consumed([as_group(plain) for plain in groups], flow)
