"""Checks of every step of the environments in a vector, before gymnasium turns what they return into arrays.

A vector silently stores a flag of None as False and a reward of "1" as 1.0.
"""

from __future__ import annotations

import weakref
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from ..errors import UserError, one_line, shorten

NUMBERS = (float, int, np.float64, np.float32)
FLAGS = (bool, np.bool_)


def check_steps(vector: VectorEnv[Any, Any, Any], env: str) -> None:
    """Make gymnasium's own vectors raise `UserError` where a step of an environment in them has an invalid reward, flag
    or info."""
    base = vector.unwrapped
    if isinstance(base, SyncVectorEnv):
        base.envs = [_CheckEachStep(single, env) if isinstance(single, Env) else single for single in base.envs]
    if isinstance(base, AsyncVectorEnv):
        _check_processes(base, env)


def _check_processes(base: Any, env: str) -> None:
    """Make an `AsyncVectorEnv` refuse invalid steps once it has the answers of all its processes."""
    pipes = [_CheckedPipe(pipe) for pipe in base.parent_pipes]
    wait: Any = weakref.WeakMethod(base.step_wait)  # a vector that is dropped ends its processes

    def step_wait(timeout: float | None = None) -> Any:
        result = wait()(timeout)
        for pipe in pipes:
            if pipe.problem:
                raise UserError(_line(env, pipe.problem))
        return result

    base.parent_pipes, base.step_wait = list(pipes), step_wait


class _CheckEachStep(Wrapper[Any, Any, Any, Any]):
    """An environment whose steps raise `UserError` where they are invalid."""

    def __init__(self, single: Env[Any, Any], env: str) -> None:
        super().__init__(single)
        self._title = env

    def step(self, action: Any) -> Any:
        answer: Any = self.env.step(action)
        if isinstance(answer, tuple) and len(answer) == 5 and (problem := _problem(*answer[1:])):  # else gymnasium's
            raise UserError(_line(self._title, problem))
        return answer


class _CheckedPipe:
    """The pipe to an environment in a process of its own. It notes an invalid step, and passes on a valid one instead:
    a vector that stops in the middle of a step cannot be closed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._steps = pipe, False
        self.problem: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)

    def send(self, message: tuple[str, Any]) -> None:
        self._steps = message[0] == "step"
        self._pipe.send(message)

    def recv(self) -> Any:
        answer, success = self._pipe.recv()
        if self._steps and success and (problem := _problem(*answer[1:])):
            self.problem = problem
            answer = answer[0], 0.0, False, False, {}
        return answer, success


def _line(env: str, problem: str) -> str:
    return f"ENV={env}: the step of an environment returns {problem}"


def _problem(reward: Any, terminated: Any, truncated: Any, info: Any) -> str | None:
    """Part of a step that is wrong, and what it must be."""
    if type(reward) not in NUMBERS and _kind(reward) not in "biuf":
        return f"the reward {shorten(one_line(repr(reward)))}, which must be a number"
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag) not in FLAGS and (_kind(flag) not in "biuf" or not np.isin(flag, (0, 1)).all()):
            return f"{name} {shorten(one_line(repr(flag)))}, which must be True or False"
    if not isinstance(info, dict):
        return f"the info {shorten(one_line(repr(info)))}, which must be a dict"
    return None


def _kind(value: Any) -> str:
    """Return the kind of a value's NumPy data type; that of objects where it has none."""
    try:
        return np.asarray(value).dtype.kind
    except (TypeError, ValueError):
        return "O"
