"""Whole runs on control that keep what they collected, consumed and stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from staleharness.batch import Rollout
from staleharness.control.learner import ControlData
from staleharness.control.networks import gaussian_logp, views_of
from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.control.task import ControlTask
from staleharness.simulator.policy_buffer import Version
from staleharness.task import find_env


class Watched(ControlSimulation):
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


def watched(spec: ControlSpec) -> Watched:
    """A run that has not begun."""
    return Watched(spec, find_env(spec.env)[1]())


def played(spec: ControlSpec) -> Watched:
    """A whole run."""
    simulation = watched(spec)
    for _ in simulation:
        pass
    return simulation


def logp_under(simulation: Watched, version: Version, obs: Tensor, action: Tensor) -> Tensor:
    """log-probabilities [N] of one version alone, from its own weights and its own statistics."""
    *layers, log_std = views_of(version.tensors["actor"], simulation.policy.actor_shapes)
    x = ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-10, 10)
    for i in range(0, len(layers) - 2, 2):
        x = torch.tanh(torch.addmm(layers[i + 1], x, layers[i]))
    return gaussian_logp(action, torch.addmm(layers[-1], x, layers[-2]), log_std)


def collected_by(simulation: ControlSimulation) -> list[Rollout]:
    """What the simulation collects from now on, as it comes."""
    rollouts: list[Rollout] = []
    collect = simulation.actors.collect

    def kept(*arguments: Any) -> Any:
        rows = collect(*arguments)
        rollouts.append(rows.rollout)
        return rows

    simulation.actors.collect = kept  # type: ignore[method-assign]
    return rollouts
