"""Policy, optimiser and actors of `learner=native`, by actor_critic_kernels.cpp; and any run's choice of policy."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Sequence
from ctypes import c_bool, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.cpp_library import build_library
from ..training.optimiser import AdamW
from ..training.policy_buffer import Version
from .action_distributions import Distribution, Gaussian, distribution_of
from .policy import BatchedPolicies, Evaluation, MLPPolicy
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium

SOURCE = Path(__file__).with_name("actor_critic_kernels.cpp")
P = c_void_p
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "networks_new": (P, (c_int, c_int, P, P)),
    "networks_free": (None, (P,)),
    "actors_read": (None, (P, P)),
    "actors_act": (None, (*(P,) * 9, c_int64, P)),
    "learner_forward": (None, (P, P, c_int, P, P, P, P, c_int, *(P,) * 5)),
    "learner_backward": (None, (P, P, c_int, P, P, P)),
    "gaussian_logp": (None, (P, P, P, P, c_bool, c_int, c_int, P)),
    "gaussian_backward": (None, (P, P, P, P, P, c_int, c_int, P, P)),
    "value_loss": (None, (P, P, P, c_int, c_float, c_float, P, P)),
    "adamw": (None, (P, P, P, P, P, c_int64, c_float, c_float, c_float, c_float, P)),
}


@functools.cache
def library() -> Any:
    """The functions of actor_critic_kernels.cpp, built on first use. Raises `UserError` where that fails."""
    return build_library([SOURCE], SIGNATURES)


class NativeGaussian(Gaussian):
    """Independent normals by the library: the same log-probability for the learner and for whoever acts."""

    inputs: tuple[Tensor, Tensor, Tensor, Tensor]  # actions, the index [N] of these, means and log σ of `forward`

    def logp(self, action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        action, mean, log_std = action.contiguous(), mean.contiguous(), log_std.contiguous()
        logp = mean.new_empty(mean.shape[:-1])
        inputs = action.data_ptr(), None, *_pointers(mean, log_std)
        library().gaussian_logp(*inputs, log_std.dim() == 1, logp.numel(), mean.shape[-1], logp.data_ptr())
        return logp

    def backward(self, gradient: Tensor, grad_log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
        *_, mean, log_std = self.inputs
        grad_mean = torch.empty_like(mean)
        grad_log_std = torch.zeros_like(log_std) if grad_log_std is None else grad_log_std.clone()
        inputs = _pointers(*self.inputs, gradient)
        library().gaussian_backward(*inputs, *mean.shape, *_pointers(grad_mean, grad_log_std))
        return grad_mean, grad_log_std

    def add_entropy(self, grad_mean: Tensor, grad_log_std: Tensor, gradient: Tensor | float) -> None:
        if not isinstance(gradient, float):  # else there is no bonus
            grad_log_std += gradient


class NativeAdamW(AdamW):
    """`AdamW` of one flat parameter, with the clipping of its gradient in the same pass."""

    def clip_and_step(self, limit: float, rate: float) -> Tensor:
        self.rate = rate
        (p,), (m,), (v,), (count,) = self.parameters, self.mean, self.square, self.steps
        assert p.grad is not None, "the policy put it there"
        norm, constants = p.new_empty(()), (limit, rate, self.epsilon, self.weight_decay)
        library().adamw(*_pointers(p, p.grad, m, v, count), p.numel(), *constants, norm.data_ptr())
        return norm


def _pointers(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _networks(owner: object, inputs: int, hidden: tuple[int, ...], outputs: Sequence[int]) -> int:
    """A handle to networks, one for each of `outputs`, that live as long as their owner."""
    widths, heads = np.array((inputs, *hidden), dtype=np.int32), np.array(outputs, dtype=np.int32)
    handle: int = library().networks_new(len(heads), len(hidden), widths.ctypes.data, heads.ctypes.data)
    weakref.finalize(owner, library().networks_free, handle)
    return handle


class NativePolicy(MLPPolicy):
    """`MLPPolicy` by the library, on a CPU: the same parameters and random numbers, other rounding."""

    def __init__(self, obs_dim: int, actions: Distribution, *rest: Any) -> None:
        super().__init__(obs_dim, NativeGaussian(actions.outputs) if isinstance(actions, Gaussian) else actions, *rest)
        # `forward` leaves activations for `backward`; what is evaluated between the two must not touch them
        self.networks, self.scratch = (_networks(self, obs_dim, self.hidden, (self.act_dim, 1)) for _ in range(2))

    def outputs(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self._forward_pass(self.scratch, obs.contiguous(), None)

    def forward(self, obs: Tensor, action: Tensor, index: Tensor) -> Evaluation:
        if not isinstance(self.distribution, NativeGaussian):
            mean, value = self._forward_pass(self.networks, obs, index)
            logp = self.distribution.forward(action.index_select(0, index), mean, self.log_std)
            return self._evaluation(logp, mean, value)
        logp, entropy = obs.new_empty(len(index)), obs.new_zeros(())
        action = action.contiguous()
        mean, value = self._forward_pass(self.networks, obs, index, *_pointers(action, logp, entropy))
        self.distribution.inputs = action, index, mean, self.log_std
        return Evaluation(logp, entropy, value, mean, self.log_std.clone())

    def _backward(self, grad_mean: Tensor, grad_log_std: Tensor, grad_value: Tensor) -> None:
        rest = _pointers(grad_log_std, grad_value, self.flat_gradient)
        library().learner_backward(self.networks, grad_mean.data_ptr(), self.distribution.deviations, *rest)

    @torch.no_grad()
    def values(self, obs: Tensor) -> Tensor:
        return self.outputs(obs)[1]

    def value_loss(
        self, value: Tensor, target: Tensor, start: Tensor, clip: float, coef: float
    ) -> tuple[Tensor, Tensor]:
        loss, gradient = value.new_empty(()), torch.empty_like(value)
        inputs = _pointers(value, target.contiguous(), start.contiguous())
        library().value_loss(*inputs, len(value), clip, coef, *_pointers(loss, gradient))
        return loss, gradient

    def mean_entropy(self, now: Evaluation) -> Tensor:
        return now.entropy

    def make_optimizer(self, spec: ControlSpec) -> NativeAdamW:
        return NativeAdamW([self.flat], spec.learning_rate, spec.adam_epsilon, spec.weight_decay)

    def acting(self, versions: list[Version], assignment: NDArray[np.int64]) -> NativeBatchedPolicies:
        return NativeBatchedPolicies(self, versions, assignment)

    def _forward_pass(
        self, networks: int, obs: Tensor, index: Tensor | None, *of_actions: int | None
    ) -> tuple[Tensor, Tensor]:
        """Outputs of the actor [N, A] and values [N] for raw observations, or for those at `index` [N]; `of_actions`
        are the addresses of actions, log π and entropy of a Gaussian."""
        n = len(obs if index is None else index)
        output, value = obs.new_empty(n, self.act_dim), obs.new_empty(n)
        inputs = obs.data_ptr(), None if index is None else index.data_ptr(), *_pointers(self.mean, self.inverse_std)
        theta, deviations = self.flat.data_ptr(), self.distribution.deviations
        outputs = *_pointers(output, value), *(of_actions or (None,) * 3)
        library().learner_forward(networks, theta, deviations, *inputs, n, *outputs)
        return output, value


class NativeBatchedPolicies(BatchedPolicies):
    """Several versions acting at once, each row by the kernel that the learner uses."""

    def __init__(self, policy: NativePolicy, versions: list[Version], assignment: NDArray[np.int64]) -> None:
        self.mean, self.inverse_std = (
            torch.stack([v.tensors[key] for v in versions]) for key in ("mean", "inverse_std")
        )
        actors = torch.stack([v.tensors["actor"] for v in versions])
        log_std = actors[:, actors.shape[1] - policy.distribution.deviations :]
        self.log_std = log_std[torch.from_numpy(assignment)]  # [N, A]
        self.std = self.log_std.exp()
        self.distribution, self.act_dim = policy.distribution, policy.act_dim
        self.order = np.argsort(assignment, kind="stable")
        self.counts = np.bincount(assignment, minlength=len(versions))
        self.networks = _networks(self, policy.obs_dim, policy.hidden, [policy.act_dim] * len(versions))
        addresses = np.array(_pointers(*actors), dtype=np.uint64)
        library().actors_read(self.networks, addresses.ctypes.data)
        statistics = _pointers(self.mean, self.inverse_std)
        self.version_addresses = *statistics, self.order.ctypes.data, self.counts.ctypes.data

    def means(self, obs: Tensor) -> Tensor:
        obs, mean = obs.contiguous(), obs.new_empty(len(obs), self.act_dim)
        no_actions = None, None, 0, None
        library().actors_act(self.networks, obs.data_ptr(), *self.version_addresses, mean.data_ptr(), *no_actions)
        return mean

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(self.distribution, NativeGaussian):
            return super().act(obs, noise)
        obs, noise = obs.contiguous(), noise.contiguous()
        mean, action = torch.empty_like(noise), torch.empty_like(noise)
        outputs = mean.data_ptr(), *_pointers(self.std, noise), noise.numel(), action.data_ptr()
        library().actors_act(self.networks, obs.data_ptr(), *self.version_addresses, *outputs)
        return action, mean


def policy_for(spec: ControlSpec, env: gymnasium.vector.VectorEnv) -> MLPPolicy:
    """Return the policy that a run starts from. Raises `UserError` where learner=native finds no compiler."""
    obs_dim = int(math.prod(env.single_observation_space.shape or ()))
    kind = MLPPolicy if spec.learner == "torch" else NativePolicy
    return kind(obs_dim, distribution_of(env), spec.hidden, spec.seed, spec.device, spec.value_function == "behaviour")
