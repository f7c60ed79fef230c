"""Base class of control plugins: a vector of environments for one of their ids."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..algorithm import make_algorithm, takes_rows
from ..base.artifact_cache import check_cache
from ..base.console_log import LOGGER
from ..base.cpp_library import compiler
from ..base.system_info import memory
from ..errors import UserError, shorten
from ..lag import read_lag, schedule_of
from ..mismatch import Mismatch, read_mismatch
from ..rollout_schedule import Schedule
from ..spec import RunSpec
from ..task import Task
from ..training.method_descriptions import uses_behaviour_kl
from .env_checks import (
    FIRST_END,
    explain_env_errors,
    has_own_reset,
    normalising_wrapper,
    seeding_problem,
    sizes_of_spaces,
    step_vector,
    time_limit,
    unsupported_space,
)
from .gymnasium_env_lookup import code_digest
from .policy_io import policy_digest, policy_path, read_policy
from .spec import ControlSpec, no_closed_form

if TYPE_CHECKING:
    import gymnasium


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
        if spec.start:
            cls._check_start(spec)
        check_copies(spec)
        check_mixture(spec)
        if (reason := cls.unsuitable_method(spec)) is not None:
            raise UserError(reason)
        if not read_lag(spec.lag).drawn:
            check_actors(spec)
        if (schedule := schedule_of(spec)) is not None:
            check_schedule(spec, schedule)

    @classmethod
    def _check_start(cls, spec: ControlSpec) -> None:
        """Raise `UserError` for a policy to begin with whose networks are not those of a run."""
        policy = read_policy(policy_path(spec.start))
        if (widths := policy.hidden) != spec.hidden:
            raise UserError(
                f"start={spec.start}: its policy has hidden={list(widths)}, and this run {list(spec.hidden)}"
            )
        if policy.env == spec.env:
            return
        with contextlib.closing(cls().vector(spec.env, 1, 1)) as vector:
            if (of_policy := policy.spaces) != (of_env := sizes_of_spaces(vector)):
                raise UserError(f"start={spec.start}: its policy is for {of_policy}, and {spec.env} has {of_env}")

    @classmethod
    def unsuitable_method(cls, spec: RunSpec) -> str | None:
        assert isinstance(spec, ControlSpec)
        if not spec.mixes_versions or not uses_behaviour_kl(algorithm := make_algorithm(spec)):
            return None
        return no_closed_form(algorithm)

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """Identify the policy that a run starts from, and the file of a gymnasium id, by content, wherever it lies."""
        assert isinstance(spec, ControlSpec)
        spec = replace(spec, env_digest=code_digest(spec.env) if cls.fallback else "")
        if not spec.start:
            return replace(spec, start_digest="")
        return replace(spec, start=str(policy_path(spec.start)), start_digest=policy_digest(policy_path(spec.start)))

    @classmethod
    def check_here(cls, spec: RunSpec) -> None:
        assert isinstance(spec, ControlSpec)
        if spec.learner != "torch":
            compiler()
            check_cache()
        if spec.device == "cpu" and spec.least_memory > memory():
            raise UserError(
                f"hidden={list(spec.hidden)}, num_envs={spec.num_envs}, num_steps={spec.num_steps}: a run takes at "
                f"least {spec.least_memory / 1e9:,.0f} GB of memory, and this machine has {memory() / 1e9:,.0f}"
            )

    @classmethod
    def try_out(cls, env: str) -> None:
        with contextlib.closing(cls().vector(env, 1, 1)) as vector, explain_env_errors(env):
            vector.reset(seed=0)
            vector.single_action_space.seed(0)
            step_vector(vector, env, np.array([vector.single_action_space.sample()]))
            if time_limit(vector, env) is None:
                LOGGER.warning(
                    "gymnasium knows no time limit of %s: its episodes must end by themselves within %s steps",
                    env,
                    f"{FIRST_END:,}",
                )
            if not has_own_reset(vector):
                return
        with contextlib.closing(cls().vector(env, 2, 1)) as pair, explain_env_errors(env):
            if pair.num_envs > 1 and (problem := seeding_problem(pair)):
                raise UserError(f"ENV={env}: {problem}")

    def vector(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """The environments of `make`. Raises `UserError` where its observations or actions are not supported."""
        from .step_checks import check_steps

        vector = self.make(env, num_envs, threads)
        if problem := unsupported_space(vector.single_observation_space, vector.single_action_space):
            vector.close()
            raise UserError(f"ENV={env} has {problem}")
        if name := normalising_wrapper(vector):
            vector.close()
            raise UserError(
                f"ENV={env} has the wrapper {name}, whose statistics begin anew in each evaluation; leave it out, as "
                "runs normalise observations and rewards themselves"
            )
        check_steps(vector, env)
        return vector

    def make(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """`num_envs` copies of `env`, auto-reset DISABLED: `step` returns the true next observation, and the
        caller resets finished environments with `reset(options={"reset_mask": done})`. `reset(seed=[...])` takes a
        seed per environment, so that environments with equal seeds start alike.

        Observations are a Box [num_envs, obs_dim]; actions a Box [num_envs, act_dim], or Discrete. A vector that also
        has `get_state() -> dict[str, array]` and `set_state(dict)`, bit for bit, makes resumed runs
        bit-identical; without them the harness replays the actions since each environment's last reset. With
        `rest(mask)`, the vector is told to stop stepping the environments in `mask`; evaluations are then faster.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(env, num_envs, threads)")


def check_copies(spec: ControlSpec) -> None:
    """Raise `UserError` for a mismatch model that a policy of control cannot act under."""
    models = read_mismatch(spec.mismatch)
    of_logits = [model for model in models if model.changes_logits()]
    if any(model.truncates or type(model).temperature is Mismatch.temperature for model in of_logits):
        raise UserError(
            f"MISMATCH={spec.mismatch}: actions of {spec.env} support no change of logits but a temperature; give "
            "sampling[temperature=...]"
        )
    if models and spec.density == "mixture":
        raise UserError(
            f"MISMATCH={spec.mismatch} is between one version and its copy, and density=mixture needs all versions "
            "together; give density=component"
        )


def check_mixture(spec: ControlSpec) -> None:
    """Raise `UserError` where density=mixture would weigh slow actors by another share than they have."""
    for part in read_lag(spec.lag).parts() if spec.mixes_versions else ():
        period = getattr(part, "every", 1)
        if part.name == "slow_actors" and spec.num_envs % period:
            raise UserError(
                f"LAG={shorten(part.text)}: density=mixture counts one in {period} actors as slow, and "
                f"num_envs={spec.num_envs} is no multiple of {period}; give every={math.gcd(period, spec.num_envs)}, "
                "another num_envs, or density=component"
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
    within = np.diff(schedule.group) == 0
    if any((np.diff(column)[within] != 0).any() for column in (schedule.actor, schedule.nth)):
        raise UserError(
            f"LAG={shorten(spec.lag)}: on control, one actor has to make all rows of a group at one time; write the "
            "trace of a pipeline anew with `staleharness pipeline --out`, or simulate it with group=1"
        )
    if schedule.kept.all():
        return
    if takes_rows(algorithm := make_algorithm(spec)):
        raise UserError(
            f"LAG={spec.lag} masks decisions out of the loss, but {algorithm.name} trains on whole rows; give a lag "
            "model that masks none"
        )
    for phase in range(spec.phases):
        _, loss_mask = schedule.along(schedule.trained_in(phase), spec.num_steps)
        if loss_mask.sum() < spec.minibatches:
            raise UserError(
                f"LAG={spec.lag} masks all but {loss_mask.sum()} decisions of phase {phase}, fewer than "
                f"minibatches={spec.minibatches}; give fewer minibatches"
            )
