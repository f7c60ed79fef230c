"""Every other gymnasium environment with flat observations, through gymnasium's own vector environment."""

from __future__ import annotations

from typing import Any, ClassVar

from staleharness.control.gymnasium_env_lookup import entry_point, find, make
from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.task import ENVS


@ENVS.register("gymnasium")
class Gymnasium(ControlTask):
    """Any gymnasium id with vectors of real numbers as observations, and such vectors or discrete choices as actions.

    `module:Id-v0` imports the module first. Options in brackets are keyword arguments of `gymnasium.make`;
    `flatten=true` flattens the observations.
    """

    paper = "Towers et al. 2024 (gymnasium)"
    fallback = True
    ids: ClassVar[dict[str, str]] = {
        "Pendulum-v1": "swing a pole up and hold it, 3 observations, 1 action, 200 steps",
        "MountainCarContinuous-v0": "rock a car out of a valley, 2 observations, 1 action, 999 steps",
        "CartPole-v1": "keep a pole up, 4 observations, 2 choices, 500 steps",
        "Acrobot-v1": "swing two links up, 6 observations, 3 choices, 500 steps",
    }
    aliases: ClassVar[dict[str, str]] = {
        "Pendulum": "Pendulum-v1",
        "MountainCarContinuous": "MountainCarContinuous-v0",
        "CartPole": "CartPole-v1",
        "Acrobot": "Acrobot-v1",
        "LunarLander": "LunarLander-v3",  # needs Box2D
    }

    @classmethod
    def find(cls, env: str) -> str | None:
        """Return the id as gymnasium spells it, or None; the module in `module:Id-v0` is imported."""
        name, bracket, options = env.partition("[")
        if (listed := super().find(name)) is not None and not bracket:
            return listed
        found = find(env if listed is None else f"{listed}{bracket}{options}")
        if found is None and "/" in name:
            raise UserError(
                f"no environment is called {env!r}: no installed package registers it under {name.rpartition('/')[0]}/ "
                "(one of another package: ENV=module:Id-v0); images are not served, so no Atari"
            )
        return found

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        """See `ControlTask.make`. Steps on one thread, whatever `threads` is; restores state by replay (`ReplayState`).

        Raises `UserError` for ids that gymnasium cannot make.
        """
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        from staleharness.control.replay_state import ReplayState

        if "mujoco" in entry_point(env):  # earlier versions of the robots, such as Hopper-v4
            from staleharness.control.mujoco.physics import log_warnings

            log_warnings()
        try:
            vector = SyncVectorEnv([lambda: make(env)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"gymnasium cannot make {env}: {' '.join(str(error).split())}") from error
        return ReplayState(vector)
