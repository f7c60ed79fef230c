"""Actors of language that are processes: what one does there, and how its groups come back."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..asynchronous.process_rollouts import ActorSettings, ProcessRollouts
from ..base.streams import seed_global_generators
from ..batch import Completions
from ..simulator.policy_buffer import PolicyBuffer, Version
from ..task import find_env
from .generation import Round
from .sampler import Seconds, concatenate
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask

if TYPE_CHECKING:
    from ..asynchronous.actor import WeightFeed


class Stretches(PolicyBuffer):
    """What a decoder takes for the buffer: "version" s is whatever is the newest when stretch s begins."""

    def __init__(self, feed: WeightFeed, length: int) -> None:
        """Stretches of `length` tokens."""
        super().__init__(1)
        self.feed, self.length = feed, length
        self.begun: list[Version] = []

    def __getitem__(self, stretch: int) -> Version:
        while len(self.begun) <= stretch:
            self.feed.step(len(self.begun) * self.length)
            self.begun.append(self.feed.buffer.newest)
        return self.begun[stretch]

    def __contains__(self, stretch: int) -> bool:
        return True


class LanguageActor:
    """An actor that completes prompts with whatever version is the newest."""

    def __init__(self, spec: LanguageSpec, number: int) -> None:
        task = find_env(spec.env)[1]()
        assert isinstance(task, LanguageTask)
        self.spec, self.number = spec, number
        seed_global_generators(spec.seed, "construct actor", number)
        self.sampler = prepare(spec, task).sampler

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        spec, sampler = self.spec, self.sampler
        seed_global_generators(spec.seed, "act", self.number, nth)
        length = spec.completion_tokens
        stretch = min(feed.load.fetch or length, length)
        stretches = Stretches(feed, stretch)
        asked = np.tile(np.arange(-(-length // stretch)), (spec.completions, 1))
        chosen = [sampler.problem(group)]
        request = sampler.request(chosen, [(nth, self.number)], asked, stretch)
        decoded = sampler.decoder.complete(request, stretches)
        acted = np.array([version.phase for version in stretches.begun])
        decoded = replace(decoded, version=torch.from_numpy(acted)[decoded.version])
        seconds = Seconds()
        made = sampler.grade(request, decoded, feed.buffer, chosen, np.zeros(1, np.int64), seconds)
        stream = io.BytesIO()
        torch.save({f.name: getattr(made, f.name) for f in fields(made)}, stream)
        return stream.getvalue(), made.mask.sum(1).long().tolist()


@dataclass(frozen=True)
class Opening:
    """Makes an actor in its own process."""

    spec: LanguageSpec

    def __call__(self, number: int) -> LanguageActor:
        return LanguageActor(self.spec, number)


class LanguageProcessRollouts(ProcessRollouts):
    """Processes as the source of a run's rounds."""

    def __init__(self, spec: LanguageSpec, pace: ActorSettings, preload: tuple[str, ...], pad: int) -> None:
        super().__init__(Opening(spec), spec, pace, preload)
        self.pad = pad

    def round(self, buffer: PolicyBuffer, phase: int) -> Round:
        contents, flow = self.take(buffer, phase)
        parts = []
        for place, content in enumerate(contents):
            made = Completions(**torch.load(io.BytesIO(content), weights_only=True))
            parts.append(replace(made, group=made.group + place))
        return Round(concatenate(parts, self.pad), flow.dropped.sequences // self.order.rows, flow)
