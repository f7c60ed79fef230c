"""Checks of environments: spaces, steps and time limits."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.text_formatting import plural
from ..errors import UserError, one_line, shorten, type_and_message

if TYPE_CHECKING:
    import gymnasium

# steps within which an environment without a time limit has to end an episode, to be scored
FIRST_END = 10_000


def unsupported_space(observations: object, actions: object) -> str | None:
    """The unsupported space of a single environment, and what is supported; None where both are."""
    from gymnasium.spaces import Box, Discrete

    def is_vector(space: object) -> bool:
        return (
            isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f" and space.dtype.itemsize <= 8
        )

    if not is_vector(observations):
        hint = "only flat vectors of real numbers (Box, up to float64) are supported, no images"
        return f"observations {observations}; {hint}"
    if not is_vector(actions) and not isinstance(actions, Discrete):
        return f"actions {actions}; only flat vectors of real numbers (Box) and Discrete are supported"
    if getattr(actions, "shape", None) == (0,) or getattr(actions, "n", None) == 1:
        return f"actions {actions}, which leave no choice; give a Box of at least 1 number, or Discrete of at least 2"
    return None


def sizes_of_spaces(vector: gymnasium.vector.VectorEnv) -> str:
    """Sizes of observations and actions of a single environment: `3 observations and 2 choices`."""
    observations, actions = vector.single_observation_space, vector.single_action_space
    n = getattr(actions, "n", None)
    text = plural(math.prod(actions.shape or ()), "action") if n is None else plural(int(n), "choice")
    return f"{plural(math.prod(observations.shape or ()), 'observation')} and {text}"


def normalising_wrapper(vector: gymnasium.vector.VectorEnv) -> str | None:
    """Name the first wrapper with running statistics, around a vector or its environments; None without one."""
    with _first_environment(vector) as single:
        for layer in (vector, single):
            while hasattr(layer, "env"):
                names = {base.__name__ for base in type(layer).__mro__}  # of gymnasium's four, or like them
                if names & {"NormalizeObservation", "NormalizeReward"}:
                    return type(layer).__name__
                layer = layer.env
    return None


@contextlib.contextmanager
def _first_environment(vector: gymnasium.vector.VectorEnv) -> Iterator[Any]:
    """The first environment of a vector; another one like it where it is in a process of its own. None where the vector
    shows none."""
    from gymnasium.vector import AsyncVectorEnv

    if isinstance(base := vector.unwrapped, AsyncVectorEnv):
        with contextlib.closing(base.env_fns[0]()) as single:
            yield single
    else:
        yield next(iter(getattr(base, "envs", [])), None)


def step_vector(vector: gymnasium.vector.VectorEnv, env: str, actions: NDArray[Any]) -> Any:
    """Step a vector of environments. Raises `UserError` for rewards that are not numbers and an info that is not a
    dict, from the vector or from an environment in it."""
    try:
        step = vector.step(actions)
    except Exception as error:
        if problem := _problem_of_environment(vector):
            raise UserError(f"ENV={env}: the step of an environment returns {problem}") from error
        raise
    if problem := _problem_of_step(step, (vector.num_envs,)):
        raise UserError(f"ENV={env}: the step of the vector returns {problem}")
    return step


def seeding_problem(vector: gymnasium.vector.VectorEnv) -> str | None:
    """Problem of `reset(seed=[...])` of a vector of at least two environments, and what is right. None where there is
    none, and where `reset` with the same whole number gives two starts: something other than the seed decides then."""
    last = vector.num_envs - 1
    alike, other = [3, *range(4, 3 + last), 3], [3, *range(13, 13 + last)]
    start, repeat = (_start(vector, 3) for _ in range(2))
    if not np.array_equal(start, repeat, equal_nan=True):
        return None
    rule = "take a list with one seed per environment, as evaluations give it"
    try:
        first, second = _start(vector, alike), _start(vector, other)
    except Exception as error:  # from a plugin
        return f"reset(seed={alike}) raises {type_and_message(error)}; {rule}"
    if not np.array_equal(first[0], second[0], equal_nan=True):
        return f"reset(seed={alike}) and reset(seed={other}) start the first environment differently; {rule}"
    if not np.array_equal(first[0], first[last], equal_nan=True):
        return f"reset(seed={alike}) starts environments with equal seeds differently; draw what differs from the seed"
    return None


def has_own_reset(vector: gymnasium.vector.VectorEnv) -> bool:
    """Return whether a layer of a vector has a `reset` that is neither gymnasium's nor the harness's."""
    layer: Any = vector
    while callable(reset := getattr(layer, "reset", None)):  # `env` of a vector of one's own may be a name
        if not str(getattr(reset, "__module__", "")).startswith(("gymnasium.", "staleharness.")):
            return True
        layer = getattr(layer, "env", None)
    return False


def _start(vector: Any, seed: int | list[int]) -> NDArray[Any]:
    """Return the observations [N, D] of a reset."""
    observations, _ = vector.reset(seed=seed)
    return np.array(observations)


@contextlib.contextmanager
def explain_env_errors(env: str) -> Iterator[None]:
    """Raise `UserError` where gymnasium cannot take what `step` or `reset` of an environment returns. Errors that an
    environment raises itself pass through."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        modules = [str(frame.f_globals.get("__name__")) for frame in frames]
        calls = zip(modules, frames, strict=True)
        methods = [f.f_code.co_name for name, f in calls if name.startswith(("gymnasium.vector", "gymnasium.wrappers"))]
        of_others = {name.partition(".")[0] for name in modules} - {"staleharness", "gymnasium", "numpy", "functools"}
        if of_others or not methods or methods[0] not in ("reset", "step"):
            raise
        if "unexpected keyword argument" in str(error):
            signature = "reset(self, *, seed=None, options=None)" if methods[0] == "reset" else "step(self, action)"
            raise UserError(f"ENV={env}: {type_and_message(error)}; define {signature}") from error
        values = {"reset": "an observation and an info", "step": "an observation, a reward, two flags and an info"}
        raise UserError(
            f"ENV={env}: gymnasium cannot take what {methods[0]} of an environment returns "
            f"({type_and_message(error)}); return {values[methods[0]]}, as its spaces say"
        ) from error


def _problem_of_environment(vector: gymnasium.vector.VectorEnv) -> str | None:
    """Problem of a step of the first environment in a vector; None where there is none or the step raises."""
    with contextlib.suppress(Exception):
        single: Any = vector.unwrapped.envs[0]  # type: ignore[attr-defined]
        single.reset(seed=0)
        single.action_space.seed(0)
        return _problem_of_step(single.step(single.action_space.sample()), ())
    return None


def _problem_of_step(step: Any, shape: tuple[int, ...]) -> str | None:
    """Part of a step that is wrong, and what it must be; rewards are numbers of the given shape."""
    _, reward, *flags, info = step
    rewards = np.asarray(reward)
    if rewards.shape != shape or rewards.dtype.kind not in "biuf" or isinstance(reward, list):
        numbers = f"an array of {shape[0]} numbers" if shape else "a number"
        return f"the reward {shorten(one_line(repr(reward)))}, which must be {numbers}"
    for name, flag in zip(("terminated", "truncated"), flags, strict=True):
        flags_of_all = np.asarray(flag)
        if shape and (flags_of_all.shape != shape or flags_of_all.dtype.kind != "b" or isinstance(flag, list)):
            return f"{name} {shorten(one_line(repr(flag)))}, which must be an array of {shape[0]} Booleans"
    if not isinstance(info, dict):
        return f"the info {shorten(one_line(repr(info)))}, which must be a dict"
    return None


def time_limit(vector: gymnasium.vector.VectorEnv, env: str) -> int | None:
    """Steps after which every episode is cut off, by the specification of the environments, a `TimeLimit` around them
    or that of the id in gymnasium's registry; None where none has a limit."""
    import gymnasium

    with _first_environment(vector) as single:
        specs = [getattr(vector, "spec", None), getattr(single, "spec", None), gymnasium.registry.get(env)]
        limits = [spec.max_episode_steps for spec in specs if spec]
        while isinstance(single, gymnasium.Wrapper):
            limits += [single._max_episode_steps] if isinstance(single, gymnasium.wrappers.TimeLimit) else []
            single = single.env
    return next((limit for limit in limits if limit), None)
