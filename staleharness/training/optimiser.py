"""Optimiser of every kind of task; gradients that a method changes, and those of its own state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ..algorithm import Algorithm
from ..errors import UserError
from .hook_checks import gradient_of

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
        """Scale the gradients to a norm of at most `limit` and step along them; returns the unscaled norm."""
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

    def zero_grad(self) -> None:
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
    """Scale the gradients of `parameters` so that their joint norm is at most `limit`; returns the unscaled norm."""
    if len(parameters) > 1:
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    gradient = parameters[0].grad
    assert gradient is not None, "the loss depends on the parameters"
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


class SuccessiveGradients:
    """Policy's gradient [P] of the previous step, before the method changed it (None before the first step), and the
    cosine of the newest gradient with it."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.previous: Tensor | None = None
        self.cosine: Tensor | None = None

    def change(self, gradients: Sequence[Tensor]) -> None:
        """Replace the gradients by those that the method returns; the first step's stay as they are."""
        with torch.no_grad():
            now = torch.cat([gradient.flatten() for gradient in gradients])
            previous, self.previous = self.previous, now
            if previous is None:
                self.cosine = now.new_zeros(())
                return
            self.cosine = torch.nn.functional.cosine_similarity(previous, now, dim=0)
            parts = gradient_of(self.algorithm, previous, now).split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


class StateParameters:
    """Adam on the tensors of `init_state` that require a gradient: one step along ∂(mean loss)/∂x at each step of the
    learner. Does nothing where there are none.

    tensors: by their names in the state. Raises `UserError` for a method whose gradient is taken row by row.
    """

    def __init__(self, algorithm: Algorithm, state: Mapping[str, Any], epsilon: float) -> None:
        self.rate = algorithm.state_learning_rate
        self.tensors: dict[str, Tensor] = {
            name: x.detach().clone().requires_grad_() for name, x in state.items() if getattr(x, "requires_grad", False)
        }
        if self.tensors and algorithm.optimal_baseline:
            raise UserError(
                f"{algorithm.name}: a method with an optimal baseline cannot train its state; make it without "
                "requires_grad=True"
            )
        self.optimiser = AdamW(list(self.tensors.values()), 0.0, epsilon, 0.0)

    def step(self, rate: float) -> None:
        """Take one step along the gradients that the loss left, at the method's own rate or else at `rate`."""
        self.optimiser.step(rate if self.rate is None else self.rate)

    def state_dict(self) -> dict[str, Any]:
        if not self.tensors:
            return {}
        return {
            "tensors": {name: x.detach() for name, x in self.tensors.items()},
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, x in self.tensors.items():
            x.data.copy_(state["tensors"][name])
        if self.tensors:
            self.optimiser.load_state_dict(state["optimiser"])
