"""The networks of control as functions: a tanh network each for actor and critic, as in CleanRL, and a Gaussian on top.

Weights are kept [in, out]. In that layout, with at least `MIN_ROWS` rows and two columns, one row of a batched
product has the same bits whatever else is in the batch, on CPU: so K versions acting at once, a single version
acting alone, and the learner's minibatch all agree exactly, and w is 1 where the policies are the same.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

MIN_ROWS = 16  # smaller products take another path through BLAS and round differently
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def gaussian_logp(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(action; mean, σ) summed over the last axis: the joint log-probability of independent dimensions."""
    return (((action - mean) * (-log_std).exp()).square() * -0.5 - log_std - HALF_LOG_2PI).sum(-1)


def gaussian_kl(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """KL[N(mean, σ) ‖ N(other_mean, other_σ)] summed over the last axis."""
    ratio = (2.0 * (log_std - other_log_std)).exp()
    shift = ((mean - other_mean) * (-other_log_std).exp()).square()
    return (0.5 * (ratio + shift - 1.0) + other_log_std - log_std).sum(-1)


def means(parameters: list[Tensor], x: Tensor) -> Tensor:
    """The actor's means; a single action dimension is computed as one of two columns (see the module's docstring)."""
    *layers, weight, bias = parameters
    if weight.shape[-1] > 1:
        return network(parameters, x)
    pad = torch.nn.functional.pad
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
