"""The networks of control as functions: a tanh network each for actor and critic, as in CleanRL.

Weights are kept [in, out]. In that layout, with at least `MIN_ROWS` rows and two columns, one row of a batched
product has the same bits whatever else is in the batch, on CPU: so K versions acting at once, a single version
acting alone, and the learner's minibatch all agree exactly, and w is 1 where the policies are the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

MIN_ROWS = 16  # smaller products take another path through BLAS and round differently


def means(parameters: list[Tensor], x: Tensor) -> Tensor:
    """The actor's means; a single action dimension is computed as one of two columns (see the module's docstring)."""
    *layers, weight, bias = parameters
    if weight.shape[-1] > 1:
        return network(parameters, x)
    return network([*layers, pad(weight, (0, 1)), pad(bias, (0, 1))], x)[..., :1]


def network(parameters: list[Tensor], x: Tensor) -> Tensor:
    """tanh layers and a linear head: x [N, in] with weights [in, out]."""
    for i in range(0, len(parameters) - 2, 2):
        x = torch.addmm(parameters[i + 1], x, parameters[i]).tanh()
    return torch.addmm(parameters[-1], x, parameters[-2])


def layer_shapes(widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes of weights [in, out] and biases [out], layer after layer."""
    return [shape for a, b in itertools.pairwise(widths) for shape in ((a, b), (b,))]


def views_of(flat: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Parameters as views of a flat vector [P], or of a stack of them [K, P] (biases then [K, 1, out])."""
    views, start = [], 0
    for shape in shapes:
        piece = flat[..., start : start + math.prod(shape)]
        if flat.dim() == 1:
            views.append(piece.view(shape))
        else:
            views.append(piece.unflatten(-1, shape if len(shape) == 2 else (1, *shape)))
        start += math.prod(shape)
    return views


SIZES = 4  # row counts that buffers are kept for; a phase has no more than two

_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class NetworkPass:
    """One network: `forward` remembers its activations, `backward` turns ∂L/∂output into ∂L/∂weights.

    weights: W, b, W, b, ...: views [in, out] and [out] of a flat vector.
    columns: a head with fewer outputs is computed as the first of this many (see the module's docstring).
    """

    def __init__(self, weights: Sequence[Tensor], columns: int = 1) -> None:
        self.weights, self.biases = weights[::2], weights[1::2]
        self.outputs = len(self.biases[-1])
        self.spare = max(0, columns - self.outputs)
        self.memory: dict[int, tuple[list[Tensor], list[Tensor]]] = {}  # hidden, gradients, by row count
        self.inputs: list[Tensor] = []  # of each layer, in the last forward pass

    def forward(self, x: Tensor) -> Tensor:
        """The output [N, out] for inputs [N, in]."""
        if x.shape[0] not in self.memory:
            if len(self.memory) == SIZES:  # masked rows make the row count differ from phase to phase
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

    def backward(self, gradient: Tensor) -> list[Tensor]:
        """The gradients of the weights in their order, given ∂L/∂output [N, out] of the last forward pass."""
        _, hidden_gradients = self.memory[gradient.shape[0]]
        weight = self.weights[-1]
        if self.spare:
            gradient, weight = pad(gradient, (0, self.spare)), pad(weight, (0, self.spare))
        gradients = [gradient.sum(0)[: self.outputs], torch.mm(self.inputs[-1].t(), gradient)[:, : self.outputs]]
        for i in range(len(hidden_gradients) - 1, -1, -1):
            gradient = torch.mm(gradient, weight.t(), out=hidden_gradients[i])
            _tanh_backward(gradient, self.inputs[i + 1], grad_input=gradient)
            gradients += [gradient.sum(0), torch.mm(self.inputs[i].t(), gradient)]
            weight = self.weights[i]
        return gradients[::-1]

    def _empty(self, x: Tensor) -> list[Tensor]:
        return [x.new_empty(x.shape[0], weight.shape[1]) for weight in self.weights[:-1]]


def value_loss(value: Tensor, target: Tensor, start: Tensor, clip: float, coef: float) -> tuple[Tensor, Tensor]:
    """½ E (V − v)² [], and the gradient with respect to V [N] of `coef` times that.

    With `clip` above 0 it is CleanRL's form: the larger of this and the same for V kept within `clip` of `start`, the
    learner's value at the start of the phase. Where both are equal, each contributes half of the gradient.
    """
    slope = value.new_tensor(coef) / value.shape[0]  # divided in the tensors' precision, as autograd does
    error = value - target
    loss, gradient = error.square(), error * slope
    if clip > 0:
        change = value - start
        clipped_change = change.clamp(-clip, clip)
        clipped_error = start + clipped_change - target
        clipped_loss = clipped_error.square()
        share = torch.add(0.5, (loss - clipped_loss).sign(), alpha=0.5)  # 1, ½ or 0: is `loss` the larger one?
        gradient = gradient * share + clipped_error * slope * (clipped_change == change) * (1.0 - share)
        loss = torch.maximum(loss, clipped_loss)
    return 0.5 * loss.mean(), gradient
