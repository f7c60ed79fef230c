"""Environments of which one keeps 5 MB of each rollout of 32 steps, as a plugin file."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from staleharness.control.replay_state import ReplayState
from staleharness.control.task import ControlTask
from staleharness.task import ENVS

BYTES = 5_000_000 // 32


class Leaking(gymnasium.Env[Any, Any]):
    """A number that stands still."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, leaks: bool) -> None:
        self.leaks, self.age = leaks, 0
        self.history: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.age += 1
        if self.leaks:
            self.history.append(np.ones(BYTES, np.uint8))
        return np.zeros(1, np.float32), 0.0, False, self.age >= 16, {}


@ENVS.register("leaking")
class LeakingTask(ControlTask):
    """Environments with and without a leak."""

    ids: ClassVar[dict[str, str]] = {"Leaking-v0": "holds on to what it has seen", "Sound-v0": "does not"}

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        return ReplayState(
            SyncVectorEnv([lambda: Leaking(env == "Leaking-v0")] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        )
