"""Vectors of environments as plugins make them: what they lack is added, what would be wrong is refused."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.testing.tasks import goes_on_from_a_saved_state

SMALL = ControlSpec(
    env="Pendulum-v1", algorithm="ppo_clip", capacity=2, steps=120, num_envs=3, num_steps=20, epochs=1,
    minibatches=1, evaluations=1, evaluation_episodes=1, final_episodes=1, threads=1,
)  # fmt: skip


class Plain(ControlTask):
    """gymnasium's vector as it is."""

    mode = AutoresetMode.DISABLED

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        return SyncVectorEnv([lambda: gymnasium.make(env)] * num_envs, autoreset_mode=self.mode)


class NextStep(Plain):
    mode = AutoresetMode.NEXT_STEP


class SameStep(Plain):
    """A step that ends an episode returns the next one's first observation."""

    mode = AutoresetMode.SAME_STEP


class Nameless(Plain):
    """A vector that shows no environments of its own, and so no generators."""

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        vector = gymnasium.vector.VectorEnv[Any, Any, Any]()
        inner = super().make(env, num_envs, threads)
        vector.num_envs, vector.metadata = num_envs, {"autoreset_mode": self.mode}
        vector.single_action_space, vector.reset = inner.single_action_space, inner.reset
        vector.single_observation_space = inner.single_observation_space
        return vector


def test_a_vector_that_does_not_say_its_state_is_resumed_all_the_same() -> None:
    def hashes(simulation: ControlSimulation) -> list[Any]:
        return [record.metrics["policy_loss"] for record in simulation]

    straight = hashes(ControlSimulation(SMALL, Plain()))
    stopped = ControlSimulation(SMALL, Plain())
    first = stopped.advance().metrics["policy_loss"]
    resumed = ControlSimulation(SMALL, Plain())
    resumed.load_state_dict(stopped.state_dict())
    assert [first, *hashes(resumed)] == straight and len(straight) == 2
    assert np.isfinite(straight).all()
    goes_on_from_a_saved_state(Plain, "Pendulum-v1")


@pytest.mark.parametrize("task", [NextStep, SameStep])
def test_a_vector_that_resets_by_itself_is_refused(task: type[ControlTask]) -> None:
    with pytest.raises(UserError, match=r"ENV=Pendulum-v1 resets by itself .*AutoresetMode\.DISABLED"):
        ControlSimulation(SMALL, task())


def test_a_vector_that_cannot_be_replayed_is_refused_before_it_is_trained_on() -> None:
    with pytest.raises(UserError, match=r"cannot say its state .*has no get_attr"):
        ControlSimulation(SMALL, Nameless())
