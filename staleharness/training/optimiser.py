"""Optimiser of every kind of task; gradients that a method changes, and those of its own state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

BETAS = (0.9, 0.999)


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) by torch's fused kernel, bit for bit `torch.optim.AdamW(fused=True)`.

    It leaves out that class's hooks, profiling and sorting into groups, which cost three times the step itself for a
    small network. A parameter without a gradient stays as it is.

    rate: the step size of the last step.
    """

    def __init__(self, parameters: Sequence[Tensor], rate: float, epsilon: float, weight_decay: float) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.epsilon, self.weight_decay = epsilon, weight_decay
        self.mean = [torch.zeros_like(p) for p in self.parameters]  # of the gradient
        self.square = [torch.zeros_like(p) for p in self.parameters]  # likewise of its square
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]

    def clip_and_step(self, limit: float, rate: float) -> Tensor:
        """Scale the gradients to a norm of at most `limit`, step along them; returns the norm before."""
        norm = clip_norm(self.parameters, limit)
        self.step(rate)
        return norm

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step along the gradients of the parameters."""
        self.rate = rate
        states = zip(self.parameters, self.mean, self.square, self.steps, strict=True)
        updates = [(p, p.grad, m, s, n) for p, m, s, n in states if p.grad is not None]
        if not updates:
            return
        parameters, gradients, means, squares, steps = (list(column) for column in zip(*updates, strict=True))
        adamw(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )

    def forget_gradients(self) -> None:
        for p in self.parameters:
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("mean", "square", "steps"):
            for tensor, content in zip(getattr(self, name), state[name], strict=True):
                tensor.copy_(content)


def ewma_update(shadow: Iterable[Tensor], parameters: Iterable[Tensor], weight: float, decay: float) -> float:
    """Move `shadow` (in place, without gradient) towards `parameters` after one gradient step; return W'.

    W' = βW + 1 and shadow' = (βW shadow + θ)/W' (Hilton et al. 2022, PPO-EWMA). Start with a copy of the
    parameters and W = 1: after n steps the shadow is Σ β^(n−i) θ_i / Σ β^(n−i), i = 0 … n. Its centre of mass
    lies 1/(1 − β) − 1 gradient steps back; β = 0 is the learner itself.
    """
    total = decay * weight + 1.0
    for mean, new in zip(shadow, parameters, strict=True):
        mean.detach().mul_(decay * weight / total).add_(new.detach(), alpha=1.0 / total)
    return total


def clip_norm(parameters: Sequence[Tensor], limit: float) -> Tensor:
    """Scale the gradients of `parameters` so that their norm together is at most `limit`; returns the norm before."""
    if len(parameters) > 1:
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    gradient = parameters[0].grad
    assert gradient is not None, "the loss depends on the parameters"
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
