"""Warnings of mechanisms that cannot act under a run's settings, and of losses that ignore its mismatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algorithm import Algorithm
from ..batch import Decisions
from ..mismatch import NONE
from ..spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor


def warnings_of(algorithm: Algorithm, spec: RunSpec) -> list[str]:
    """Return the warnings of a method under a run's settings."""
    updates = spec.epochs * spec.minibatches
    lines = [blindness(algorithm, spec), idle_correction(algorithm, spec)]
    if spec.capacity > 1 or updates > 1:  # otherwise no data are stale
        lines.append(algorithm.inactive(updates))
    return [line for line in lines if line is not None]


def idle_correction(algorithm: Algorithm, spec: RunSpec) -> str | None:
    """Return a warning where a weight corrects the sampler's engine alone, and the trainer's own policy samples."""
    sampler_differs = spec.mismatch != NONE or spec.behaviour == "sampler" or getattr(spec, "kv_cache", "") == "keep"
    if getattr(algorithm, "correct", "all") != "engine" or sampler_differs:
        return None
    return f"{algorithm.name}: without MISMATCH the version itself samples, so that with correct=engine its weight is 1"


def blindness(algorithm: Algorithm, spec: RunSpec) -> str | None:
    """Return a warning where the loss ignores the run's mismatch; None otherwise."""
    if spec.mismatch == NONE or not (spec.behaviour == "version" or ignores_behaviour(algorithm)):
        return None
    reason = "behaviour=version" if spec.behaviour == "version" else "its loss does not depend on μ"
    return f"{algorithm.name} is blind to MISMATCH={spec.mismatch}, which changes its data alone: {reason}"


def ignores_behaviour(algorithm: Algorithm) -> bool:
    """Return whether a method's gradient is the same whatever μ is; False where its loss
    fails on this example."""
    import torch

    def loss_gradient(drift: float) -> Tensor:
        target = -1.0 - torch.arange(8.0).reshape(2, 4) / 8.0
        target.requires_grad_()
        behaviour = target.detach() + drift * torch.tensor([1.0, -0.5, 0.5, -0.25])
        ones = torch.ones_like(behaviour)
        at_behaviour = algorithm.proximal == "behaviour"
        decisions = Decisions(
            target_logp=target,
            behaviour_logp=behaviour,
            proximal_logp=behaviour if at_behaviour else target.detach() + 0.1,
            advantage=ones * torch.tensor([1.0, 1.0, -1.0, -1.0]),
            lag=ones,
            gradient_lag=ones,
            mask=ones,
            state=algorithm.init_state(),
            group=torch.zeros(2, dtype=torch.int64),
            outcome=torch.tensor([1.0, 0.0]),
            logit_norm=0.5 * ones,
            reference_logp=target.detach() + 0.2,
            version_logp=target.detach() + 0.15,
        )
        (gradient,) = torch.autograd.grad(algorithm.policy_loss(decisions).loss.sum(), target)
        return gradient

    try:
        return all(torch.equal(loss_gradient(0.0), loss_gradient(drift)) for drift in (0.05, 1.0, -1.0))
    except Exception:
        return False
