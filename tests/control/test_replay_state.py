"""Resuming environments that cannot tell their state, by replaying their running episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from staleharness.control.replay_state import ReplayState, generator_from, pack, state_of, unpack
from staleharness.errors import UserError


def pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1")


class Walk(gymnasium.Env[Any, Any]):
    """A random walk that draws on every step and ends at random; `leak` takes its noise from outside
    np_random.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, leak: bool = False) -> None:
        self.noise = np.random.default_rng() if leak else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=1)
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = self.x + action + (self.noise or self.np_random).normal(size=1)
        return self.x, 0.0, bool(self.np_random.random() < 0.1), False, {}


class Mine(np.random.PCG64):
    """A generator of somebody's own."""


def sync(make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int = 3) -> ReplayState:
    return ReplayState(SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.DISABLED))


def rollout(vector: Any, steps: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays = []
    for _ in range(steps):
        action = rng.uniform(-1, 1, vector.action_space.shape).astype(np.float32)
        observation, reward, terminated, truncated, _ = vector.step(action)
        arrays += [observation, reward, terminated, truncated]
        if (done := terminated | truncated).any():
            arrays.append(vector.reset(options={"reset_mask": done})[0])
    return arrays


def assert_identical(xs: list[Any], ys: list[Any]) -> None:
    assert len(xs) == len(ys)
    assert all(x.tobytes() == y.tobytes() for x, y in zip(xs, ys, strict=True))


class Other(Walk):
    """A walk whose np_random is of another kind than gymnasium's, from the first reset with a seed on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.np_random = np.random.Generator(getattr(np.random, self.kind)(seed))
        self.x = self.np_random.normal(size=1)
        return self.x, {}


@pytest.mark.parametrize("kind", ["PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_generators_of_every_kind_are_replayed(kind: str) -> None:
    vector, other = sync(lambda: Other(kind)), sync(lambda: Other(kind))
    vector.reset(seed=4)
    rollout(vector, 37, seed=0)
    other.set_state(vector.get_state())
    assert_identical(rollout(other, 100, seed=2), rollout(vector, 100, seed=2))
    draws = vector.unwrapped.envs[0].np_random
    draws.integers(9, dtype=np.uint32)  # half of a draw of 64 bits is kept for the next
    copy = generator_from(unpack(pack([state_of(draws)]))[0])
    assert copy is not None and copy.random(9).tolist() == draws.random(9).tolist()


@pytest.mark.parametrize(
    "generator", [np.random.RandomState(0), 7, np.random.Generator(Mine())], ids=["legacy", "number", "custom bits"]
)
def test_what_cannot_be_saved_as_a_generator_is_one_line(generator: object) -> None:
    with pytest.raises(
        UserError, match=r"^the np_random of an environment is a \w+, which cannot be saved; give a numpy"
    ):
        state_of(generator)


@pytest.mark.parametrize("make", [pendulum, Walk])
@pytest.mark.parametrize("steps", [0, 1, 37, 230])
def test_a_replayed_vector_goes_on_bit_for_bit(make: Callable[[], gymnasium.Env[Any, Any]], steps: int) -> None:
    vector = sync(make)
    vector.reset(seed=4)
    rollout(vector, steps // 2, seed=0)
    vector.reset(options={"reset_mask": np.array([False, True, False])})  # so that the episodes' ages differ
    rollout(vector, steps - steps // 2, seed=1)
    state = vector.get_state()
    assert all(array.dtype.kind in "fiub" for array in state.values())
    expected = rollout(vector, 300, seed=2)
    other = sync(make)
    other.set_state(state)
    for name, array in other.get_state().items():
        np.testing.assert_array_equal(array, state[name])
    assert_identical(rollout(other, 300, seed=2), expected)
    vector.set_state(state)  # an object that has already moved on
    assert_identical(rollout(vector, 300, seed=2), expected)


class Halving(Walk):
    """A walk that changes its action in place."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        action *= 0.5
        return super().step(action)


def test_environments_may_change_their_actions_in_place() -> None:
    vector, other = sync(Halving), sync(Halving)
    vector.reset(seed=4)
    rollout(vector, 37, seed=0)
    state = vector.get_state()
    other.set_state(state)
    assert_identical(rollout(other, 50, seed=2), rollout(vector, 50, seed=2))
    for _ in range(2):
        sync(Halving).set_state(state)  # the replay leaves the state as it was


class StepCounter(Walk):
    """A walk whose rewards depend on the number of steps of all its episodes."""

    steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, _, *rest = super().step(action)
        return observation, 1.0 / self.steps, *rest


def test_rewards_that_depend_on_earlier_episodes_are_not_replayed() -> None:
    vector, other = sync(StepCounter), sync(StepCounter)
    vector.reset(seed=4)
    rollout(vector, 37, seed=0)
    state = vector.get_state()
    with pytest.raises(RuntimeError, match="did not lead back to the saved state"):
        other.set_state(state)
    del state["last_step"]  # as in checkpoints of earlier versions
    other.set_state(state)


def test_recording_changes_nothing_that_the_environments_do() -> None:
    plain, recorded = SyncVectorEnv([Walk] * 3, autoreset_mode=AutoresetMode.DISABLED), sync(Walk)
    np.testing.assert_array_equal(plain.reset(seed=1)[0], recorded.reset(seed=1)[0])
    assert_identical(rollout(plain, 100, seed=0), rollout(recorded, 100, seed=0))


def test_environments_that_were_never_seeded_are_replayed_too() -> None:
    vector, other = sync(Walk), sync(Walk)
    vector.reset()
    rollout(vector, 20, seed=0)
    other.set_state(vector.get_state())
    assert_identical(rollout(other, 50, seed=1), rollout(vector, 50, seed=1))


def test_a_state_between_episode_end_and_reset_is_restored() -> None:
    vector, other = sync(Walk), sync(Walk)
    vector.reset(seed=0)
    action = np.zeros((3, 1), np.float32)
    done = np.zeros(3, dtype=np.bool_)
    while not done.any():
        done = vector.step(action)[2]
    other.set_state(vector.get_state())
    assert_identical(
        [other.reset(options={"reset_mask": done.copy()})[0]], [vector.reset(options={"reset_mask": done})[0]]
    )
    assert_identical(rollout(other, 50, seed=1), rollout(vector, 50, seed=1))


def test_environments_in_other_processes_are_replayed_too() -> None:
    vector, other = (
        ReplayState(AsyncVectorEnv([pendulum] * 2, autoreset_mode=AutoresetMode.DISABLED, context="forkserver"))
        for _ in range(2)
    )
    vector.reset(seed=0)
    rollout(vector, 210, seed=0)
    other.set_state(vector.get_state())
    assert_identical(rollout(other, 210, seed=1), rollout(vector, 210, seed=1))
    vector.close()
    other.close()


def test_an_environment_with_a_hidden_source_of_chance_is_found_out() -> None:
    vector, other = sync(lambda: Walk(leak=True)), sync(lambda: Walk(leak=True))
    vector.reset(seed=0)
    rollout(vector, 5, seed=0)
    with pytest.raises(RuntimeError, match="not a function of their np_random and the actions"):
        other.set_state(vector.get_state())


def test_a_diverging_generator_is_detected_though_observations_agree() -> None:
    vector = sync(pendulum)
    vector.reset(seed=0)
    state = vector.get_state()
    states = unpack(state["generators"])
    state["generators"] = pack([states[1], states[1], states[2]])
    with pytest.raises(RuntimeError, match=r"environments \[0\]"):
        sync(pendulum).set_state(state)


def test_only_the_actions_of_running_episodes_are_kept() -> None:
    vector = sync(pendulum)
    vector.reset(seed=0)
    rollout(vector, 230, seed=0)  # a time limit of 200
    assert len(vector.get_state()["actions"]) == 30


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(ValueError, match="DISABLED"):
        ReplayState(SyncVectorEnv([pendulum]))
    with pytest.raises(RuntimeError, match="before the first reset"):
        sync(pendulum).get_state()
    vector = sync(pendulum, 2)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match="2 environments"):
        sync(pendulum, 3).set_state(vector.get_state())


def test_generators_survive_packing() -> None:
    generators = [np.random.Generator(np.random.PCG64(3)), None]
    assert generators[0] is not None
    generators[0].integers(0, 2**32, dtype=np.uint32)  # half of a 64-bit draw stays in the generator
    one, nothing = (generator_from(state) for state in unpack(pack([state_of(generator) for generator in generators])))
    assert nothing is None and one is not None
    np.testing.assert_array_equal(
        one.integers(0, 9, 100, dtype=np.uint32), generators[0].integers(0, 9, 100, dtype=np.uint32)
    )
