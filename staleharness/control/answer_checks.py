"""Checks of every step of the environments in a vector, before gymnasium turns what they return into arrays.

A vector silently stores a flag of None as False and a reward of "1" as 1.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.vector import SyncVectorEnv, VectorEnv

from ..errors import UserError, one_line, shorten

NUMBERS = (float, int, np.float64, np.float32)
FLAGS = (bool, np.bool_)


def check_steps(vector: VectorEnv[Any, Any, Any], env: str) -> None:
    """Make the environments of a vector that steps them one after the other refuse invalid rewards and flags."""
    base = vector.unwrapped
    if isinstance(base, SyncVectorEnv):
        base.envs = [_CheckEachStep(single, env) if isinstance(single, Env) else single for single in base.envs]


class _CheckEachStep(Wrapper[Any, Any, Any, Any]):
    """An environment whose steps raise `UserError` for a reward that is not a number, or a flag that is not Boolean."""

    def __init__(self, single: Env[Any, Any], env: str) -> None:
        super().__init__(single)
        self._title = env

    def step(self, action: Any) -> Any:
        answer: Any = self.env.step(action)
        if isinstance(answer, tuple) and len(answer) == 5:  # gymnasium refuses any other
            _, reward, terminated, truncated, _ = answer
            usual = type(reward) in NUMBERS and type(terminated) in FLAGS and type(truncated) in FLAGS
            if not usual and (problem := _problem(reward, {"terminated": terminated, "truncated": truncated})):
                raise UserError(f"ENV={self._title}: the step of an environment returns {problem}")
        return answer


def _problem(reward: Any, flags: dict[str, Any]) -> str | None:
    """Part of a step that is wrong, and what it must be."""
    if _kind(reward) not in "biuf":
        return f"the reward {shorten(one_line(repr(reward)))}, which must be a number"
    for name, flag in flags.items():
        if _kind(flag) not in "biuf" or not np.isin(flag, (0, 1)).all():
            return f"{name} {shorten(one_line(repr(flag)))}, which must be True or False"
    return None


def _kind(value: Any) -> str:
    """Return the kind of a value's NumPy data type; that of objects where it has none."""
    try:
        return np.asarray(value).dtype.kind
    except (TypeError, ValueError):
        return "O"
