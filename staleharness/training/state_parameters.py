"""Tensors of a method's state that are trained by gradients: learned duals, temperatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..algorithm import Algorithm
from ..errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, device


class StateParameters:
    """Adam on those tensors of `init_state` that require a gradient, one step along ∂(mean loss)/∂x for each of the
    learner's; nothing where there is none.

    tensors: by their names in the state. Raises `UserError` for a method whose gradient is taken row by row.
    """

    def __init__(self, algorithm: Algorithm, state: Mapping[str, Any], where: device, epsilon: float) -> None:
        self.rate = algorithm.state_learning_rate
        self.tensors: dict[str, Tensor] = {
            name: x.detach().clone().to(where).requires_grad_()
            for name, x in state.items()
            if getattr(x, "requires_grad", False)
        }
        if not self.tensors:
            return
        if algorithm.optimal_baseline:
            raise UserError(f"{algorithm.name}: a state is not trained where a method has an optimal baseline")
        from .optimiser import AdamW

        self.optimiser = AdamW(list(self.tensors.values()), 0.0, epsilon, 0.0)

    def step(self, rate: float) -> None:
        """One step along the gradients that the loss left, at the method's own rate or else at `rate`."""
        if self.tensors:
            self.optimiser.step(rate if self.rate is None else self.rate)

    def forget_gradients(self) -> None:
        if self.tensors:
            self.optimiser.forget_gradients()

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
