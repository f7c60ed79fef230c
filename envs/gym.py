"""Every other gymnasium environment with flat Box spaces, through gymnasium's own vector of environments."""

from __future__ import annotations

from typing import Any, ClassVar

from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.task import ENVS


@ENVS.register("gymnasium")
class Gymnasium(ControlTask):
    """Any gymnasium id with vectors of real numbers as observations and actions, stepped one after the
    other.
    """

    paper = "Towers et al. 2024 (gymnasium)"
    fallback = True
    ids: ClassVar[dict[str, str]] = {
        "Pendulum-v1": "swing a pole up and hold it, 3 observations, 1 action, 200 steps",
        "MountainCarContinuous-v0": "rock a car out of a valley, 2 observations, 1 action, 999 steps",
    }
    aliases: ClassVar[dict[str, str]] = {
        "Pendulum": "Pendulum-v1",
        "MountainCarContinuous": "MountainCarContinuous-v0",
    }

    @classmethod
    def find(cls, env: str) -> str | None:
        """The id as gymnasium spells it. An id that names a module to import (`module:Id-v0`) is not looked
        for.
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
        """See `ControlTask.make`. Steps on one thread, whatever `threads` says; state by replay (`ReplayState`).

        Raises `UserError` for spaces that are not one-dimensional Boxes and for ids that gymnasium cannot
        make.
        """
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        from staleharness.control.replay_state import ReplayState

        if "mujoco" in str(
            gymnasium.spec(env).entry_point
        ):  # earlier versions of the robots, Hopper-v4 and so on
            from staleharness.control.mujoco.physics import log_warnings

            log_warnings()
        try:
            vector = SyncVectorEnv(
                [lambda: gymnasium.make(env, disable_env_checker=True)] * num_envs,
                autoreset_mode=AutoresetMode.DISABLED,
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"gymnasium cannot make {env}: {' '.join(str(error).split())}") from error
        for kind, space in (
            ("observations", vector.single_observation_space),
            ("actions", vector.single_action_space),
        ):
            if (
                not isinstance(space, gymnasium.spaces.Box)
                or len(space.shape) != 1
                or space.dtype.kind != "f"
            ):
                vector.close()
                raise UserError(
                    f"{env} has {kind} {space}; only flat vectors of real numbers (Box) are served, no images"
                )
        return ReplayState(vector)
