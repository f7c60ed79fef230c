"""Forward and backward through the networks, written by hand, in memory that is reused.

For networks of this size, autograd spends most of a gradient step on its own dispatch. Here are the same operations in
the same order, so the gradient has autograd's bits; the tests hold the two side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from .networks import HALF_LOG_2PI

SIZES = 4  # numbers of rows that memory is held for; a phase has no more than two

_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class NetworkPass:
    """One network: `forward` remembers its activations, `backward` turns ∂L/∂output into ∂L/∂weights.

    weights: W, b, W, b, ...: views [in, out] and [out] of a flat vector.
    columns: a head with fewer outputs is computed as the first of this many (see `networks`).
    """

    def __init__(self, weights: Sequence[Tensor], columns: int = 1) -> None:
        self.weights, self.biases = weights[::2], weights[1::2]
        self.outputs = len(self.biases[-1])
        self.spare = max(0, columns - self.outputs)
        self.memory: dict[int, tuple[list[Tensor], list[Tensor]]] = {}  # by the number of rows
        self.inputs: list[Tensor] = []  # of each layer, in the last forward pass

    def forward(self, x: Tensor) -> Tensor:
        """The output [N, out] for inputs [N, in]."""
        if x.shape[0] not in self.memory:
            if len(self.memory) == SIZES:  # rows that are masked leave other numbers of them in each phase
                del self.memory[next(iter(self.memory))]
            self.memory[x.shape[0]] = self._empty(x), self._empty(x)
        hidden, _ = self.memory[x.shape[0]]
        self.inputs = [x, *hidden]
        for i, h in enumerate(hidden):
            torch.addmm(self.biases[i], self.inputs[i], self.weights[i], out=h).tanh_()
        weight, bias = self.weights[-1], self.biases[-1]
        if self.spare:
            weight, bias = pad(weight, (0, self.spare)), pad(bias, (0, self.spare))
        return torch.addmm(bias, self.inputs[-1], weight)[:, : self.outputs]

    def backward(self, pull: Tensor) -> list[Tensor]:
        """The gradients of the weights in their order, given ∂L/∂output [N, out] of the last forward pass."""
        _, back = self.memory[pull.shape[0]]
        weight = self.weights[-1]
        if self.spare:
            pull, weight = pad(pull, (0, self.spare)), pad(weight, (0, self.spare))
        gradients = [pull.sum(0)[: self.outputs], torch.mm(self.inputs[-1].t(), pull)[:, : self.outputs]]
        for i in range(len(back) - 1, -1, -1):
            pull = torch.mm(pull, weight.t(), out=back[i])
            _tanh_backward(pull, self.inputs[i + 1], grad_input=pull)
            gradients += [pull.sum(0), torch.mm(self.inputs[i].t(), pull)]
            weight = self.weights[i]
        return gradients[::-1]

    def _empty(self, x: Tensor) -> list[Tensor]:
        return [x.new_empty(x.shape[0], weight.shape[1]) for weight in self.weights[:-1]]


class GaussianPass:
    """log N(action; mean, σ) as `networks.gaussian_logp`, and its gradients."""

    def forward(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        """The joint log-probability [N] of actions [N, A] for means [N, A] and log σ [A]."""
        self.distance, self.precision = action - mean, (-log_std).exp()
        self.standard = self.distance * self.precision
        return (self.standard.square() * -0.5 - log_std - HALF_LOG_2PI).sum(-1)

    def backward(self, pull: Tensor, log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(∂L/∂mean [N, A], ∂L/∂log σ [A]), given ∂L/∂log π [N]. What pulls on log σ beside it, `log_std`, is added
        first, as autograd does."""
        wide = pull[:, None].expand_as(self.standard)
        falls = self.standard * wide  # −∂L/∂z
        of_shift = (-wide).sum(0) if log_std is None else log_std + (-wide).sum(0)
        return falls * self.precision, of_shift + (falls * self.distance).sum(0) * self.precision
