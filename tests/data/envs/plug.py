"""Odd environments, served by a family of their own under their gymnasium ids."""

import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from staleharness.control.task import ControlTask
from staleharness.task import ENVS

sys.path.insert(0, str(Path(__file__).resolve().parent))
import oddenvs as oddenvs


@ENVS.register("odd")
class Odd(ControlTask):
    """Odd environments."""

    ids: ClassVar[dict[str, str]] = {i: "odd" for i in gymnasium.registry if i.startswith("Odd/")}

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        def make_env() -> Any:
            return gymnasium.make(env, disable_env_checker=True)

        return SyncVectorEnv([make_env] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
