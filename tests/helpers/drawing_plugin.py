"""A method and an environment that draw from global generators, as a plugin file."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.control.task import ControlTask
from staleharness.objectives import importance_ratio
from staleharness.task import ENVS


@ALGORITHMS.register("draws")
@dataclass(frozen=True)
class Draws(Algorithm):
    """Importance weighting with noise on the advantages, one number per gradient step."""

    source: Literal["python", "numpy", "torch", "all", "hash"] = "torch"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        number = {
            "python": random.random,
            "numpy": np.random.random,
            "torch": lambda: torch.rand(()).item(),
            "all": lambda: (random.random() + np.random.random() + torch.rand(()).item()) / 3,  # noqa: NPY002
            "hash": lambda: hash("a word") % 1000 / 1000,
        }
        noise = number[self.source]() - 0.5
        return PolicyLoss(-importance_ratio(d.target_logp, d.behaviour_logp) * (d.advantage + noise))


class NoisyVector(VectorEnv[Any, Any, Any]):
    """One number in each environment, pushed by the action and by noise; the force is drawn on construction."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.force = random.random()
        self.place, self.age = np.zeros((num_envs, 1)), np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        self.place[mask], self.age[mask] = np.random.normal(size=(int(mask.sum()), 1)), 0  # noqa: NPY002
        return self.place.copy(), {}

    def step(self, actions: NDArray[Any]) -> Any:
        self.place = self.place + self.force * actions + 0.1 * np.random.normal(size=self.place.shape)  # noqa: NPY002
        self.age += 1
        reward = random.random() - self.place[:, 0] ** 2
        return self.place.copy(), reward, np.zeros(self.num_envs, dtype=np.bool_), self.age >= 20, {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {"place": self.place.copy(), "age": self.age.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.age = np.array(state["place"]), np.array(state["age"])


@ENVS.register("noisy")
class Noisy(ControlTask):
    """Environments that draw from global generators."""

    ids: ClassVar[dict[str, str]] = {"Noisy-v0": "a number to hold near zero"}

    def make(self, env: str, num_envs: int, threads: int) -> VectorEnv[Any, Any, Any]:
        return NoisyVector(num_envs)
