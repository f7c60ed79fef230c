"""The learner's policy and its critic over one flat vector of parameters; several of its versions acting at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import integer
from ..training.optimiser import AdamW
from ..training.policy_buffer import Version
from .action_distributions import Distribution
from .functional_mlp import MIN_ROWS, NetworkPass, layer_shapes, means, network, value_loss, views_of
from .moments import CLIP, Moments

if TYPE_CHECKING:
    from .spec import ControlSpec


@dataclass(frozen=True)
class Evaluation:
    """Outputs of the learner's policy and critic for observations and actions."""

    logp: Tensor  # log π(a|s), summed over action dimensions [N]
    entropy: Tensor  # [], the mean over states (of normals, the same at each)
    value: Tensor  # V(s) [N]
    mean: Tensor  # [N, A], or the logits of A choices
    log_std: Tensor  # [A], or [0]


class OutputGradient(NamedTuple):
    """The gradient of a loss with respect to the outputs of a policy."""

    logp: Tensor  # ∂L/∂log π(a|s) [N]
    value: Tensor  # [N]
    entropy: Tensor | float  # []
    mean: Tensor | None = None  # [N, A], besides what comes through `logp`; None where there is none
    log_std: Tensor | None = None  # [A], likewise


def normalise_for(version: Version, obs: Tensor) -> Tensor:
    """Observations [N, D] as a version sees them."""
    return ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-CLIP, CLIP)


class MLPPolicy:
    """Actor and critic over one flat vector of parameters, and the observation statistics they act with.

    Flat, because a step of the optimiser, a gradient norm and a snapshot are then one operation each.
    """

    def __init__(
        self,
        obs_dim: int,
        actions: Distribution,
        hidden: tuple[int, ...],
        seed: int,
        device: str = "cpu",
        with_critic: bool = False,
    ) -> None:
        """`actions`: their distribution. `with_critic`: versions store their critic."""
        self.with_critic = with_critic
        self.distribution = actions
        self.obs_dim, self.act_dim, self.hidden = obs_dim, self.distribution.outputs, hidden
        self.device = torch.device(device)
        self.actor_shapes = [*layer_shapes((obs_dim, *hidden, self.act_dim)), (self.distribution.deviations,)]
        self.critic_shapes = layer_shapes((obs_dim, *hidden, 1))
        self.actor_size = sum(math.prod(shape) for shape in self.actor_shapes)
        size = self.actor_size + sum(math.prod(shape) for shape in self.critic_shapes)
        self.flat = torch.zeros(size, device=self.device)
        self.flat_gradient = torch.zeros_like(self.flat)
        self.flat.grad = self.flat_gradient
        shapes = self.actor_shapes + self.critic_shapes
        self.parameters = views_of(self.flat, shapes)
        last = len(self.actor_shapes) - 1
        self.actor_weights, self.critic_weights = self.parameters[:last], self.parameters[last + 1 :]
        self.log_std = self.parameters[last]
        self.actor_pass, self.critic_pass = NetworkPass(self.actor_weights, columns=2), NetworkPass(self.critic_weights)
        self._initialise(seed)
        self.set_statistics(Moments.initial(obs_dim))

    def _initialise(self, seed: int) -> None:
        """Orthogonal, gain √2, 0.01 for the actor's head and 1 for the critic's; biases and log σ are 0."""
        generator = torch.Generator().manual_seed(integer(seed, "init"))
        gains = [math.sqrt(2.0)] * len(self.hidden) + [0.01] + [math.sqrt(2.0)] * len(self.hidden) + [1.0]
        weights = self.actor_weights[::2] + self.critic_weights[::2]
        for weight, gain in zip(weights, gains, strict=True):
            drawn = torch.empty(weight.shape[1], weight.shape[0])
            torch.nn.init.orthogonal_(drawn, gain, generator=generator)
            weight.copy_(drawn.t())

    def set_statistics(self, moments: Moments) -> None:
        """Observation statistics from now on (the learner's own; stored versions keep theirs)."""
        mean, inverse_std = moments.scaling()
        self.mean, self.inverse_std = mean.to(self.device), inverse_std.to(self.device)

    def actor(self, parameters: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(mean [N, A], log σ [A]) for normalised observations; of choices, (logits, [0])."""
        return means(parameters[:-1], x), parameters[-1]

    def normalise(self, obs: Tensor) -> Tensor:
        return ((obs - self.mean) * self.inverse_std).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def evaluate(self, obs: Tensor, action: Tensor) -> Evaluation:
        """Log-probabilities and values of raw observations [N, D] and actions [N, A], as a record of this moment:
        nothing in it changes with the weights."""
        mean, value = self.outputs(obs)
        return self._evaluation(self.distribution.logp(action, mean, self.log_std), mean, value)

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """(output of the actor [N, A], V [N]) for raw observations [N, D]."""
        x = self.normalise(obs)
        return means(self.actor_weights, x), network(self.critic_weights, x).squeeze(-1)

    def _evaluation(self, logp: Tensor, mean: Tensor, value: Tensor) -> Evaluation:
        return Evaluation(logp, self.distribution.entropy(mean, self.log_std), value, mean, self.log_std.clone())

    def forward(self, obs: Tensor, action: Tensor, index: Tensor) -> Evaluation:
        """`evaluate` the rows at `index` [N], and keep what `backward` needs. To be called under `torch.no_grad`."""
        x, action = self.normalise(obs.index_select(0, index)), action.index_select(0, index)
        mean = self.actor_pass.forward(x)
        value = self.critic_pass.forward(x).squeeze(-1)
        return self._evaluation(self.distribution.forward(action, mean, self.log_std), mean, value)

    def backward(self, gradient: OutputGradient) -> None:
        """Put ∂L/∂θ into the flat gradient, given the gradient of the loss with respect to the last `forward`."""
        grad_mean, grad_log_std = self.distribution.backward(gradient.logp, gradient.log_std)
        self.distribution.add_entropy(grad_mean, grad_log_std, gradient.entropy)
        if gradient.mean is not None:
            grad_mean += gradient.mean
        self._backward(grad_mean, grad_log_std, gradient.value)

    def _backward(self, grad_mean: Tensor, grad_log_std: Tensor, grad_value: Tensor) -> None:
        """`backward`, given ∂L/∂mean, ∂L/∂log σ and ∂L/∂V."""
        actor, critic = self.actor_pass.backward(grad_mean), self.critic_pass.backward(grad_value[:, None])
        torch.cat([g.flatten() for g in (*actor, grad_log_std, *critic)], out=self.flat_gradient)

    def value_loss(
        self, value: Tensor, target: Tensor, start: Tensor, clip: float, coef: float
    ) -> tuple[Tensor, Tensor]:
        """`functional_mlp.value_loss` in this policy's arithmetic, for targets and values at phase start of any shape
        with N numbers."""
        return value_loss(value, target.flatten(), start.flatten(), clip, coef)

    def mean_entropy(self, now: Evaluation) -> Tensor:
        """The mean [] over the decisions of a minibatch, rounded as in published runs."""
        return now.entropy.expand(len(now.logp)).mean()

    def make_optimizer(self, spec: ControlSpec) -> AdamW:
        return AdamW([self.flat], spec.learning_rate, spec.adam_epsilon, spec.weight_decay)

    def acting(self, versions: list[Version], assignment: NDArray[np.int64]) -> BatchedPolicies:
        """Versions acting at once: `assignment` [N] gives the position in `versions` for each environment."""
        return BatchedPolicies(self, versions, assignment)

    @torch.no_grad()
    def values(self, obs: Tensor) -> Tensor:
        """V of raw observations [N, D], without gradient."""
        return network(self.critic_weights, self.normalise(obs)).squeeze(-1)

    @torch.no_grad()
    def version_values(self, version: Version, obs: Tensor) -> Tensor:
        """V [N] of raw observations [N, D] by a version's own critic and statistics."""
        critic = views_of(version.tensors["critic"], self.critic_shapes)
        return network(critic, normalise_for(version, obs)).squeeze(-1)

    @torch.no_grad()
    def actor_with(self, actor_flat: Tensor, obs: Tensor) -> tuple[Tensor, Tensor]:
        """`actor` under other weights (a shadow), for raw observations and with the learner's statistics."""
        return self.actor(views_of(actor_flat, self.actor_shapes), self.normalise(obs))

    @property
    def actor_flat(self) -> Tensor:
        """The actor's part of the flat vector (a view, without gradient)."""
        return self.flat[: self.actor_size]

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        """The policy as it is now, ready to act later: weights and statistics, copied."""
        tensors = {"actor": self.actor_flat.clone(), "mean": self.mean.clone(), "inverse_std": self.inverse_std.clone()}
        if self.with_critic:
            tensors["critic"] = self.flat[self.actor_size :].clone()
        return Version(phase, gradient_step, tensors)


class BatchedPolicies:
    """Several versions acting at once, each on its own environments, in one batched computation.

    Environments are sorted by version and padded to equally long groups, so that one `bmm` per layer serves all
    (the fastest of the variants we measured, and bit for bit the same as each version alone).
    """

    def __init__(self, policy: MLPPolicy, versions: list[Version], assignment: NDArray[np.int64]) -> None:
        """`assignment` [N] says which of `versions` (by position in the list) acts in each environment."""
        stack = {key: torch.stack([v.tensors[key] for v in versions]) for key in ("actor", "mean", "inverse_std")}
        weights, log_std = _layers_of(stack["actor"], policy.actor_shapes)
        self.mean, self.inverse_std = stack["mean"][:, None], stack["inverse_std"][:, None]
        counts = np.bincount(assignment, minlength=len(versions))
        max_count = int(counts.max())
        width = max(MIN_ROWS, max_count)
        if max_count < MIN_ROWS and policy.device.type == "cpu":
            width = fewest_rows(len(versions), max_count, tuple(policy.actor_shapes))
        order = np.argsort(assignment, kind="stable")
        place = np.arange(len(assignment)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.zeros((len(versions), max_count), dtype=np.int64)
        slots[assignment[order], place] = order
        position = np.empty(len(assignment), dtype=np.int64)
        position[order] = assignment[order] * width + place
        self.slots = torch.from_numpy(slots).to(policy.device)  # [K, max_count] environment behind each row
        self.position = torch.from_numpy(position).to(policy.device)  # [N] padded row of each environment
        self.log_std = log_std.squeeze(1)[torch.from_numpy(assignment).to(policy.device)]  # [N, A]
        self.std = self.log_std.exp()
        self.distribution, self.act_dim = policy.distribution, policy.act_dim
        self.weights, self.biases = weights[::2], weights[1::2]
        # inputs of every layer, [K, width, in]; rows of padding up to `width` go through the products only
        self.inputs = [torch.zeros(len(versions), width, w.shape[1], device=policy.device) for w in self.weights]
        self.rows = [x[:, :max_count] for x in self.inputs]

    def means(self, obs: Tensor) -> Tensor:
        """Mean actions [N, A] for raw observations [N, D], each by its own version with its own statistics."""
        x = torch.sub(obs[self.slots], self.mean, out=self.rows[0])
        x.mul_(self.inverse_std).clamp_(-CLIP, CLIP)
        for i, rows in enumerate(self.rows[1:]):
            torch.baddbmm(self.biases[i], self.inputs[i], self.weights[i], out=self.inputs[i + 1])
            rows.tanh_()
        mean = torch.baddbmm(self.biases[-1], self.inputs[-1], self.weights[-1])
        return mean.flatten(0, 1)[self.position, : self.act_dim]

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(actions [N, columns], mean actions [N, A]: the output of the networks)."""
        mean = self.means(obs)
        return self.distribution.act(mean, self.std, noise), mean


def _layers_of(stack: Tensor, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Tensor], Tensor]:
    """(W, b, W, b, ... as `baddbmm` takes them, log σ [K, 1, A]) of actors [K, P]."""
    *weights, log_std = views_of(stack, list(shapes))
    if weights[-1].shape[-1] == 1:  # see `functional_mlp`
        weights[-2:] = [torch.nn.functional.pad(w, (0, 1)) for w in weights[-2:]]
    return weights, log_std


@functools.cache
def fewest_rows(versions: int, count: int, shapes: tuple[tuple[int, ...], ...]) -> int:
    """Rows per version, at least `count` and at most `MIN_ROWS`, that this machine's products round as `MIN_ROWS` rows.

    The kernel of a product depends on its shapes alone, so random inputs show how it rounds.
    """
    generator = torch.Generator().manual_seed(0)
    size = sum(math.prod(shape) for shape in shapes)
    weights, _ = _layers_of(torch.randn(versions, size, generator=generator), shapes)
    layers = [
        (bias, torch.randn(versions, MIN_ROWS, weight.shape[1], generator=generator), weight)
        for weight, bias in zip(weights[::2], weights[1::2], strict=True)
    ]

    def round_alike(rows: int) -> bool:
        fewer = (torch.baddbmm(bias, x[:, :rows].contiguous(), weight) for bias, x, weight in layers)
        return all(torch.equal(y, torch.baddbmm(*layer)[:, :rows]) for y, layer in zip(fewer, layers, strict=True))

    return next((rows for rows in range(-(-count // 4) * 4, MIN_ROWS, 4) if round_alike(rows)), MIN_ROWS)


def mixture_logp(
    policy: MLPPolicy, versions: list[Version], shares: list[float], obs: Tensor, action: Tensor
) -> Tensor:
    """log Σ_k m_k π_k(a|s) over `versions` with probabilities `shares`, for [N, D] and [N, A] (VACO, eq. 1)."""
    terms = []
    for version, share in zip(versions, shares, strict=True):
        weights = views_of(version.tensors["actor"], policy.actor_shapes)
        mean, log_std = policy.actor(weights, normalise_for(version, obs))
        terms.append(policy.distribution.logp(action, mean, log_std) + math.log(share))
    return torch.logsumexp(torch.stack(terms), 0) if len(terms) > 1 else terms[0]
