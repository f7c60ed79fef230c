"""Vectors of environments as plugins make them: what they lack is added, what would be wrong is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from known_plugins import loaded_plugins
from small_specs import small_control

from staleharness.base import cancellation
from staleharness.control import env_checks, evaluation
from staleharness.control.replay_state import ReplayState
from staleharness.control.simulation import ControlSimulation
from staleharness.control.task import ControlTask
from staleharness.errors import Interrupted, UserError
from staleharness.running.plan import plan
from staleharness.study import sweep_request
from staleharness.testing.task_checks import goes_on_from_a_saved_state

SMALL = small_control(2, 3, 20, env="Pendulum-v1", epochs=1, minibatches=1, threads=1)


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


def test_a_vector_without_state_is_resumed_by_replay() -> None:
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


class Clock(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector with a number in its state."""

    clock: Any = 0

    def step(self, actions: Any) -> Any:
        self.clock += 1
        return self.env.step(actions)

    def get_state(self) -> dict[str, Any]:
        return {**self.env.get_state(), "clock": self.clock}

    def set_state(self, state: dict[str, Any]) -> None:
        self.clock = int(state["clock"])
        self.env.set_state({name: value for name, value in state.items() if name != "clock"})


class WithClock(Plain):
    def make(self, env: str, num_envs: int, threads: int) -> Any:
        return Clock(ReplayState(super().make(env, num_envs, threads)))


def test_a_state_may_hold_numbers_but_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ControlSimulation(SMALL, WithClock()), ControlSimulation(SMALL, WithClock())
    first.advance()
    second.load_state_dict(first.state_dict())
    assert second.advance().metrics["policy_loss"] == first.advance().metrics["policy_loss"]
    goes_on_from_a_saved_state(WithClock, "Pendulum-v1")
    monkeypatch.setattr(Clock, "clock", "noon", raising=False)
    text = ControlSimulation(SMALL, WithClock())
    with pytest.raises(UserError, match="get_state of the environments returns 'clock', which is not an array of num"):
        text.state_dict()


class OwnNormaliser(gymnasium.wrappers.NormalizeReward):  # type: ignore[type-arg]
    """A wrapper of a plugin's, with gymnasium's statistics."""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # gymnasium's way to start processes
@pytest.mark.parametrize("cls", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("wrapper", [gymnasium.wrappers.NormalizeObservation, OwnNormaliser])
def test_a_wrapper_with_running_statistics_is_refused(cls: type[Any], wrapper: type[Any]) -> None:
    def make(self: ControlTask, env: str, num_envs: int, threads: int) -> Any:
        return cls([lambda: wrapper(gymnasium.make(env))] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

    task = type("Normalising", (ControlTask,), {"make": make})()
    with pytest.raises(UserError, match=f"ENV=Pendulum-v1 has the wrapper {wrapper.__name__}, whose statistics begin"):
        ControlSimulation(SMALL, task)


def test_a_vector_that_cannot_be_replayed_is_refused_early() -> None:
    with pytest.raises(UserError, match=r"cannot be replayed: .*has no get_attr"):
        ControlSimulation(SMALL, Nameless())


class Odd(gymnasium.Env[Any, Any]):
    """An environment with the spaces it is given, whose episodes end only where `length` says so."""

    def __init__(self, seen: spaces.Space[Any], taken: spaces.Space[Any], length: int = 0) -> None:
        self.observation_space, self.action_space, self.length = seen, taken, length
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(0)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), 0.0, self.steps == self.length, False, {}


FLAT = spaces.Box(-1.0, 1.0, (3,))


class OfSpaces(ControlTask):
    """A plugin's vector of `Odd`."""

    seen: spaces.Space[Any] = FLAT
    taken: spaces.Space[Any] = FLAT
    length = 0
    limit: int | None = None
    specified = True
    cls: type[Any] = SyncVectorEnv

    def make(self, env: str, num_envs: int, threads: int) -> Any:
        def make_env() -> gymnasium.Env[Any, Any]:
            made: gymnasium.Env[Any, Any] = Odd(self.seen, self.taken, self.length)
            made.spec = EnvSpec("Odd-v0", max_episode_steps=self.limit) if self.specified else None
            return made if self.limit is None else gymnasium.wrappers.TimeLimit(made, self.limit)

        return self.cls([make_env] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


ODD_OBSERVATIONS = [
    spaces.Dict({"x": FLAT}),
    spaces.Discrete(3),
    spaces.Box(-1.0, 1.0, (2, 2)),
    spaces.Box(-1.0, 1.0, ()),
    spaces.MultiBinary(3),
    spaces.Box(0, 255, (3,), np.uint8),
    spaces.Tuple((FLAT, FLAT)),
    spaces.Text(3),
]
ODD_ACTIONS = [
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
    spaces.Box(-1.0, 1.0, (2, 2)),
    spaces.Box(0, 3, (2,), np.int64),
    spaces.Dict({"x": FLAT}),
    spaces.Text(3),
]


@pytest.mark.parametrize(
    ("which", "space"),
    [*(("seen", space) for space in ODD_OBSERVATIONS), *(("taken", space) for space in ODD_ACTIONS)],
    ids=str,
)
def test_unsupported_spaces_are_one_line_in_plan_and_run(which: str, space: Any) -> None:
    task = type("Chosen", (OfSpaces,), {which: space})
    what = "observations" if which == "seen" else "actions"
    for use in (lambda: task.try_out("odd"), lambda: ControlSimulation(SMALL, task())):
        with pytest.raises(UserError, match=f"has {what} .*only flat vectors of real numbers") as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("space", [spaces.Discrete(1), spaces.Box(-1.0, 1.0, (0,))], ids=str)
def test_a_space_of_one_action_is_refused(space: Any) -> None:
    with pytest.raises(UserError, match=r"has actions .*, which leave no choice"):
        type("Chosen", (OfSpaces,), {"taken": space}).try_out("odd")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_what_has_no_time_limit_is_named_when_planned(caplog: pytest.LogCaptureFixture) -> None:
    OfSpaces.try_out("odd")
    (line,) = caplog.messages
    assert line.startswith("gymnasium knows no time limit of odd: its episodes must end by themselves")
    caplog.clear()
    type("Limited", (OfSpaces,), {"limit": 7}).try_out("Odd/Limited-v0")
    for cls in (SyncVectorEnv, AsyncVectorEnv):
        type("Wrapped", (OfSpaces,), {"limit": 7, "specified": False, "cls": cls}).try_out("Odd/Limited-v0")
    assert caplog.messages == []


def test_trying_an_environment_out_takes_the_same_action_each_time() -> None:
    actions: list[Any] = []

    class ActionRecorder(OddStep):
        def __init__(self) -> None:
            super().__init__(0.0, {})
            self.action_space = spaces.Box(-1.0, 1.0, (3,))  # not the observations', which a reset seeds

        def step(self, action: Any) -> Any:
            actions.append(action)
            return super().step(action)

    task = type("Recording", (ControlTask,), {"make": lambda *_: SyncVectorEnv([ActionRecorder])})
    for _ in range(3):
        task.try_out("odd")
    assert np.ptp(actions, axis=0).max() == 0 and len(actions) == 3


def evaluations(task: type[ControlTask]) -> Any:
    with contextlib.closing(ControlSimulation(replace(SMALL, env="odd"), task())) as simulation:
        return simulation.evaluate()


def test_an_evaluation_that_ends_no_episode_fails_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env_checks.FIRST_END <= 10_000
    monkeypatch.setattr(evaluation, "FIRST_END", 50)
    monkeypatch.setattr(evaluation, "LONGEST", 90)
    with pytest.raises(UserError, match=r"an episode of odd lasts more than 50 steps; give it a time limit"):
        evaluations(OfSpaces)
    limited = type("Limited", (OfSpaces,), {"limit": 60})
    assert evaluations(limited).lengths == {"sampled": [60], "deterministic": [60]}
    assert evaluations(type("Ends", (OfSpaces,), {"length": 40})).steps == 80


def test_an_evaluation_hears_that_its_process_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr(cancellation, "_listeners", [])
    cancellation.listen(lambda: bool(asked.append(None) or len(asked) > 2))
    with pytest.raises(Interrupted, match=r"^stopped during an evaluation of odd$"):
        evaluations(OfSpaces)
    assert len(asked) == 3


class OddStep(Odd):
    """An environment whose steps have this reward and info."""

    def __init__(self, reward: Any, info: Any) -> None:
        super().__init__(FLAT, FLAT)
        self.spec, self.answer = EnvSpec("Odd-v0", max_episode_steps=7), (reward, info)

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), self.answer[0], False, False, self.answer[1]


class OddVector(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector whose steps have this reward and info, whatever its environments say."""

    def __init__(self, env: Any, reward: Any, info: Any) -> None:
        super().__init__(env)
        self.answer = reward, info

    def step(self, actions: Any) -> Any:
        observation, _, terminated, truncated, _ = super().step(actions)
        return observation, self.answer[0], terminated, truncated, self.answer[1]

    def get_attr(self, name: str) -> Any:
        return self.env.get_attr(name)


def task_that_answers(joined: bool, answer: Callable[[int], tuple[Any, Any]]) -> type[ControlTask]:
    def make(self: ControlTask, env: str, num_envs: int, threads: int) -> Any:
        own = (0.0, {}) if joined else answer(num_envs)
        vector = SyncVectorEnv([lambda: OddStep(*own)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        return OddVector(vector, *answer(num_envs)) if joined else vector

    return type("Answering", (ControlTask,), {"make": make})


@pytest.mark.parametrize(
    ("joined", "answer", "said"),
    [
        (False, lambda n: (0.0, None), "environment returns the info None, which must be a dict"),
        (False, lambda n: (np.zeros(2), {}), "environment returns the reward array([0., 0.]), which must be a number"),
        (False, lambda n: ("high", {}), "environment returns the reward 'high', which must be a number"),
        (False, lambda n: ([0.0, 0.5], {}), "environment returns the reward [0.0, 0.5], which must be a number"),
        (True, lambda n: (np.zeros(n), None), "vector returns the info None, which must be a dict"),
        (True, lambda n: (0.0, {}), "vector returns the reward 0.0, which must be an array of {n} numbers"),
        (True, lambda n: ([0.5] * n, {}), "vector returns the reward {reward}, which must be an array of {n} numbers"),
        (True, lambda n: (np.array([None] * n), {}), "None], dtype=object), which must be an array of {n} numbers"),
        (True, lambda n: (np.zeros((n, 2)), {}), "[0., 0.]]), which must be an array of {n} numbers"),
    ],
)
def test_a_wrong_reward_or_info_is_one_line_in_plan_and_run(joined: bool, answer: Any, said: str) -> None:
    task, run = task_that_answers(joined, answer), replace(SMALL, env="odd")
    for n, use in ((1, lambda: task.try_out("odd")), (2, lambda: ControlSimulation(run, task()).advance())):
        with pytest.raises(UserError, match=r"^ENV=odd: the step of (an environment|the vector) returns ") as caught:
            use()
        assert str(caught.value).endswith(said.format(n=n, reward=answer(n)[0])) and "\n" not in str(caught.value)


def test_what_a_step_raises_itself_passes_unchanged() -> None:
    class Raises(OddStep):
        def step(self, action: Any) -> Any:
            raise ValueError("the floor is wet")

    task = type("Raising", (ControlTask,), {"make": lambda *_: SyncVectorEnv([lambda: Raises(0.0, {})])})
    with pytest.raises(ValueError, match="the floor is wet"):
        task.try_out("odd")


@pytest.mark.parametrize("limit", [0, 9])
@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("step", None, "NoneType"),
        ("step", (np.zeros(3), 0.0, False, {}), "expected 5, got 4"),
        ("step", (np.zeros(7), 0.0, False, False, {}), "shape"),
        ("reset", None, "NoneType"),
        ("reset", np.zeros(7), "to unpack"),
        ("reset", (np.zeros(7), {}), "shape"),
    ],
)
def test_a_wrong_answer_in_the_middle_of_a_run_is_one_line(method: str, answer: Any, said: str, limit: int) -> None:
    class Late(Odd):
        calls = 0

        def __init__(self) -> None:
            super().__init__(FLAT, FLAT)

        def reset(self, **options: Any) -> Any:
            Late.calls += method == "reset"
            return answer if Late.calls > 2 and method == "reset" else (np.zeros(3), {})

        def step(self, action: Any) -> Any:
            Late.calls += method == "step"
            return answer if Late.calls > 12 and method == "step" else (np.zeros(3), 0.0, Late.calls % 5 > 3, False, {})

    def single() -> Any:
        return gymnasium.wrappers.TimeLimit(Late(), limit) if limit else Late()

    def make(self: Any, env: str, num_envs: int, threads: int) -> Any:
        return SyncVectorEnv([single] * num_envs, autoreset_mode=AutoresetMode.DISABLED)

    task = type("LateTask", (ControlTask,), {"make": make})
    with pytest.raises(UserError, match=f"^ENV=odd: gymnasium cannot take what {method} of") as caught:
        ControlSimulation(replace(SMALL, env="odd"), task()).advance()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_the_listed_ids_of_a_plugin_are_tried_out_when_planned(tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(PLUGIN)
    with loaded_plugins(tmp_path), pytest.raises(UserError, match="ENV=Bits-v0 has actions MultiBinary"):
        plan(sweep_request(env="Bits-v0", algo="ppo_clip", seeds="1"))


PLUGIN = """
import gymnasium, numpy
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from staleharness.control.task import ControlTask
from staleharness.task import ENVS


class Bits(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (3,))
    action_space = spaces.MultiBinary(2)


@ENVS.register("bits")
class BitsTask(ControlTask):
    \"\"\"Bits.\"\"\"

    ids = {"Bits-v0": "bits"}

    def make(self, env, num_envs, threads):
        return SyncVectorEnv([Bits] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
"""
