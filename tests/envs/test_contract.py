"""Every registered environment keeps the contract, and a broken one is found out."""

from __future__ import annotations

from typing import Any

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
        import gymnasium

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


def test_the_whole_contract_in_one_call() -> None:
    check_task(ENVS["gymnasium"])
