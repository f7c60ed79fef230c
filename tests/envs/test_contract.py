"""Every registered environment keeps the contract, and a broken one is found out."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from staleharness.control.task import ControlTask
from staleharness.task import ENVS
from staleharness.testing import TASK_CHECKS, check_task, parametrize_with_task_checks
from staleharness.testing import task_checks as contract


@parametrize_with_task_checks([ENVS[name] for name in ENVS if issubclass(ENVS[name], ControlTask)])
def test_it_keeps_the_contract(family: type[ControlTask], env: str, check: Any) -> None:
    check(family, env)


class BrokenVector(ControlTask):
    """Pendulum with one thing wrong."""

    ids = {"BrokenVector-v0": "spoiled"}  # noqa: RUF012
    wrong = ""

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        from staleharness.control.replay_state import ReplayState

        mode = gymnasium.vector.AutoresetMode
        vector = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("Pendulum-v1")] * num_envs,
            autoreset_mode=mode.NEXT_STEP if self.wrong == "autoreset" else mode.DISABLED,
        )
        if self.wrong == "autoreset":
            return vector
        replayed: Any = ReplayState(vector)
        reset, step = replayed.reset, replayed.step
        if self.wrong == "seed":
            replayed.reset = lambda seed=None, options=None: reset(
                seed=0 if seed is not None else None, options=options
            )
        if self.wrong == "state":
            replayed.set_state = lambda _: replayed.reset(seed=1)
        if self.wrong == "mask":
            replayed.reset = lambda seed=None, options=None: reset(
                seed=seed, options={"reset_mask": np.ones(num_envs, bool)} if options else None
            )
        if self.wrong == "shape":

            def with_larger_space(action: Any) -> Any:
                obs, reward, *rest = step(action)
                return obs, reward[:, None], *rest

            replayed.step = with_larger_space
        return replayed


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ("autoreset", "has_flat_boxes"),
        ("state", "goes_on_from_a_saved_state"),
        ("seed", "is_a_function_of_its_seed"),
        ("mask", "resets_only_what_is_asked"),
        ("shape", "steps_in_the_promised_shapes"),
        ("", "is_listed_and_explained"),  # not registered
    ],
)
def test_each_check_can_fail(wrong: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokenVector, "wrong", wrong)
    assert name in {check.__name__ for check in TASK_CHECKS}
    with pytest.raises(AssertionError):
        getattr(contract, name)(BrokenVector, "BrokenVector-v0")


class WithSpace(BrokenVector):
    """A point that any number pushes, with other spaces."""

    actions = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (1,))

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        class Point(gymnasium.Env[Any, Any]):
            action_space, observation_space = self.actions, self.observations

            def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
                super().reset(seed=seed)
                self.place = self.np_random.random(1, np.float32)
                return self.place, {}

            def step(self, action: Any) -> Any:
                self.place = self.place + np.tanh(action)
                return self.place, 0.0, False, False, {}

        return gymnasium.vector.SyncVectorEnv(
            [Point] * num_envs, autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED
        )


def test_actions_without_bounds_are_tried() -> None:
    for check in TASK_CHECKS[1:]:
        check(WithSpace, "BrokenVector-v0")


def test_spaces_that_no_run_takes_break_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WithSpace, "observations", gymnasium.spaces.Box(0, 255, (2,), np.uint8))
    with pytest.raises(AssertionError, match="only flat vectors of real numbers"):
        contract.has_flat_boxes(WithSpace, "BrokenVector-v0")


def test_the_whole_contract_in_one_call() -> None:
    check_task(ENVS["gymnasium"])
