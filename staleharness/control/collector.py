"""Acting: environments that step together, each with the version it was assigned, and the record of it.

Under a mismatch model, copies of the versions act in their place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import integer, stream
from ..batch import Rollout
from ..errors import UserError, shorten
from ..mismatch import Mismatch, Place, read_mismatch
from ..training.policy_buffer import PolicyBuffer, Version
from ..training.sampler_copies import CopyTensors, SamplerCopies, apply
from .action_distributions import Distribution, action_converter
from .env_checks import explain_env_errors
from .functional_mlp import views_of
from .policy import BatchedPolicies, MLPPolicy
from .replay_state import restorable
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium

STORED_ARRAYS = {name: name for name in ("obs", "episode_return", "episode_length")} | {"assigned": "env_versions"}
"""Key in a checkpoint -> attribute of the collector."""


def temperature_of(models: Sequence[Mismatch]) -> float:
    """Return the combined temperature of all models. Raises `UserError` for one that is not a number above 0."""
    for model in models:
        value: object = model.temperature
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UserError(f"MISMATCH={model.text}: temperature is {shorten(repr(value))}; give a number above 0")
    return math.prod(model.temperature for model in models)


def actor_copier(models: Sequence[Mismatch], policy: MLPPolicy, seed: int) -> CopyTensors:
    """Return a function that copies a version: every matrix of its actor, but neither biases nor the critic. The
    temperature multiplies the variance of normals and divides the logits of choices."""
    temperature = temperature_of(models)

    def copy(version: Version) -> dict[str, Tensor]:
        flat = version.tensors["actor"].clone()
        *layers, log_std = views_of(flat, policy.actor_shapes)
        for i, weight in enumerate(layers[::2]):  # [in, out] here
            weight.copy_(apply(models, weight.t(), Place(f"actor.{i}", version.phase, seed)).t())
        log_std += 0.5 * math.log(temperature)
        if policy.distribution.deviations == 0:
            layers[-2].div_(temperature)
            layers[-1].div_(temperature)
        return {**version.tensors, "actor": flat}

    return copy


@torch.no_grad()
def with_both_policies(
    rollout: Rollout, versions: dict[int, Version], policy: MLPPolicy, models: Sequence[Mismatch], behaviour: str
) -> Rollout:
    """Return what copies of `versions` recorded, with the log-probabilities that they report and those of the versions;
    μ is the version's where `behaviour` is "version"."""
    shape, numbers = rollout.version.shape, sorted(versions)
    position = np.searchsorted(numbers, rollout.version.flatten().cpu().numpy())
    acting = policy.acting([versions[v] for v in numbers], position)
    mean = acting.means(rollout.obs.flatten(0, 1)).view_as(rollout.behaviour_mean)
    log_std = acting.log_std.view_as(rollout.behaviour_log_std)
    logp = policy.distribution.logp(rollout.action, mean, log_std)
    rollout = replace(
        rollout,
        sampler_logp=_logp_of_copies(rollout, policy, models),
        version_logp=logp,
        version_entropy=policy.distribution.entropies(mean, log_std).view(shape),
    )
    if behaviour == "version":
        rollout = replace(rollout, behaviour_logp=logp, behaviour_mean=mean, behaviour_log_std=log_std)
    return rollout


def _logp_of_copies(rollout: Rollout, policy: MLPPolicy, models: Sequence[Mismatch]) -> Tensor:
    """Return the copies' own log-probabilities [B, T]; raw ones are before the temperature."""
    if not any(model.raw for model in models):
        return rollout.behaviour_logp
    temperature, normal = temperature_of(models), policy.distribution.deviations > 0
    mean = rollout.behaviour_mean if normal else rollout.behaviour_mean * temperature
    return policy.distribution.logp(rollout.action, mean, rollout.behaviour_log_std - 0.5 * math.log(temperature))


# (t, [size] episodes that ended just before) -> versions [size] of decision t and those after; None (not at t = 0): as
# before
NextVersions = Callable[[int, NDArray[np.bool_]], NDArray[np.int64] | None]


class Episodes(NamedTuple):
    """Returns and lengths of the episodes that ended in one phase, as the (stale) actors earned them."""

    returns: list[float]
    lengths: list[int]


class Collector:
    """A vector of environments that is kept between phases; `generate` makes one row in each.

    first: the number of its first environment among all environments.
    env_versions: [size] version that acts in each environment.
    """

    def __init__(self, spec: ControlSpec, env: gymnasium.vector.VectorEnv, policy: MLPPolicy, first: int = 0) -> None:
        self.spec, self.policy, self.first = spec, policy, first
        self.env = restorable(env, spec.env)
        self.models = read_mismatch(spec.mismatch)
        copy = actor_copier(self.models, policy, spec.seed)
        self.copies = SamplerCopies(copy, spec.capacity, spec.seed) if self.models else None
        self.size = env.num_envs
        self.to_env = action_converter(env)
        with explain_env_errors(spec.env):
            self.obs, _ = self.env.reset(seed=integer(spec.seed, "env") + first)
        self.episode_return = np.zeros(self.size)
        self.episode_length = np.zeros(self.size, dtype=np.int64)
        self.env_versions = np.zeros(self.size, dtype=np.int64)

    def generate(self, buffer: PolicyBuffer, nth: int, next_versions: NextVersions) -> tuple[Rollout, Episodes]:
        """Step every environment for `num_steps`, the `nth` time; returns rows [size, num_steps] and the episodes that
        ended."""
        spec, policy = self.spec, self.policy
        done, noise = np.zeros(self.size, dtype=np.bool_), torch.from_numpy(self._noise(nth)).to(policy.device)
        record, episodes = _RolloutRecord(spec.num_steps, self.size, policy), Episodes([], [])
        with torch.no_grad(), explain_env_errors(spec.env):
            if spec.reset_each_phase and nth > 0:
                self._reset(np.ones(self.size, dtype=bool))
            for t in range(spec.num_steps):
                if (new := next_versions(t, done)) is not None:
                    self.env_versions = new
                    actors, log_std = self._actors(buffer)
                obs = record.observe(t, self.obs)
                action, mean = (x.cpu().numpy() for x in actors.act(obs, noise[t]))
                next_obs, reward, terminated, truncated, _ = self.env.step(self.to_env(action))
                done = terminated | truncated
                record.write(t, action=action, behaviour_mean=mean, behaviour_log_std=log_std)
                record.write(t, version=self.env_versions, reward=reward, terminated=terminated, truncated=truncated)
                self.episode_return += reward
                self.episode_length += 1
                over, last = done.any(), t == spec.num_steps - 1
                if over or last:
                    record.write_final(t, done | last, next_obs)
                self.obs = next_obs
                if over:
                    episodes.returns.extend(self.episode_return[done].tolist())
                    episodes.lengths.extend(self.episode_length[done].tolist())
                    self._reset(done)
        versions = {v: self.with_acting_statistics(buffer[v]) for v in np.unique(record.columns["version"]).tolist()}
        rollout = record.rollout(versions)
        if self.models:
            rollout = with_both_policies(rollout, versions, policy, self.models, spec.behaviour)
        return rollout, episodes

    def _noise(self, nth: int) -> NDArray[np.float32]:
        """Return the noise [num_steps, size, A] of all decisions: the columns of these environments in what is
        drawn for `num_envs` environments at a time."""
        spec = self.spec
        block, column = divmod(self.first, spec.num_envs)
        key = (nth, block) if block else (nth,)
        shape = spec.num_steps, spec.num_envs
        if self.size == spec.num_envs:
            return _draw_noise(self.policy.distribution, spec.seed, key, shape)
        return _cached_noise(self.policy.distribution, spec.seed, key, shape)[:, column : column + self.size]

    def _actors(self, buffer: PolicyBuffer) -> tuple[BatchedPolicies, NDArray[np.float32]]:
        """Return the policies of the assigned versions, and log σ [size, A] of each environment's policy."""
        numbers, position = np.unique(self.env_versions, return_inverse=True)
        versions = [buffer[v] for v in numbers.tolist()]
        if self.copies is not None:
            versions = [self.copies.of(version) for version in versions]
        actors = self.policy.acting([self.with_acting_statistics(version) for version in versions], position)
        return actors, actors.log_std.cpu().numpy()

    def with_acting_statistics(self, version: Version) -> Version:
        """Return a version with the observation statistics that it acts with."""
        if self.spec.observation_statistics != "shared_live":
            return version
        live = {"mean": self.policy.mean, "inverse_std": self.policy.inverse_std}
        return replace(version, tensors={**version.tensors, **live})

    def _reset(self, mask: NDArray[np.bool_]) -> None:
        self.obs, _ = self.env.reset(options={"reset_mask": mask})
        self.episode_return[mask] = 0.0
        self.episode_length[mask] = 0

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, attribute) for name, attribute in STORED_ARRAYS.items()}
        return {"arrays": _tensors(arrays), "env": _tensors(self.env.get_state())}  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tensor in state["arrays"].items():
            setattr(self, STORED_ARRAYS[name], tensor.numpy())
        with explain_env_errors(self.spec.env):
            self.env.set_state({k: v.numpy() for k, v in state["env"].items()})  # type: ignore[attr-defined]


class _RolloutRecord:
    """Time-major arrays [T, E, ...] that hold the rows of one phase, by the fields of `Rollout`."""

    def __init__(self, steps: int, envs: int, policy: MLPPolicy) -> None:
        def empty(dtype: type, *shape: int) -> NDArray[Any]:
            return np.empty((steps, envs, *shape), dtype)

        self.policy = policy
        self.columns = {
            "obs": empty(np.float32, policy.obs_dim),
            "action": empty(np.float32, policy.distribution.columns),
            "behaviour_mean": empty(np.float32, policy.act_dim),
            "behaviour_log_std": empty(np.float32, policy.distribution.deviations),
            "version": empty(np.int64),
            "reward": empty(np.float64),
            "terminated": empty(np.bool_),
            "truncated": empty(np.bool_),
        }
        self.obs_by_time = torch.from_numpy(self.columns["obs"])  # the same memory
        self.final: list[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]] = []

    def observe(self, t: int, obs: NDArray[np.float64]) -> Tensor:
        """Record the observations of a step in float32 and return them, as the actors see them."""
        self.columns["obs"][t] = obs
        return self.obs_by_time[t].to(self.policy.device)

    def write(self, t: int, **values: NDArray[Any]) -> None:
        for name, value in values.items():
            self.columns[name][t] = value

    def write_final(self, t: int, cut: NDArray[np.bool_], next_obs: NDArray[np.float64]) -> None:
        rows = np.flatnonzero(cut)
        self.final.append((next_obs[rows].astype(np.float32), rows, np.full(len(rows), t)))

    def rollout(self, versions: dict[int, Version]) -> Rollout:
        """Return the arrays by rows; `versions` are those that acted."""

        def tensor(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(policy.device)

        policy, version = self.policy, self.columns["version"]
        step_of = np.vectorize(lambda v: versions[v].gradient_step, otypes=[np.int64])
        by_time = {name: tensor(array) for name, array in self.columns.items()}
        by_time["gradient_step"] = tensor(step_of(version))
        outputs = by_time["behaviour_mean"], by_time["behaviour_log_std"]
        by_time["behaviour_logp"] = policy.distribution.logp(by_time["action"], *outputs)
        by_time["behaviour_value"] = _values(policy, versions, by_time["obs"], version)
        obs, rows, steps = (np.concatenate(parts) for parts in zip(*self.final, strict=True))
        return Rollout(
            **{name: value.transpose(0, 1).contiguous() for name, value in by_time.items()},
            final_obs=tensor(obs),
            final_row=tensor(rows),
            final_step=tensor(steps),
            final_value=_values(policy, versions, tensor(obs), version[steps, rows]),
        )


def _values(policy: MLPPolicy, versions: dict[int, Version], obs: Tensor, version: NDArray[np.int64]) -> Tensor:
    """V [..., 1] of observations [..., D] by the critics of the versions [...]; shape [..., 0] where they kept none."""
    values = obs.new_empty((*version.shape, int(policy.with_critic)))
    for v in versions if policy.with_critic else ():
        mask = torch.from_numpy(version == v).to(obs.device)
        values[mask, 0] = policy.version_values(versions[v], obs[mask])
    return values


def _draw_noise(
    distribution: Distribution, seed: int, key: tuple[int, ...], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    return distribution.noise(stream(seed, "action", *key), *shape)


_cached_noise = functools.lru_cache(maxsize=8)(_draw_noise)  # actors that share their noise ask one after the other


def _tensors(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    copies = {key: np.array(value, order="C") for key, value in arrays.items()}
    if wrong := next((key for key, array in copies.items() if array.dtype.kind not in "biuf"), None):
        raise UserError(f"get_state of the environments returns {wrong!r}, which is not an array of numbers")
    return {key: torch.from_numpy(array) for key, array in copies.items()}
