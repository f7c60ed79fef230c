"""Gradients that a method changes or trains by: the hook for successive gradients, and its own parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..errors import UserError
from .hook_checks import gradient_of
from .optimiser import AdamW


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
            raise UserError(f"{algorithm.name}: a state is not trained where a method has an optimal baseline")
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
