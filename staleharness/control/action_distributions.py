"""Distributions of actions: normals over vectors of real numbers, or a categorical over a few choices.

Both read the output of the actor's network (`mean` everywhere: the means of normals, or the logits of choices) and
log σ, a separate parameter (empty for choices).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    import gymnasium


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
WIDE = 20.0  # between bounds: a policy of deviation 1 takes very long to reach both


class Gaussian:
    """Independent normals, with one log σ for all states: actions [N, columns], given a network's output [N, outputs]
    and log σ [deviations]."""

    def __init__(self, dimensions: int) -> None:
        self.columns = self.outputs = self.deviations = dimensions

    def noise(self, rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
        """Return the noise [*shape, outputs] of `act`; zeros give the likeliest action."""
        return rng.standard_normal((*shape, self.outputs), np.float32)

    def act(self, mean: Tensor, std: Tensor, noise: Tensor) -> Tensor:
        return mean + std * noise

    def logp(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        """The log-probability [...] of actions [..., columns]."""
        return (((action - mean) * (-log_std).exp()).square() * -0.5 - log_std - HALF_LOG_2PI).sum(-1)

    def kl(self, mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
        """KL[this ‖ other] of each state, in closed form."""
        ratio = (2.0 * (log_std - other_log_std)).exp()
        shift = ((mean - other_mean) * (-other_log_std).exp()).square()
        return (0.5 * (ratio + shift - 1.0) + other_log_std - log_std).sum(-1)

    def entropies(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """[...] of each state, for log σ of each state [..., deviations]."""
        return (log_std + (0.5 + HALF_LOG_2PI)).sum(-1)

    def entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """[], the mean over states."""
        return (log_std + (0.5 + HALF_LOG_2PI)).sum()

    def forward(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        """`logp` [N], storing what `backward` and `add_entropy` need; log σ [deviations] of all states."""
        self.distance, self.precision = action - mean, (-log_std).exp()
        self.standard = self.distance * self.precision
        return (self.standard.square() * -0.5 - log_std - HALF_LOG_2PI).sum(-1)

    def backward(self, gradient: Tensor, grad_log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(∂L/∂mean, ∂L/∂log σ), given ∂L/∂log π [N]. A further gradient of log σ, `grad_log_std`, is added first, as
        autograd does."""
        wide = gradient[:, None].expand_as(self.standard)
        minus_of_z = self.standard * wide  # −∂L/∂z, of the standardised z
        grad_shift = (-wide).sum(0) if grad_log_std is None else grad_log_std + (-wide).sum(0)
        return minus_of_z * self.precision, grad_shift + (minus_of_z * self.distance).sum(0) * self.precision

    def add_entropy(self, grad_mean: Tensor, grad_log_std: Tensor, gradient: Tensor | float) -> None:
        """Add the entropy's gradients to ∂L/∂mean and ∂L/∂log σ, in place, given ∂L/∂entropy []."""
        grad_log_std += gradient


class Categorical:
    """One of a few choices, recorded as its number, from 0; methods are as in `Gaussian`."""

    columns, deviations = 1, 0

    def __init__(self, choices: int) -> None:
        self.outputs = choices

    def noise(self, rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
        return rng.gumbel(size=(*shape, self.outputs)).astype(np.float32)

    def act(self, mean: Tensor, std: Tensor, noise: Tensor) -> Tensor:
        """The argmax of logits plus Gumbel noise, which is a draw from their softmax."""
        return (mean + noise).argmax(-1, keepdim=True).to(mean.dtype)

    def logp(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        return mean.log_softmax(-1).gather(-1, action.long()).squeeze(-1)

    def kl(self, mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
        logp = mean.log_softmax(-1)
        return (logp.exp() * (logp - other_mean.log_softmax(-1))).sum(-1)

    def entropies(self, mean: Tensor, log_std: Tensor) -> Tensor:
        logp = mean.log_softmax(-1)
        return -(logp.exp() * logp).sum(-1)

    def entropy(self, mean: Tensor, log_std: Tensor) -> Tensor:
        return self.entropies(mean, log_std).mean()

    def forward(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        self.choice, self.all_logp = action.long(), mean.log_softmax(-1)
        return self.all_logp.gather(-1, self.choice).squeeze(-1)

    def backward(self, gradient: Tensor, grad_log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
        grad_logits = -self.all_logp.exp() * gradient[:, None]
        return grad_logits.scatter_add_(1, self.choice, gradient[:, None]), gradient.new_zeros(0)

    def add_entropy(self, grad_mean: Tensor, grad_log_std: Tensor, gradient: Tensor | float) -> None:
        p = self.all_logp.exp()
        entropy = -(p * self.all_logp).sum(-1, keepdim=True)
        grad_mean -= gradient / len(grad_mean) * p * (self.all_logp + entropy)


Distribution = Gaussian | Categorical


def distribution_of(env: gymnasium.vector.VectorEnv) -> Distribution:
    """Return the distribution for the action space of a vector of environments: a Box, or Discrete."""
    space: Any = env.single_action_space
    return Categorical(int(space.n)) if hasattr(space, "n") else Gaussian(int(np.prod(space.shape or ())))


def action_converter(env: gymnasium.vector.VectorEnv) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function that turns recorded actions [N, columns] into those that environments take: clipped to the
    bounds of a Box and of its type (rounding keeps them in the bounds), or the choice [N] as its space numbers it."""
    space: Any = env.single_action_space
    if hasattr(space, "n"):
        return lambda action: action[:, 0].astype(np.int64) + int(space.start)
    return lambda action: action.clip(space.low, space.high).astype(space.dtype, copy=False)


def far_bounds(env: gymnasium.vector.VectorEnv) -> str | None:
    """Return a warning where the actions of the first policy hardly cover a Box, or lie outside of it; else None."""
    space: Any = env.single_action_space
    if hasattr(space, "n"):
        return None
    is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
    far = is_bounded & ((space.low > 0) | (space.high < 0) | (space.high - space.low > WIDE))
    if not far.any():
        return None
    i = int(far.argmax())
    return (
        f"action {i} ranges from {space.low[i]:g} to {space.high[i]:g}, but the first policy draws from a standard "
        "normal distribution, clipped to these bounds; wrap the environment so that actions range from about -1 to 1"
    )
