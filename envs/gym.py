"""Every other gymnasium environment with flat observations, through gymnasium's own vector environment."""

from __future__ import annotations

from typing import Any, ClassVar

from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.task import ENVS


def is_vector(space: Any) -> bool:
    """Return whether a space holds flat vectors of real numbers."""
    import gymnasium

    return isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and space.dtype.kind == "f"


@ENVS.register("gymnasium")
class Gymnasium(ControlTask):
    """Any gymnasium id with vectors of real numbers as observations, and such vectors or a few choices as actions."""

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
        """Return the id as gymnasium spells it. An id that names a module to import (`module:Id-v0`) is not looked
        up.
        """
        if (listed := super().find(env)) is not None:
            return listed
        import gymnasium

        known = {id.lower(): id for id in gymnasium.registry}
        namespace, slash, _ = env.lower().rpartition("/")
        if slash and not any(id.startswith(f"{namespace}/") for id in known):
            raise UserError(
                f"no environment is called {env!r}: no installed package registers ids that begin with "
                f"{env.rpartition('/')[0]}/ (and images are not served, so no Atari)"
            )
        return known.get(env.lower())

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        """See `ControlTask.make`. Steps on one thread, whatever `threads` is; state by replay (`ReplayState`).

        Raises `UserError` for other spaces than flat Boxes and Discrete actions, and for ids that gymnasium cannot
        make.
        """
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        from staleharness.control.replay_state import ReplayState

        if "mujoco" in str(gymnasium.spec(env).entry_point):  # earlier versions of the robots, Hopper-v4 and so on
            from staleharness.control.mujoco.physics import log_warnings

            log_warnings()
        try:
            vector = SyncVectorEnv(
                [lambda: gymnasium.make(env, disable_env_checker=True)] * num_envs,
                autoreset_mode=AutoresetMode.DISABLED,
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"gymnasium cannot make {env}: {' '.join(str(error).split())}") from error
        spaces, seen, taken = gymnasium.spaces, vector.single_observation_space, vector.single_action_space
        for kind, space, served in (
            ("observations", seen, is_vector(seen)),
            ("actions", taken, is_vector(taken) or isinstance(taken, spaces.Discrete)),
        ):
            if not served:
                vector.close()
                raise UserError(
                    f"{env} has {kind} {space}; served are flat vectors of real numbers (Box) and Discrete actions, "
                    "no images"
                )
        return ReplayState(vector)
