"""Small runs on control with the method that writes down what it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from small_specs import small_control
from torch import Tensor
from witness import MethodCalls
from witness import phases as phases

from staleharness.batch import Decisions, Trajectories
from staleharness.training.loop import simulation_of

EPOCHS, PARTS, ENVS, STEPS, PHASES = 3, 2, 6, 40, 4
N = ENVS * STEPS
SMALL = small_control(
    PHASES,
    ENVS,
    STEPS,
    algorithm="witness",
    capacity=3,
    epochs=EPOCHS,
    minibatches=PARTS,
    learning_rate=3e-3,
    anneal_learning_rate=False,
    threads=1,
)


def run(seen: MethodCalls, hyper: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The metrics of a whole run."""
    simulation = simulation_of(replace(SMALL, hyper=hyper or {}, **settings))
    return seen.watch_run(simulation, lambda: simulation.policy.flat.detach().clone())


def places(d: Decisions, t: Trajectories) -> Tensor:
    """Index of each decision of the minibatch in the flat trajectories, by its behaviour log-probability."""
    at = {x: i for i, x in enumerate(t.behaviour_logp.flatten().tolist())}
    return torch.tensor([at[x] for x in d.behaviour_logp.flatten().tolist()])


def of(x: Tensor, t: Trajectories, d: Decisions) -> Tensor:
    """A column [B, T] of the trajectories at the decisions of a minibatch."""
    return x.flatten()[places(d, t)].view(d.advantage.shape)
