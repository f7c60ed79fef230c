"""Base class of control plugins: a vector of environments for one of their ids."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..algorithm import make_algorithm, takes_rows
from ..base.console_log import LOGGER
from ..base.cpp_library import compiler
from ..base.system_info import memory
from ..errors import UserError, one_line, shorten
from ..lag import read_lag, schedule_of
from ..mismatch import Mismatch, read_mismatch
from ..rollout_schedule import Schedule
from ..spec import RunSpec
from ..task import Task
from .policy_io import policy_digest, policy_path, read_policy
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium


# steps within which an environment without a time limit has to end an episode, to be scored
FIRST_END = 10_000


class ControlTask(Task):
    """Gymnasium environments: observations are vectors of real numbers, actions are such vectors or a few choices."""

    kind: ClassVar[str] = "control"
    settings: ClassVar[type[RunSpec]] = ControlSpec
    provides: ClassVar[frozenset[str]] = frozenset({"closed_form", "distribution"})
    real_time: ClassVar[bool] = True
    mismatch: ClassVar[bool] = True

    entry_point: ClassVar[str] = "staleharness.control.simulation:simulation"
    preload: ClassVar[tuple[str, ...]] = (
        "staleharness.control.simulation",
        "gymnasium",
        "staleharness.control.mujoco.preload",
    )

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        super().check(spec)
        assert isinstance(spec, ControlSpec)
        if spec.start and (widths := read_policy(policy_path(spec.start)).hidden) != spec.hidden:
            raise UserError(
                f"start={spec.start}: its policy has hidden={list(widths)}, and this run {list(spec.hidden)}"
            )
        check_copies(spec)
        if not read_lag(spec.lag).drawn:
            check_actors(spec)
        if (schedule := schedule_of(spec)) is not None:
            check_schedule(spec, schedule)

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """Identify the policy that a run starts from by its content, wherever it lies."""
        assert isinstance(spec, ControlSpec)
        if not spec.start:
            return replace(spec, start_digest="")
        return replace(spec, start=str(policy_path(spec.start)), start_digest=policy_digest(policy_path(spec.start)))

    @classmethod
    def check_here(cls, spec: RunSpec) -> None:
        assert isinstance(spec, ControlSpec)
        if spec.learner != "torch":
            compiler()
        if spec.device == "cpu" and spec.least_memory > memory():
            raise UserError(
                f"hidden={list(spec.hidden)}, num_envs={spec.num_envs}, num_steps={spec.num_steps}: a run takes at "
                f"least {spec.least_memory / 1e9:,.0f} GB of memory, and this machine has {memory() / 1e9:,.0f}"
            )

    @classmethod
    def try_out(cls, env: str) -> None:
        with contextlib.closing(cls().vector(env, 1, 1)) as vector:
            vector.reset(seed=0)
            vector.single_action_space.seed(0)
            checked_step(vector, env, np.array([vector.single_action_space.sample()]))
            if time_limit(vector, env) is None:
                LOGGER.warning(
                    "gymnasium knows no time limit of %s: its episodes must end by themselves within %s steps",
                    env,
                    f"{FIRST_END:,}",
                )

    def vector(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """The environments of `make`. Raises `UserError` where its observations or actions are not supported."""
        vector = self.make(env, num_envs, threads)
        if problem := unsupported_space(vector.single_observation_space, vector.single_action_space):
            vector.close()
            raise UserError(f"ENV={env} has {problem}")
        return vector

    def make(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """`num_envs` copies of `env`, auto-reset DISABLED: `step` returns the true next observation, and the
        caller resets finished environments with `reset(options={"reset_mask": done})`.

        Observations are a Box [num_envs, obs_dim]; actions a Box [num_envs, act_dim], or Discrete. A vector that also
        has `get_state() -> dict[str, array]` and `set_state(dict)`, bit for bit, makes resumed runs
        bit-identical; without them the harness replays the actions since each environment's last reset. One that has
        `rest(mask)` is asked to step the environments of `mask` no more; evaluations are then faster.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(env, num_envs, threads)")


def unsupported_space(observations: object, actions: object) -> str | None:
    """The space of a single environment that is not supported, and what is; None where both are."""
    from gymnasium.spaces import Box, Discrete

    def is_vector(space: object) -> bool:
        return isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f"

    if not is_vector(observations):
        return f"observations {observations}; only flat vectors of real numbers (Box) are supported, no images"
    if not is_vector(actions) and not isinstance(actions, Discrete):
        return f"actions {actions}; only flat vectors of real numbers (Box) and Discrete are supported"
    return None


def checked_step(vector: gymnasium.vector.VectorEnv, env: str, actions: NDArray[Any]) -> Any:
    """Step a vector of environments. Raises `UserError` for rewards that are no numbers and an info that is no dict, of
    the vector or of an environment in it."""
    try:
        step = vector.step(actions)
    except Exception as error:
        if problem := _problem_of_environment(vector):
            raise UserError(f"ENV={env}: the step of an environment returns {problem}") from error
        raise
    if problem := _problem_of_step(step, (vector.num_envs,)):
        raise UserError(f"ENV={env}: the step of the vector returns {problem}")
    return step


def _problem_of_environment(vector: gymnasium.vector.VectorEnv) -> str | None:
    """Problem of a step of the first environment in a vector; None where it shows none or raises an error itself."""
    with contextlib.suppress(Exception):
        single: Any = vector.unwrapped.envs[0]  # type: ignore[attr-defined]
        single.reset(seed=0)
        single.action_space.seed(0)
        return _problem_of_step(single.step(single.action_space.sample()), ())
    return None


def _problem_of_step(step: Any, shape: tuple[int, ...]) -> str | None:
    """Part of a step that is wrong, and what it must be; rewards are numbers of a shape."""
    _, reward, _, _, info = step
    rewards = np.asarray(reward)
    if rewards.shape != shape or rewards.dtype.kind not in "biuf" or isinstance(reward, list):
        numbers = f"an array of {shape[0]} numbers" if shape else "a number"
        return f"the reward {shorten(one_line(repr(reward)))}, which must be {numbers}"
    if not isinstance(info, dict):
        return f"the info {shorten(one_line(repr(info)))}, which must be a dict"
    return None


def time_limit(vector: gymnasium.vector.VectorEnv, env: str) -> int | None:
    """Steps after which every episode is cut off, by the specification of the environments, a `TimeLimit` around them
    or that of the id in gymnasium's registry; None where none has a limit."""
    import gymnasium

    copies = [vector, *getattr(vector.unwrapped, "envs", [])[:1]]
    specs = [*(getattr(copy, "spec", None) for copy in copies), gymnasium.registry.get(env)]
    limits = [spec.max_episode_steps for spec in specs if spec]
    for single in copies[1:]:
        while isinstance(single, gymnasium.Wrapper):
            limits += [single._max_episode_steps] if isinstance(single, gymnasium.wrappers.TimeLimit) else []
            single = single.env
    return next((limit for limit in limits if limit), None)


def check_copies(spec: ControlSpec) -> None:
    """Raise `UserError` for a mismatch model that a policy of control cannot act under."""
    models = read_mismatch(spec.mismatch)
    of_logits = [model for model in models if model.changes_logits()]
    if any(model.truncates or type(model).temperature is Mismatch.temperature for model in of_logits):
        raise UserError(
            f"MISMATCH={spec.mismatch}: of changes of logits, actions of {spec.env} support a temperature only; give "
            "sampling[temperature=...]"
        )
    if models and spec.density == "mixture":
        raise UserError(
            f"MISMATCH={spec.mismatch} is between a version and its copy, and density=mixture asks for all versions "
            "together; give density=component"
        )


def check_actors(spec: ControlSpec) -> None:
    """Raise `UserError` for settings that actors with environments of their own do not support."""
    defaults = {"mechanism": "reexecute", "assignment": "phase", "density": "component"}
    for name, value in defaults.items():
        if (value_of_run := getattr(spec, name)) != value:
            raise UserError(f"{name}={value_of_run} is for lag models that draw in each phase; LAG={spec.lag} does not")
    if spec.warm_phases:
        raise UserError(f"warm_phases={spec.warm_phases} is for lag models that draw; LAG={spec.lag} does not")
    if spec.observation_statistics == "shared_live":
        raise UserError(
            "observation_statistics=shared_live changes what an actor sees while it acts, which no schedule records; "
            "use snapshot or frozen"
        )
    if read_lag(spec.lag).real and spec.device != "cpu":
        raise UserError(f"LAG={spec.lag} acts on the CPU, where its replay is bit-identical; use DEVICE=cpu")


def check_schedule(spec: ControlSpec, schedule: Schedule) -> None:
    """Raise `UserError` where a run on control cannot be made of a schedule."""
    if (np.diff(schedule.actor)[np.diff(schedule.group) == 0] != 0).any():
        raise UserError(f"LAG={spec.lag}: on control the rows of a group are of one actor")
    if schedule.kept.all():
        return
    if takes_rows(algorithm := make_algorithm(spec)):
        raise UserError(f"LAG={spec.lag} masks decisions out of the loss; {algorithm.name} trains on whole rows")
    for phase in range(spec.phases):
        _, loss_mask = schedule.along(schedule.trained_in(phase), spec.num_steps)
        if loss_mask.sum() < spec.minibatches:
            raise UserError(
                f"LAG={spec.lag} masks all but {loss_mask.sum()} decisions of phase {phase}, fewer than "
                f"minibatches={spec.minibatches}"
            )
