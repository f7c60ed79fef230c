"""Small runs on control with the method that writes down what it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from small_specs import small_control
from torch import Tensor
from witness import MethodCalls

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
    for past in (seen.shown, seen.asked, seen.divergence, seen.told, seen.watched):
        past.clear()
    simulation = simulation_of(replace(SMALL, hyper=hyper or {}, **settings))
    seen.watch = lambda: simulation.policy.flat.detach().clone()
    metrics = [record.metrics for record in simulation]
    simulation.close()
    return metrics


def phases(seen: list[Any]) -> list[list[Any]]:
    """Recorded items, phase by phase."""
    size = len(seen) // PHASES
    return [seen[i : i + size] for i in range(0, len(seen), size)]


def places(d: Decisions, t: Trajectories) -> Tensor:
    """Index of each decision of the minibatch in the flat trajectories, by its behaviour log-probability."""
    at = {x: i for i, x in enumerate(t.behaviour_logp.flatten().tolist())}
    return torch.tensor([at[x] for x in d.behaviour_logp.flatten().tolist()])


def of(x: Tensor, t: Trajectories, d: Decisions) -> Tensor:
    """A column [B, T] of the trajectories at the decisions of a minibatch."""
    return x.flatten()[places(d, t)].view(d.advantage.shape)
