"""Weighted sums and norms of the gradients of single rows, without ever holding such a gradient whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class RowGradients:
    """Two running sums of the gradients g_i that backward passes bring, and ‖g_i‖² of the latest.

    Each parameter's part is taken as soon as the pass has it, while it is in the cache, and then freed. So beside
    `total`, which plain training has as well, one more gradient is held and not three.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.total = [torch.zeros_like(p) for p in parameters]  # what becomes the gradient of the step
        self.group = [torch.zeros_like(p) for p in parameters]  # of the group under way
        self.squared_norm = torch.zeros((), device=parameters[0].device)
        self._coefficients = 0.0, 0.0

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """While it lasts, gradients go into the sums and none stays with a parameter."""
        handles = [
            p.register_post_accumulate_grad_hook(lambda p, i=i: self._take(i, p))
            for i, p in enumerate(self.parameters)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def next_row(self, in_total: float, in_group: float) -> None:
        """The coming backward pass is of a row with these coefficients in the two sums."""
        self._coefficients = in_total, in_group
        self.squared_norm.zero_()

    def _take(self, i: int, p: Tensor) -> None:
        assert p.grad is not None
        in_total, in_group = self._coefficients
        g, p.grad = p.grad, None
        self.squared_norm += torch.linalg.vector_norm(g).square()
        if in_total:  # half of the rewards are 0
            self.total[i].add_(g, alpha=in_total)
        self.group[i].add_(g, alpha=in_group)

    def end_group(self, coefficient: float) -> None:
        """total += coefficient · group, and the next group begins."""
        torch._foreach_add_(self.total, self.group, alpha=coefficient)
        torch._foreach_zero_(self.group)
