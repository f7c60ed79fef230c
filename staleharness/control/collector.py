"""Acting: all environments at once, each with the version it was assigned. Writes down what only the actor knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import integer, stream
from ..batch import Rollout
from ..simulator.policy_buffer import PolicyBuffer, Version
from ..simulator.run_lags import Lags
from .action_distributions import Distribution, as_taken
from .batched_policies import BatchedPolicies, mixture_logp
from .policy import MLPPolicy
from .replay_state import restorable
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium


# (t, which episodes ended just before) -> versions [size] of decision t and those after, or None: as before
NextVersions = Callable[[int, NDArray[np.bool_]], NDArray[np.int64] | None]


@dataclass
class Episodes:
    """Returns and lengths of the episodes that ended in one phase, as the (stale) actors earned them."""

    returns: list[float]
    lengths: list[int]


class Collector:
    """Holds environments between phases; `collect` runs one phase, `make` what a schedule asks for.

    first: the number of its first environment, among all that there are.
    """

    def __init__(
        self,
        spec: ControlSpec,
        env: gymnasium.vector.VectorEnv,
        policy: MLPPolicy,
        lags: Lags | None = None,
        first: int = 0,
    ) -> None:
        self.spec, self.policy, self._lags, self.first = spec, policy, lags, first
        self.env = restorable(env, spec.env)
        self.size = env.num_envs
        self.taken = as_taken(env)
        self.obs, _ = self.env.reset(seed=integer(spec.seed, "env") + first)
        self.episode_return = np.zeros(self.size)
        self.episode_length = np.zeros(self.size, dtype=np.int64)
        self.assigned = np.zeros(self.size, dtype=np.int64)  # version of each actor

    @property
    def lags(self) -> Lags:
        assert self._lags is not None, "versions are drawn for `collect`, by the run's lag model"
        return self._lags

    def collect(self, buffer: PolicyBuffer, phase: int) -> tuple[Rollout, Episodes]:
        """Roll every environment for `num_steps`; returns rows [num_envs, num_steps] and the finished episodes."""
        self._begin(phase)
        self._assign(buffer, phase)

        def next_versions(t: int, done: NDArray[np.bool_]) -> NDArray[np.int64] | None:
            if self.spec.assignment == "phase" or not done.any():
                return None
            return np.where(done, self._draw(phase, t, used=done), self.assigned)

        record, episodes = self._roll(buffer, phase, next_versions)
        mixture = self._mixture(buffer, phase, record) if self.spec.density == "mixture" else None
        return self._written(record, buffer, mixture), episodes

    def make(self, buffer: PolicyBuffer, nth: int, versions: NextVersions) -> tuple[Rollout, Episodes]:
        """The `nth` time that every environment is rolled for `num_steps`, with what `versions` says."""
        self._begin(nth)
        asked = versions(0, np.zeros(self.size, dtype=np.bool_))
        self.assigned = self.assigned if asked is None else asked
        record, episodes = self._roll(buffer, nth, versions)
        return self._written(record, buffer), episodes

    def _written(self, record: _Record, buffer: PolicyBuffer, mixture: Tensor | None = None) -> Rollout:
        versions = {v: self._as_acted(buffer[v]) for v in np.unique(record.version).tolist()}
        return record.rollout(versions, mixture, self.policy)

    def _begin(self, nth: int) -> None:
        if self.spec.reset_each_phase and nth > 0:
            self._reset(np.ones(self.size, dtype=bool))

    def _roll(self, buffer: PolicyBuffer, nth: int, versions: NextVersions) -> tuple[_Record, Episodes]:
        spec, policy = self.spec, self.policy
        actors = self._actors(buffer)
        noise = self._noise(nth)
        record = _Record(spec.num_steps, self.size, policy)
        episodes = Episodes([], [])
        with torch.no_grad():
            for t in range(spec.num_steps):
                obs = record.observe(t, self.obs)
                sampled, means = actors.act(obs, torch.from_numpy(noise[t]).to(policy.device))
                action, mean, log_std = (x.cpu().numpy() for x in (sampled, means, actors.log_std))
                next_obs, reward, terminated, truncated, _ = self.env.step(self.taken(action))
                done = terminated | truncated
                record.write(t, action, mean, log_std, self.assigned, reward, terminated, truncated)
                self.episode_return += reward
                self.episode_length += 1
                over, last = done.any(), t == spec.num_steps - 1
                if over or last:
                    record.write_final(t, done | last, next_obs)
                self.obs = next_obs
                if over:
                    episodes.returns += self.episode_return[done].tolist()
                    episodes.lengths += self.episode_length[done].tolist()
                    self._reset(done)
                if not last and (asked := versions(t + 1, done)) is not None:
                    self.assigned = asked
                    actors = self._actors(buffer)
        return record, episodes

    def _noise(self, nth: int) -> NDArray[np.float32]:
        """[num_steps, size, A]: of `num_envs` environments at a time, the columns of its own."""
        spec = self.spec
        block, column = divmod(self.first, spec.num_envs)
        which = (nth, block) if block else (nth,)
        shape = spec.num_steps, spec.num_envs
        if self.size == spec.num_envs:
            return _drawn(self.policy.density, spec.seed, which, shape)
        return _kept(self.policy.density, spec.seed, which, shape)[:, column : column + self.size]

    def _draw(self, phase: int, *index: int, used: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        if self.spec.mechanism == "replay":  # the newest acts; staleness comes from the stored data
            return np.full(self.spec.num_envs, phase, dtype=np.int64)
        return self.lags.draw(phase, self.spec.num_envs, *index, used=used).starts

    def _assign(self, buffer: PolicyBuffer, phase: int) -> None:
        if self.spec.assignment == "phase" or phase == 0:
            self.assigned = self._draw(phase)
        else:  # an actor keeps its version while its episode lasts, the buffer holds it and no sync comes
            kept = [v for v in range(self.lags.oldest(phase), phase + 1) if v in buffer]
            fresh = (self.episode_length == 0) | ~np.isin(self.assigned, kept)
            self.assigned = np.where(fresh, self._draw(phase, used=fresh), self.assigned)

    def _actors(self, buffer: PolicyBuffer) -> BatchedPolicies:
        used, position = np.unique(self.assigned, return_inverse=True)
        return BatchedPolicies(self.policy, [self._as_acted(buffer[v]) for v in used.tolist()], position)

    def _as_acted(self, version: Version) -> Version:
        if self.spec.observation_statistics != "shared_live":
            return version
        live = {"mean": self.policy.mean, "inverse_std": self.policy.inverse_std}
        return replace(version, tensors={**version.tensors, **live})

    @torch.no_grad()
    def _mixture(self, buffer: PolicyBuffer, phase: int, record: _Record) -> Tensor:
        weights = self.lags.probabilities(phase) if self.spec.mechanism == "reexecute" else {phase: 1.0}
        versions = [self._as_acted(buffer[v]) for v in sorted(weights)]
        obs, action = (record.tensor(each).flatten(0, 1) for each in (record.obs, record.action))
        logp = mixture_logp(self.policy, versions, [weights[v] for v in sorted(weights)], obs, action)
        return logp.view(record.version.shape)

    def _reset(self, mask: NDArray[np.bool_]) -> None:
        self.obs, _ = self.env.reset(options={"reset_mask": mask})
        self.episode_return[mask] = 0.0
        self.episode_length[mask] = 0

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name) for name in ("obs", "episode_return", "episode_length", "assigned")}
        env_state = self.env.get_state()  # type: ignore[attr-defined]
        return {key: _tensors(value) for key, value in (("arrays", arrays), ("env", env_state))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tensor in state["arrays"].items():
            setattr(self, name, tensor.numpy())
        self.env.set_state({k: v.numpy() for k, v in state["env"].items()})  # type: ignore[attr-defined]


class _Record:
    """Time-major arrays that one phase is written into."""

    def __init__(self, steps: int, envs: int, policy: MLPPolicy) -> None:
        def empty(*shape: int) -> NDArray[np.float32]:
            return np.empty((steps, envs, *shape), dtype=np.float32)

        self.device, self.density = policy.device, policy.density
        self.obs, self.action = empty(policy.obs_dim), empty(policy.density.columns)
        self.mean, self.log_std = empty(policy.act_dim), empty(policy.density.deviations)
        self.version = np.empty((steps, envs), dtype=np.int64)
        self.reward = np.empty((steps, envs))
        self.terminated = np.empty((steps, envs), dtype=bool)
        self.truncated = np.empty((steps, envs), dtype=bool)
        self.final: list[tuple[NDArray[np.float32], NDArray[np.int64], int]] = []

    def observe(self, t: int, obs: NDArray[np.float64]) -> Tensor:
        """Write the observations of a step down, in single precision; they are acted on as written."""
        self.obs[t] = obs
        return self.tensor(self.obs[t])

    def write(
        self,
        t: int,
        action: NDArray[np.float32],
        mean: NDArray[np.float32],
        log_std: NDArray[np.float32],
        version: NDArray[np.int64],
        reward: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        self.action[t], self.mean[t], self.log_std[t] = action, mean, log_std
        self.version[t], self.reward[t] = version, reward
        self.terminated[t], self.truncated[t] = terminated, truncated

    def tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def write_final(self, t: int, cut: NDArray[np.bool_], next_obs: NDArray[np.float64]) -> None:
        rows = np.flatnonzero(cut)
        self.final.append((next_obs[rows].astype(np.float32), rows, t))

    def rollout(self, versions: dict[int, Version], mixture: Tensor | None, policy: MLPPolicy) -> Rollout:
        """What was written, by rows. `versions`: those that acted. `mixture` [T, N]: log-probabilities in place of the
        acting version's own."""
        tensor = self.tensor
        step_of = np.vectorize(lambda v: versions[v].gradient_step, otypes=[np.int64])
        action, mean, log_std = tensor(self.action), tensor(self.mean), tensor(self.log_std)
        by_time = {
            "obs": tensor(self.obs),
            "action": action,
            "behaviour_logp": self.density.logp(action, mean, log_std) if mixture is None else mixture,
            "behaviour_mean": mean,
            "behaviour_log_std": log_std,
            "version": tensor(self.version),
            "gradient_step": tensor(step_of(self.version)),
            "reward": tensor(self.reward),
            "terminated": tensor(self.terminated),
            "truncated": tensor(self.truncated),
        }
        obs, rows, steps = (
            np.concatenate(parts) for parts in zip(*((o, r, np.full(len(r), t)) for o, r, t in self.final), strict=True)
        )
        by_time["behaviour_value"] = _values(policy, versions, by_time["obs"], self.version)
        return Rollout(
            **{name: value.transpose(0, 1).contiguous() for name, value in by_time.items()},
            final_obs=tensor(obs),
            final_row=tensor(rows),
            final_step=tensor(steps),
            final_value=_values(policy, versions, tensor(obs), self.version[steps, rows]),
        )


def _values(policy: MLPPolicy, versions: dict[int, Version], obs: Tensor, version: NDArray[np.int64]) -> Tensor:
    """V [..., 1] of observations [..., D] by the critics of the versions [...]; [..., 0] where they kept none."""
    values = obs.new_empty((*version.shape, int(policy.with_critic)))
    for v in versions if policy.with_critic else ():
        mine = torch.from_numpy(version == v).to(obs.device)
        values[mine, 0] = policy.values_then(versions[v], obs[mine])
    return values


def _drawn(density: Distribution, seed: int, which: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.float32]:
    return density.noise(stream(seed, "action", *which), *shape)


_kept = functools.lru_cache(maxsize=8)(_drawn)  # actors that share their noise ask one after the other


def _tensors(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {key: torch.from_numpy(np.ascontiguousarray(value).copy()) for key, value in arrays.items()}
