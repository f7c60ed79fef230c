"""Gradients of successive steps, for a method that changes the second of them (`Algorithm.gradient`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plugin_checks import gradient_of

if TYPE_CHECKING:
    from torch import Tensor

    from ..algorithm import Algorithm


class SuccessiveGradients:
    """Policy's gradient of the last step [P] as the loss gave it, None before the first, and the cosine with it."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.previous: Tensor | None = None
        self.cosine: Tensor | None = None

    def change(self, gradients: Sequence[Tensor]) -> None:
        """Put what the method makes of the gradients in their place; those of the first step stay."""
        import torch

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
