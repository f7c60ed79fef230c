"""Small runs on chains with the method that writes down what it is asked."""

from __future__ import annotations

from typing import Any

import torch
from small_specs import small_chain
from torch import Tensor
from witness import MethodCalls
from witness import phases as phases

from staleharness.training.loop import simulation_of

PHASES, EPOCHS, GROUPS, BATCH, H = 4, 3, 4, 16, 6
STEPS = EPOCHS * GROUPS  # gradient steps of a phase: a minibatch is one group


def chains(**settings: Any) -> Any:
    """A small run that has not begun."""
    usual = {"steps": PHASES * STEPS, "batch": BATCH, "epochs": EPOCHS, "minibatches": GROUPS, "algorithm": "witness"}
    return simulation_of(small_chain(**{**usual, "learning_rate": 0.2, "evaluations": 2, **settings}))


def run(seen: MethodCalls, hyper: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The metrics of a whole run; the logits at each gradient step are what is watched."""
    simulation = chains(hyper=hyper or {}, **settings)
    return seen.watch_run(simulation, lambda: simulation.policy.logits.detach().clone())


def logp(logits: Tensor, bits: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(torch.where(bits > 0, logits, -logits))
