"""A vector of gymnasium MuJoCo environments: gymnasium's numbers to the last bit, physics on threads.

gymnasium's own environment object supplies the model, the spaces, the constants and the code that draws an
initial state; `Formulas` says what is observed and rewarded, on arrays with a leading axis for the
environments.
"""

from __future__ import annotations

import operator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ..replay_state import generator_from, pack, state_of, unpack
from .base_robot import Bools, Floats, Formulas
from .physics import ALL_SIMULATIONS, BatchPhysics, Indices, Physics, PoolPhysics


class MujocoVector(VectorEnv[Any, Any, Any]):
    """`num_envs` copies of the environment `env`, numbered 0 to num_envs - 1.

    env: gymnasium's own environment, unwrapped. This object takes it over.
    threads: physics threads; results do not depend on it. They start with the first reset, so a process may
        fork before that.
    max_episode_steps: time limit, after which an episode is truncated; None for none.

    Auto-reset is DISABLED: the caller resets with `options={"reset_mask": ...}`.
    Observations float64 [num_envs, obs_dim], rewards float64 [num_envs]; every returned array is the
    caller's.

    When a simulation blows up (NaN or huge numbers), MuJoCo puts it back to its default state in mid-step and
    the episode goes on, as it does in gymnasium's environments. `infos["mujoco_warning"]`, bool [num_envs],
    then says where, and MuJoCo's own message goes to the logger "mujoco".
    """

    def __init__(
        self,
        env: MujocoEnv,
        formulas: Formulas,
        num_envs: int,
        threads: int = 1,
        *,
        max_episode_steps: int | None = None,
    ) -> None:
        if num_envs < 1 or threads < 1:
            raise ValueError(f"num_envs and threads must be at least 1, got {num_envs} and {threads}")
        self.num_envs = num_envs
        self.threads = threads
        self.spec = env.spec
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._env: Any = env
        self._seconds = env.dt  # of a step; its property asks MuJoCo's model each time
        self._formulas = formulas
        self._time_limit = np.inf if max_episode_steps is None else max_episode_steps
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._has_started = np.zeros(num_envs, dtype=np.bool_)
        self._done = np.zeros(num_envs, dtype=np.bool_)
        self._resting = np.zeros(num_envs, dtype=np.bool_)
        self._elapsed_steps = np.zeros(num_envs, dtype=np.int64)
        self._observations: Floats = np.zeros(self.observation_space.shape or ())
        self._place: Floats = np.empty((num_envs, 0))
        self._intercept_draws()

    @cached_property
    def _physics(self) -> Physics:
        kind = PoolPhysics if self._formulas.contact_forces else BatchPhysics
        return kind(self._env.model, self.num_envs, self.threads, self._formulas.derived)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin new episodes everywhere, or only where `options["reset_mask"]` (bool [num_envs]) is true.

        seed: as in `SyncVectorEnv`: an integer seeds environment i with seed + i, a list gives each its own,
        None lets every generator go on. Environments that are not reset keep their last observation.
        """
        seeds: Any = [None] * self.num_envs if seed is None else seed
        if not isinstance(seeds, (list, tuple, np.ndarray)):
            seeds = [operator.index(seeds) + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise TypeError(f"options['reset_mask'] must be a bool array of shape ({self.num_envs},), got {mask!r}")
        if not mask.any():
            raise ValueError("options['reset_mask'] must be true somewhere")
        indices = np.flatnonzero(mask)
        for i in indices.tolist():
            if seeds[i] is not None:
                self._generators[i], _ = seeding.np_random(seeds[i])
        self._begin(indices)
        return self._observations.copy(), {}

    def rest(self, mask: Bools) -> None:
        """Stop stepping the environments where `mask` (bool [num_envs]) is true until they are reset: they keep their
        observation, earn 0 and end no episode. Unused physics would be the larger part of an evaluation."""
        self._resting |= mask

    def step(self, actions: NDArray[Any]) -> tuple[Floats, Floats, Bools, Bools, dict[str, Any]]:
        """One environment step everywhere, with actions [num_envs, act_dim].

        Raises `gymnasium.error.ResetNeeded` when an environment's episode is over.
        """
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions must have shape {self.action_space.shape}, got {actions.shape}")
        waiting = ~self._has_started | (self._done & ~self._resting)
        if waiting.any():
            raise gymnasium.error.ResetNeeded(f"reset environments {np.flatnonzero(waiting).tolist()} before stepping")

        reward = np.zeros(self.num_envs)
        terminated, truncated = (np.zeros(self.num_envs, dtype=np.bool_), np.zeros(self.num_envs, dtype=np.bool_))
        infos: dict[str, Any] = {}
        running: Indices = np.flatnonzero(~self._resting) if self._resting.any() else ALL_SIMULATIONS
        if isinstance(running, slice) or running.size:
            reward[running], terminated[running] = self._advance(running, actions[running])
            truncated[running] = self._elapsed_steps[running] >= self._time_limit
            if self._physics.warnings[running].any():
                infos["mujoco_warning"] = np.zeros(self.num_envs, dtype=np.bool_)
                infos["mujoco_warning"][running] = self._physics.warnings[running].any(axis=1)
        self._done = terminated | truncated
        return self._observations.copy(), reward, terminated, truncated, infos

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all arrays that later steps depend on, as plain numbers."""
        if not self._has_started.any():
            raise RuntimeError("there is no state before the first reset")
        arrays = {name: array.copy() for name, array in self._state_arrays().items()}
        return arrays | {"generators": pack([state_of(generator) for generator in self._generators])}

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "physics": self._physics.rows,
            "place": self._place,  # may be a substep behind the physics, so cannot be derived from them
            "observations": self._observations,
            "elapsed": self._elapsed_steps,
            "started": self._has_started,
            "done": self._done,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state()` of a vector of the same environment and size, whatever its number of
        threads.

        Raises `ValueError` when the state is of another shape.
        """
        arrays = {name: np.asarray(value) for name, value in state.items()}
        generators = [generator_from(state) for state in unpack(arrays.pop("generators"))]
        place = np.empty((self.num_envs, arrays["place"].shape[-1]))
        targets = self._state_arrays() | {"place": place}
        for name, target in targets.items():
            if arrays[name].shape != target.shape:
                raise ValueError(f"{name} has shape {arrays[name].shape}; these environments need {target.shape}")
        for name, target in targets.items():
            target[...] = arrays[name]
        self._place, self._generators = place, generators

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        if "_physics" in self.__dict__:
            self._physics.close()
        self._env.close()
        self._has_started[:] = False

    def _advance(self, indices: Indices, actions: NDArray[Any]) -> tuple[Floats, Bools]:
        """Step the environments `indices`; returns their rewards and terminations."""
        self._physics.fields["ctrl"][indices] = actions
        self._physics.advance(indices, self._env.frame_skip)
        d = self._data(indices)
        place = self._formulas.place(d)
        velocity = (place - self._place[indices]) / self._seconds
        self._place[indices] = place
        self._observations[indices] = self._formulas.observe(d)
        self._elapsed_steps[indices] += 1
        return self._formulas.judge(d, velocity, actions)

    def _begin(self, indices: NDArray[np.intp]) -> None:
        """Start a new episode in the environments `indices`."""
        physics = self._physics
        physics.rows[indices] = physics.initial_row
        for i in indices.tolist():
            generator = self._generators[i]
            if generator is None:
                generator, _ = seeding.np_random(None)
                self._generators[i] = generator
            self._env.np_random = generator
            self._env.reset_model()
            physics.fields["qpos"][i], physics.fields["qvel"][i] = self._drawn
        physics.advance(indices, 0)
        d = self._data(indices)
        place = self._formulas.place(d)
        if self._place.shape[1] != place.shape[1]:  # the formulas say how wide it is
            self._place = np.zeros((self.num_envs, place.shape[1]))
        self._place[indices] = place
        self._observations[indices] = self._formulas.observe(d)
        self._elapsed_steps[indices] = 0
        self._done[indices] = self._resting[indices] = False
        self._has_started[indices] = True

    def _intercept_draws(self) -> None:
        """Keep what gymnasium's `reset_model` draws and hands to `set_state`; the rest is done here."""

        def remember(qpos: Floats, qvel: Floats) -> None:
            self._drawn = qpos.copy(), qvel.copy()

        self._env.set_state = remember
        self._env._get_obs = lambda: None

    def _data(self, indices: Indices) -> SimpleNamespace:
        """The MjData fields of some environments; all of them without a copy."""
        return SimpleNamespace(**{name: field[indices] for name, field in self._physics.fields.items()})
