"""Whole runs on control that keep what they collected, consumed and stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from staleharness.batch import Rollout
from staleharness.control.action_distributions import Gaussian
from staleharness.control.functional_mlp import views_of
from staleharness.control.learner import ControlData
from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.control.task import ControlTask
from staleharness.task import find_env
from staleharness.training.policy_buffer import Version


class RecordedRun(ControlSimulation):
    """Keeps every version, every collected rollout and every consumed one."""

    def __init__(self, spec: ControlSpec, task: ControlTask) -> None:
        super().__init__(spec, task)
        self.versions: dict[int, Version] = {}
        self.collected: list[Rollout] = []
        self.consumed: list[Rollout] = []
        push, collect, train = self.buffer.push, self.actors.collect, self.learner.train

        def watched_push(version: Version) -> None:
            self.versions[version.phase] = version
            push(version)

        def watched_collect(*arguments: Any) -> Any:
            rows = collect(*arguments)
            self.collected.append(rows.rollout)
            return rows

        def watched_train(data: ControlData, phase: int) -> Any:
            self.consumed.append(data.rollout)
            return train(data, phase)

        self.buffer.push = watched_push  # type: ignore[method-assign]
        self.actors.collect = watched_collect  # type: ignore[method-assign]
        self.learner.train = watched_train  # type: ignore[method-assign]


def recording(spec: ControlSpec) -> RecordedRun:
    """A run that has not begun."""
    return RecordedRun(spec, find_env(spec.env)[1]())


def finish(spec: ControlSpec) -> RecordedRun:
    """A whole run."""
    simulation = recording(spec)
    for _ in simulation:
        pass
    return simulation


def logp_under(simulation: RecordedRun, version: Version, obs: Tensor, action: Tensor) -> Tensor:
    """log-probabilities [N] of one version alone, from its own weights and its own statistics."""
    *layers, log_std = views_of(version.tensors["actor"], simulation.policy.actor_shapes)
    x = ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-10, 10)
    for i in range(0, len(layers) - 2, 2):
        x = torch.tanh(torch.addmm(layers[i + 1], x, layers[i]))
    return Gaussian(len(log_std)).logp(action, torch.addmm(layers[-1], x, layers[-2]), log_std)


def collected_by(simulation: ControlSimulation) -> list[Rollout]:
    """Rollouts that the simulation collects from now on."""
    rollouts: list[Rollout] = []
    collect = simulation.actors.collect

    def collect_and_record(*arguments: Any) -> Any:
        rows = collect(*arguments)
        rollouts.append(rows.rollout)
        return rows

    simulation.actors.collect = collect_and_record  # type: ignore[method-assign]
    return rollouts
