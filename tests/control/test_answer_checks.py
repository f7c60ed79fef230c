"""Rewards and flags of single environments that gymnasium would turn into numbers of another meaning."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from staleharness.control.task import ControlTask
from staleharness.errors import UserError

SPACE = Box(-1.0, 1.0, (3,), np.float32)
VECTORS = (SyncVectorEnv, AsyncVectorEnv)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # gymnasium's way to start processes


class Late(gymnasium.Env[Any, Any]):
    """An environment whose third step has this reward, these flags and this info."""

    observation_space, action_space = SPACE, SPACE

    def __init__(self, *answer: Any) -> None:
        self.answer, self.steps = answer, 0

    def reset(self, **options: Any) -> Any:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(3, np.float32), *(self.answer if self.steps == 3 else (0.0, False, False, {}))


def task_of(cls: type[Any], *answer: Any) -> ControlTask:
    def make(self: ControlTask, env: str, num_envs: int, threads: int) -> Any:
        return cls([lambda: Late(*answer)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

    return type("OfLate", (ControlTask,), {"make": make})()


def third_step(cls: type[Any], *answer: Any) -> Any:
    with contextlib.closing(task_of(cls, *answer).vector("late", 2, 1)) as vector:
        vector.reset(seed=0)
        return [vector.step(np.zeros((2, 3), np.float32)) for _ in range(3)][-1]


@pytest.mark.parametrize("cls", VECTORS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((0.0, None, False, {}), "terminated None, which must be True or False"),
        ((0.0, False, None, {}), "truncated None, which must be True or False"),
        ((0.0, "False", False, {}), "terminated 'False', which must be True or False"),
        ((0.0, 2, False, {}), "terminated 2, which must be True or False"),
        ((0.0, float("nan"), False, {}), "terminated nan, which must be True or False"),
        (("1", False, False, {}), "the reward '1', which must be a number"),
        ((np.str_("2"), False, False, {}), "the reward np.str_('2'), which must be a number"),
        ((None, False, False, {}), "the reward None, which must be a number"),
        ((0.0, False, False, None), "the info None, which must be a dict"),
    ],
)
def test_a_wrong_reward_or_flag_is_one_line_in_any_step(cls: type[Any], answer: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        third_step(cls, *answer)
    assert str(caught.value) == f"ENV=late: the step of an environment returns {said}"


@pytest.mark.parametrize("cls", VECTORS)
@pytest.mark.parametrize(
    ("answer", "reward", "terminated"),
    [
        ((1, True, False), 1.0, True),
        ((np.float32(0.5), np.bool_(True), False), 0.5, True),
        ((np.array(2.0), np.array(True), False), 2.0, True),
        ((True, 1, 0), 1.0, True),
        ((-1.0, 0.0, np.False_), -1.0, False),
    ],
)
def test_numbers_and_truth_values_of_any_type_are_taken(
    cls: type[Any], answer: Any, reward: float, terminated: bool
) -> None:
    _, rewards, flags, _, _ = third_step(cls, *answer, {})
    assert rewards.tolist() == [reward] * 2 and flags.tolist() == [terminated] * 2
