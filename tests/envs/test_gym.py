"""The fallback family: any gymnasium id with flat Box spaces."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from staleharness.errors import UserError
from staleharness.task import ENVS, find_env


def test_an_unlisted_gymnasium_id_is_found_in_any_case() -> None:
    assert find_env("cartpole-v1") == ("CartPole-v1", ENVS["gymnasium"])
    assert find_env("Pendulum") == ("Pendulum-v1", ENVS["gymnasium"])


def test_a_family_that_lists_an_id_comes_before_the_fallback() -> None:
    assert find_env("Hopper-v5")[1] is ENVS["mujoco"]
    assert find_env("Hopper-v4")[1] is ENVS["gymnasium"]


@pytest.mark.parametrize("env", ["Pendulun-v1", "Odd/None-v0", ""])
def test_an_unknown_id_is_one_line_with_the_nearest_name(env: str) -> None:
    with pytest.raises(UserError, match="no environment is called") as error:
        find_env(env)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("env", "what"),
    [
        ("Blackjack-v1", r"observations Tuple"),
        ("FrozenLake-v1", r"observations Discrete"),
        ("Hopper-v2", "cannot make"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_served_is_one_line(env: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as error:
        ENVS["gymnasium"]().vector(env, 2, 1)
    assert "\n" not in str(error.value)


def test_pictures_are_not_flattened_behind_the_users_back() -> None:
    class Picture(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (4, 4), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    gymnasium.register("TestPicture-v0", Picture)
    try:
        with pytest.raises(UserError, match=r"TestPicture-v0 has observations Box.*flat vectors.*no images"):
            ENVS["gymnasium"]().vector("TestPicture-v0", 2, 1)
    finally:
        del gymnasium.registry["TestPicture-v0"]


@pytest.mark.parametrize("env", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_the_vector_keeps_the_conventions_of_a_task(env: str) -> None:
    vector = ENVS["gymnasium"]().make(env, 3, 1)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    observation, _ = vector.reset(seed=0)
    assert observation.shape == vector.observation_space.shape == (3, *vector.single_observation_space.shape)
    observation, reward, terminated, truncated, _ = vector.step(vector.action_space.sample())
    assert reward.shape == terminated.shape == truncated.shape == (3,)
    single = gymnasium.make(env)
    np.testing.assert_array_equal(vector.reset(seed=5)[0][2], single.reset(seed=7)[0])
    vector.close()
    vector.close()
