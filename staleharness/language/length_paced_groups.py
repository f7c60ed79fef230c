"""Groups of a pipeline in which a row's time is given by its length (pace=length): sampled once, as they begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ..pipeline_lag_model import PipelineLag
from ..rollout_schedule import Schedule
from ..rollout_schedule_checks import validate_schedule
from ..training.policy_buffer import PolicyBuffer
from .decoder_interface import Decoded, Request
from .sampler import Sampler, join_rows


class PacedGroups:
    """Simulates the pipeline anew in each phase, up to its batch: equal lengths give an equal schedule.

    A group is sampled when it begins, to know its lengths, and kept until it can no longer be trained on. With it are
    sampled the groups expected to begin with the same version: as many as began with the one before. Where one of them
    begins with another version, it is sampled again; its noise is that of its number.

    lengths: tokens of each row of a group, by its number. versions: the version it began with.
    completions: by group, for those that have begun and those that are expected to.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.spec = sampler, sampler.spec
        self.lengths: list[list[int]] = []
        self.versions: list[int] = []
        self.completions: dict[int, Decoded] = {}

    def schedule(self, model: PipelineLag, buffer: PolicyBuffer, phase: int) -> Schedule:
        """Simulate the pipeline up to the batch of `phase`, with the lengths of the run's own rows."""
        spec = self.spec
        oldest = phase - spec.capacity + 1
        self.completions = {g: d for g, d in self.completions.items() if _version(d) >= oldest}

        def lengths(group: int, version: int) -> list[int]:
            if version > phase:  # it begins after this phase has trained, so its lengths no longer matter
                return [spec.completion_tokens] * spec.completions
            if group == len(self.lengths):
                self._begin(group, version, buffer)
            return self.lengths[group]

        demand = replace(spec.demand, phases=phase + 1)
        schedule = model.schedule_by_length(demand, lengths)
        schedule = replace(schedule, actor=np.zeros_like(schedule.group), nth=schedule.group)
        schedule = validate_schedule(schedule, demand, f"LAG={model.text}")
        schedule.check_capacity(spec.capacity, f"LAG={model.text}", model.longest)
        return schedule

    def _begin(self, group: int, version: int, buffer: PolicyBuffer) -> None:
        """Note the lengths of a new group."""
        if group not in self.completions or _version(self.completions[group]) != version:
            phase_groups = self.spec.minibatches * self.spec.prompts
            before = self.versions.count(self.versions[-1]) if self.versions else phase_groups
            self._sample(range(group, group + min(phase_groups, before)), version, buffer)
        self.lengths.append(self.completions[group].mask.sum(1).long().tolist())
        self.versions.append(version)

    def _sample(self, groups: Sequence[int], version: int, buffer: PolicyBuffer) -> None:
        spec, sampler = self.spec, self.sampler
        versions = np.full((len(groups) * spec.completions, 1), version)
        problems, keys = [sampler.problem(group) for group in groups], [(group, 0) for group in groups]
        request = sampler.request(problems, keys, versions, spec.completion_tokens)
        decoded = sampler.decode(request, buffer)
        for i, group in enumerate(groups):
            self.completions[group] = _rows(decoded, slice(i * spec.completions, (i + 1) * spec.completions))

    def answer(self, groups: Sequence[int], request: Request) -> Decoded | None:
        """Return the completions of these groups, as the decoder's answer to a request for their rows; None where they
        are absent, as with another pace, or after resuming an earlier release's checkpoint."""
        if not all(group in self.completions for group in groups):
            return None
        parts = [self.completions[group] for group in groups]
        decoded = join_rows(parts, self.sampler.decoder.policy.pad, request.prompt.shape[1])
        return replace(decoded, version=request.version(decoded.token.shape[1]))

    def state_dict(self) -> dict[str, Any]:
        return {
            "known": [list(row_lengths) for row_lengths in self.lengths],
            "versions": list(self.versions),
            "completions": {group: dict(vars(decoded)) for group, decoded in self.completions.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lengths = [list(row_lengths) for row_lengths in state["known"]]
        self.versions = list(state.get("versions", []))
        device, contents = self.sampler.decoder.policy.device, state.get("completions", {}).items()
        self.completions = {g: _map_tensors(Decoded(**content), lambda x: x.to(device)) for g, content in contents}


def _version(decoded: Decoded) -> int:
    """Return the version of all tokens of a group."""
    return int(decoded.version.flatten()[0])


def _rows(decoded: Decoded, rows: slice) -> Decoded:
    """Return copies of some rows, as wide as the longest of them."""
    excess = decoded.mask.shape[1] - max(1, int(decoded.mask[rows].sum(1).max()))
    return _map_tensors(decoded, lambda x: (x[rows] if x.ndim == 1 else x[rows][:, : x.shape[1] - excess]).clone())


def _map_tensors(decoded: Decoded, change: Callable[[Tensor], Tensor]) -> Decoded:
    """Return completions with every tensor changed."""
    return replace(decoded, **{name: change(x) for name, x in vars(decoded).items() if x is not None})
