"""Gaussian policies for control: a tanh network each for actor and critic, as CleanRL's.

Weights are kept [in, out]. In that layout, with at least `MIN_ROWS` rows and two columns, one row of a batched
product has the same bits whatever else is in the batch, on CPU: so K versions acting at once, a single version
acting alone, and the learner's minibatch all agree exactly, and w is 1 where the policies are the same.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import integer
from ..simulator.buffer import Version
from .moments import CLIP, Moments

MIN_ROWS = 16  # smaller products take another path through BLAS and round differently
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Evaluation:
    """What the learner's policy and critic say about observations and actions."""

    logp: Tensor  # log π(a|s), summed over action dimensions [N]
    entropy: Tensor  # [N]
    value: Tensor  # V(s) [N]
    mean: Tensor  # [N, A]
    log_std: Tensor  # [A]

    def opened(self) -> Evaluation:
        """The same numbers without their past: a loss of these leaves its gradient with each of them."""
        return Evaluation(**{f.name: getattr(self, f.name).detach().requires_grad_() for f in fields(self)})


class MLPPolicy:
    """Actor and critic over one flat vector of parameters, and the observation statistics they act with.

    Flat, because a step of the optimiser, a gradient norm and a snapshot are then one operation each.
    """

    def __init__(
        self, obs_dim: int, act_dim: int, hidden: tuple[int, ...], seed: int, device: str = "cpu"
    ) -> None:
        self.obs_dim, self.act_dim, self.hidden = obs_dim, act_dim, hidden
        self.device = torch.device(device)
        self.actor_shapes = [*layer_shapes((obs_dim, *hidden, act_dim)), (act_dim,)]
        self.critic_shapes = layer_shapes((obs_dim, *hidden, 1))
        self.actor_size = sum(math.prod(shape) for shape in self.actor_shapes)
        size = self.actor_size + sum(math.prod(shape) for shape in self.critic_shapes)
        self.flat = torch.zeros(size, device=self.device)
        self.flat_gradient = torch.zeros_like(self.flat)
        self.flat.grad = self.flat_gradient
        shapes = self.actor_shapes + self.critic_shapes
        views = zip(views_of(self.flat, shapes), views_of(self.flat_gradient, shapes), strict=True)
        self.parameters: list[Tensor] = []
        for view, gradient in views:
            parameter = view.detach().requires_grad_()
            parameter.grad = gradient
            self.parameters.append(parameter)
        self._initialise(seed)
        self.set_statistics(Moments.initial(obs_dim))

    def _initialise(self, seed: int) -> None:
        """Orthogonal, gain √2, 0.01 for the actor's head and 1 for the critic's; biases and log σ are 0."""
        generator = torch.Generator().manual_seed(integer(seed, "init"))
        depth = len(self.hidden) + 1
        gains = [math.sqrt(2.0)] * len(self.hidden) + [0.01] + [math.sqrt(2.0)] * len(self.hidden) + [1.0]
        weights = [*self.parameters[0 : 2 * depth : 2], *self.parameters[2 * depth + 1 :: 2]]
        with torch.no_grad():
            for weight, gain in zip(weights, gains, strict=True):
                drawn = torch.empty(weight.shape[1], weight.shape[0])
                torch.nn.init.orthogonal_(drawn, gain, generator=generator)
                weight.copy_(drawn.t())

    def set_statistics(self, moments: Moments) -> None:
        """Observation statistics from now on (the learner's own; stored versions keep theirs)."""
        mean, inverse_std = moments.scaling()
        self.mean, self.inverse_std = mean.to(self.device), inverse_std.to(self.device)

    def actor(self, parameters: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(mean [N, A], log σ [A]) for normalised observations."""
        return means(parameters[:-1], x), parameters[-1]

    def normalise(self, obs: Tensor) -> Tensor:
        return ((obs - self.mean) * self.inverse_std).clamp(-CLIP, CLIP)

    def evaluate(self, obs: Tensor, action: Tensor) -> Evaluation:
        """Log-probabilities and values of raw observations [N, D] and actions [N, A]."""
        x = self.normalise(obs)
        depth = len(self.actor_shapes)
        mean, log_std = self.actor(self.parameters[:depth], x)
        value = network(self.parameters[depth:], x).squeeze(-1)
        entropy = (log_std + (0.5 + HALF_LOG_2PI)).sum().expand(obs.shape[0])
        return Evaluation(gaussian_logp(action, mean, log_std), entropy, value, mean, log_std)

    def carry_back(self, passed: Evaluation, opened: Evaluation) -> None:
        """Put ∂L/∂θ into the flat gradient, given ∂L/∂ of what `evaluate` said (`passed`), left in `opened`."""
        self.flat_gradient.zero_()
        said = [(getattr(passed, f.name), getattr(opened, f.name).grad) for f in fields(passed)]
        there = [(output, pull) for output, pull in said if pull is not None]
        torch.autograd.backward([output for output, _ in there], [pull for _, pull in there])

    @torch.no_grad()
    def evaluate_now(self, obs: Tensor, action: Tensor) -> Evaluation:
        """`evaluate` without gradient, as a record of this moment (nothing in it changes with the weights)."""
        now = self.evaluate(obs, action)
        return replace(now, log_std=now.log_std.clone())

    @torch.no_grad()
    def values_now(self, obs: Tensor) -> Tensor:
        """V of raw observations [N, D], without gradient."""
        return network(self.parameters[len(self.actor_shapes) :], self.normalise(obs)).squeeze(-1)

    @torch.no_grad()
    def logp_with(self, actor_flat: Tensor, obs: Tensor, action: Tensor) -> Tensor:
        """log-probability [N] under other actor weights (a shadow) with the learner's statistics."""
        mean, log_std = self.actor(views_of(actor_flat, self.actor_shapes), self.normalise(obs))
        return gaussian_logp(action, mean, log_std)

    @property
    def actor_flat(self) -> Tensor:
        """The actor's part of the flat vector (a view, without gradient)."""
        return self.flat[: self.actor_size]

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        """The policy as it is now, ready to act later: weights and statistics, copied."""
        tensors = {
            "actor": self.actor_flat.clone(),
            "mean": self.mean.clone(),
            "inverse_std": self.inverse_std.clone(),
        }
        return Version(phase, gradient_step, tensors)


class Actors:
    """Several versions acting at once, each on its own environments, in one batched computation.

    Environments are sorted by version and padded to equally long groups, so that one `bmm` per layer serves all
    (the fastest of the forms we measured, and the same bits as each version alone).
    """

    def __init__(self, policy: MLPPolicy, versions: list[Version], assignment: NDArray[np.int64]) -> None:
        """`assignment` [N] says which of `versions` (by position in the list) acts in each environment."""
        stack = {
            key: torch.stack([v.tensors[key] for v in versions]) for key in ("actor", "mean", "inverse_std")
        }
        self.parameters = views_of(stack["actor"], policy.actor_shapes)
        self.mean, self.inverse_std = stack["mean"][:, None], stack["inverse_std"][:, None]
        counts = np.bincount(assignment, minlength=len(versions))
        width = max(MIN_ROWS, int(counts.max()))
        order = np.argsort(assignment, kind="stable")
        place = np.arange(len(assignment)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.zeros((len(versions), width), dtype=np.int64)
        slots[assignment[order], place] = order
        position = np.empty(len(assignment), dtype=np.int64)
        position[order] = assignment[order] * width + place
        self.slots = torch.from_numpy(slots).to(
            policy.device
        )  # [K, width] environment behind each padded row
        self.position = torch.from_numpy(position).to(policy.device)  # [N] padded row of each environment
        self.log_std = self.parameters[-1].squeeze(1)[
            torch.from_numpy(assignment).to(policy.device)
        ]  # [N, A]
        self.std = self.log_std.exp()

    def means(self, obs: Tensor) -> Tensor:
        """Mean actions [N, A] for raw observations [N, D], each by its own version with its own statistics."""
        x = ((obs[self.slots] - self.mean) * self.inverse_std).clamp(-CLIP, CLIP)
        mean = means(self.parameters[:-1], x)
        return mean.flatten(0, 1)[self.position]

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(actions [N, A], their log-probabilities [N], mean actions [N, A])."""
        mean = self.means(obs)
        action = mean + self.std * noise
        return action, gaussian_logp(action, mean, self.log_std), mean


def mixture_logp(
    policy: MLPPolicy, versions: list[Version], weights: list[float], obs: Tensor, action: Tensor
) -> Tensor:
    """log Σ_k m_k π_k(a|s) over `versions` with probabilities `weights`, for [N, D] and [N, A] (VACO, eq. 1)."""
    terms = []
    for version, weight in zip(versions, weights, strict=True):
        x = ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-CLIP, CLIP)
        mean, log_std = policy.actor(views_of(version.tensors["actor"], policy.actor_shapes), x)
        terms.append(gaussian_logp(action, mean, log_std) + math.log(weight))
    return torch.logsumexp(torch.stack(terms), 0) if len(terms) > 1 else terms[0]


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
    """tanh layers and a linear head. x [N, in] with weights [in, out], or [K, M, in] with [K, in, out]."""
    for i in range(0, len(parameters) - 2, 2):
        x = affine(x, parameters[i], parameters[i + 1]).tanh()
    return affine(x, parameters[-2], parameters[-1])


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias, x, weight) if x.dim() == 3 else torch.addmm(bias, x, weight)


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
