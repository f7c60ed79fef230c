"""Rounds of a pipeline whose rows take as long as their completions are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..pipeline_lag import PipelineLag
from ..schedule import Ints
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.run_lags import Lags
from .generation import Round
from .planned import Planned
from .sampler import Sampler, Seconds


class Paced(Planned):
    """A pipeline that is simulated as the run goes on, up to the batch of each phase, from the beginning every time:
    with the same lengths the same happens again.

    A group is sampled when it begins, to know its lengths, and again with the batch that trains on it; its noise is
    that of its number. What was asked once is kept, and goes from phase to phase.
    """

    def __init__(self, sampler: Sampler, lags: Lags) -> None:
        self.sampler, self.spec, self.lags = sampler, sampler.spec, lags
        self.known: list[list[int]] = []  # tokens of each row of a group, by its number

    def round(self, buffer: PolicyBuffer, phase: int) -> Round:
        spec, model, seconds = self.spec, cast(PipelineLag, self.lags.model), Seconds()

        def lengths(group: int, version: int) -> list[int]:
            if version > phase:  # it begins once this phase has trained, when nobody looks any more
                return [spec.completion_tokens] * spec.completions
            if group == len(self.known):
                self.known.append(self._sampled(group, version, buffer, seconds))
            return self.known[group]

        demand = replace(spec.demand, phases=phase + 1)
        plan = model.schedule_by_length(demand, lengths)
        group = plan.group
        self.schedule = self.lags.schedule = replace(plan, actor=np.zeros_like(group), nth=group)
        self.schedule.check(demand, spec.capacity, f"LAG={model.text}", model.longest)
        made = super().round(buffer, phase)
        made.seconds.generate += seconds.generate
        return made

    def _lengths(self, buffer: PolicyBuffer, phase: int, seconds: Seconds) -> Ints | None:
        return None  # the schedule has them from here

    def _sampled(self, group: int, version: int, buffer: PolicyBuffer, seconds: Seconds) -> list[int]:
        """Tokens of each completion of a group, by one version."""
        versions = np.full((self.spec.completions, 1), version)
        length = self.spec.completion_tokens
        request = self.sampler.request([self.sampler.problem(group)], [(group, 0)], versions, length)
        found: list[int] = self.sampler.decode(request, buffer, seconds).mask.sum(1).long().tolist()
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"known": [list(each) for each in self.known]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = [list(each) for each in state["known"]]
