"""Environments that answer with what is not finite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from small_specs import small_control

from staleharness.control.evaluation import play_episodes
from staleharness.errors import Diverged
from staleharness.training.loop import simulation_of
from staleharness.training.phase_record import Scores

ENV = "NotFinite-v0"
SMALL = small_control(2, 3, 20, env=ENV, threads=1)


class NotFinite(gymnasium.Env[Any, Any]):
    """Episodes of seven steps. `what` is not finite at step `at`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, what: str, at: int, bad: float) -> None:
        self.what, self.at, self.bad = what, at, bad

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.standard_normal(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward = self.np_random.standard_normal(2, np.float32), float(action[0])
        if self.steps == self.at and self.what == "reward":
            reward = self.bad
        elif self.steps == self.at:
            observation[1] = self.bad
        over = self.steps == 7
        return observation, reward, over and self.what != "limit", over and self.what == "limit", {}


@pytest.fixture
def run_to_end() -> Iterator[Any]:
    def play(what: str, at: int, bad: float = np.nan, **changes: Any) -> list[dict[str, Any]]:
        gymnasium.registry.pop(ENV, None)
        gymnasium.register(ENV, NotFinite, kwargs={"what": what, "at": at, "bad": bad})
        simulation = simulation_of(replace(SMALL, **changes))
        records = [record.metrics for record in simulation]
        simulation.close()
        return records

    yield play
    gymnasium.registry.pop(ENV, None)


@pytest.mark.parametrize("changes", [{}, {"value_function": "behaviour"}, {"mechanism": "replay"}])
def test_what_is_seen_where_the_world_has_ended_counts_for_nothing(run_to_end: Any, changes: dict[str, Any]) -> None:
    given, sound = run_to_end("observation", 7, **changes), run_to_end("observation", 99, **changes)
    assert len(given) == 2 and given == sound


CASES = pytest.mark.parametrize(
    ("what", "at", "bad", "words"),
    [
        ("observation", 3, np.nan, "an observation"),
        ("observation", 3, np.inf, "an observation"),
        ("reward", 3, np.nan, "a reward"),
        ("reward", 7, -np.inf, "a reward"),
    ],
)


@CASES
def test_an_evaluation_names_the_environment(run_to_end: Any, what: str, at: int, bad: float, words: str) -> None:
    with pytest.raises(Diverged, match=f"^{ENV} gave {words} that is not finite in an evaluation$"):
        run_to_end(what, at, bad)


@CASES
def test_training_names_the_environment_not_the_loss_that_follows(
    run_to_end: Any, monkeypatch: pytest.MonkeyPatch, what: str, at: int, bad: float, words: str
) -> None:
    scores = Scores({"sampled": [0.0], "deterministic": [0.0]}, {"sampled": [1], "deterministic": [1]}, 2)
    monkeypatch.setattr("staleharness.control.simulation.evaluate", lambda *_: scores)
    with pytest.raises(Diverged, match=f"^{ENV} gave {words} that is not finite in phase 0$"):
        run_to_end(what, at, bad)


def test_the_value_of_a_cut_off_state_that_is_not_finite_is_refused(run_to_end: Any) -> None:
    with pytest.raises(Diverged, match=f"^{ENV} gave an observation that is not finite in phase 0$"):
        run_to_end("limit", 7)


def test_a_reward_after_an_action_that_is_not_finite_is_the_policys() -> None:
    class Vector:
        def __init__(self) -> None:
            self.num_envs = 1

        def reset(self, **_: Any) -> Any:
            return np.zeros((1, 2)), {}

        def step(self, action: Any) -> Any:
            return np.full((1, 2), np.nan), action[:, 0], np.array([False]), np.array([True]), {}

    returns, _ = play_episodes(Vector(), "Mine-v0", [0], lambda _: np.array([[np.nan]]), 10, 10)
    assert np.isnan(returns).all()
