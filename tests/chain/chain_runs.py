"""Small runs on chains with the method that writes down what it is asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from witness import MethodCalls

from staleharness.chain.spec import ChainSpec
from staleharness.training.loop import simulation_of

PHASES, EPOCHS, GROUPS, BATCH, H = 4, 3, 4, 16, 6
STEPS = EPOCHS * GROUPS  # gradient steps of a phase: a minibatch is one group


def chains(**settings: Any) -> Any:
    """A small run that has not begun."""
    asked = {
        "env": "bit-chain",
        "algorithm": "witness",
        "horizon": H,
        "batch": BATCH,
        "epochs": EPOCHS,
        "capacity": 3,
        "minibatches": GROUPS,
        "steps": PHASES * STEPS,
        "learning_rate": 0.2,
        "start": 0.4,
        "evaluations": 2,
        **settings,
    }
    return simulation_of(ChainSpec.from_dict(asked))


def run(seen: MethodCalls, hyper: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The metrics of a whole run; the logits at each gradient step are what is watched."""
    for past in (seen.shown, seen.asked, seen.divergence, seen.told, seen.watched):
        past.clear()
    simulation = chains(hyper=hyper or {}, **settings)
    seen.watch = lambda: simulation.policy.logits.detach().clone()
    return [record.metrics for record in simulation]


def phases(seen: list[Any]) -> list[list[Any]]:
    """Recorded items, phase by phase."""
    size = len(seen) // PHASES
    return [seen[i : i + size] for i in range(0, len(seen), size)]


def logp(logits: Tensor, bits: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(torch.where(bits > 0, logits, -logits))
