"""Every registered environment keeps the contract, and a broken one is found out."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from staleharness.control.task import ControlTask
from staleharness.errors import UserError
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
        if self.wrong == "idle":  # a reset of one environment that resets none
            replayed.reset = lambda seed=None, options=None: (
                (replayed._observations.copy(), {}) if options else reset(seed=seed)
            )
        if self.wrong == "list":
            replayed.reset = lambda seed=None, options=None: reset(
                seed=[x + i for i, x in enumerate(seed)] if isinstance(seed, list) else seed, options=options
            )
        if self.wrong == "alias":  # each step writes into the array of the one before
            place = np.zeros((num_envs, 3), np.float32)

            def write(action: Any) -> Any:
                place[:], *rest = step(action)
                return place, *rest

            replayed.step = write
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
        ("idle", "resets_only_what_is_asked"),
        ("list", "takes_a_seed_per_environment"),
        ("alias", "steps_in_the_promised_shapes"),
        ("shape", "steps_in_the_promised_shapes"),
        ("", "is_listed_and_explained"),  # not registered
    ],
)
def test_each_check_can_fail(wrong: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokenVector, "wrong", wrong)
    assert name in {check.__name__ for check in TASK_CHECKS}
    with pytest.raises(AssertionError):
        getattr(contract, name)(BrokenVector, "BrokenVector-v0")


def test_the_contract_says_how_a_vector_stops_resetting_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokenVector, "wrong", "autoreset")
    with pytest.raises(AssertionError, match=r"NEXT_STEP; make its vector with autoreset_mode=AutoresetMode\.DISABLED"):
        contract.has_flat_boxes(BrokenVector, "BrokenVector-v0")


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


class OwnVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector of points with generators of its own, seeded in several ways."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}

    def __init__(self, num_envs: int, seeding: str) -> None:
        self.num_envs, self.seeding, self.env = num_envs, seeding, "own"  # its name
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.generators = [np.random.default_rng(i) for i in range(num_envs)]
        self.place, self.age = np.zeros((num_envs, 2)), np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            if self.seeding == "whole numbers" or (self.seeding != "one for all" and isinstance(seed, int)):
                seeds = [seed + i for i in range(self.num_envs)]
            elif self.seeding == "by place":
                seeds = [(s, i) for i, s in enumerate(seed)]
            else:
                seeds = seed if self.seeding == "right" else np.random.SeedSequence(seed).spawn(self.num_envs)
            self.generators = [np.random.default_rng(x) for x in seeds]
        for i in np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs))):
            self.place[i], self.age[i] = self.generators[i].uniform(-1.0, 1.0, 2), 0
        return self.place.copy(), {}

    def step(self, actions: Any) -> Any:
        self.place, self.age = self.place + 0.1 * np.asarray(actions), self.age + 1
        return self.place.copy(), -abs(self.place[:, 0]), self.age >= 20, np.zeros(self.num_envs, bool), {}

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place.copy()}


@pytest.mark.parametrize(
    ("seeding", "message"),
    [
        ("right", None),
        ("whole numbers", r"reset\(seed=\[3, 4, 3\]\) raises TypeError: .*list with one seed per environment"),
        (
            "one for all",
            r"reset\(seed=\[3, 4, 3\]\) and reset\(seed=\[3, 13, 14\]\) start the first .* differently; take",
        ),
        (
            "by place",
            r"reset\(seed=\[3, 4, 3\]\) starts environments with equal seeds differently; draw .* from the seed",
        ),
    ],
)
def test_a_vector_takes_a_seed_per_environment(seeding: str, message: str | None) -> None:
    task = type("Own", (ControlTask,), {"make": lambda _, env, num_envs, threads: OwnVector(num_envs, seeding)})
    if message is None:
        contract.takes_a_seed_per_environment(task, "own")
        return task.try_out("own")
    with pytest.raises(AssertionError, match=message):
        contract.takes_a_seed_per_environment(task, "own")
    with pytest.raises(
        UserError, match=f"^ENV=own: {message}".replace("3, 4, 3", "3, 3").replace("3, 13, 14", "3, 13")
    ):
        task.try_out("own")


class PerMask(OwnVector):
    """A vector that needs replay, and ignores the mask where it is given seeds."""

    get_state = property()  # type: ignore[assignment]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=None if seed else options)


def test_seeds_go_with_a_mask_where_actions_are_replayed() -> None:
    task = type("Own", (ControlTask,), {"make": lambda _, env, num_envs, threads: PerMask(num_envs, "right")})
    with pytest.raises(AssertionError, match=r"reset\(seed=\[None, 4, None\], options=.*changes other environments"):
        contract.takes_a_seed_per_environment(task, "own")


def test_draws_from_a_global_generator_are_not_refused_when_planned() -> None:
    class Global(OwnVector):
        def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
            return np.random.random((self.num_envs, 2)), {}  # noqa: NPY002 (what the test is about)

    task = type("Own", (ControlTask,), {"make": lambda _, env, num_envs, threads: Global(num_envs, "right")})
    task.try_out("own")


class Grid(gymnasium.Env[Any, Any]):
    """A grid with walls whose start is fixed, or one of several."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,))
    action_space = gymnasium.spaces.Discrete(5)
    slips = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.age = np.zeros(2, np.float32), 0
        return self.place.copy(), {}

    def step(self, action: Any) -> Any:
        move = self.np_random.integers(5) if self.slips else action
        self.place = np.clip(self.place + [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)][move], 0, 3).astype(np.float32)
        self.age += 1
        return self.place.copy(), float(self.place[0]), self.age >= 20, False, {}


@pytest.mark.parametrize("slips", [False, True])
def test_a_fixed_start_keeps_the_contract(slips: bool) -> None:
    single = type("Slippery", (Grid,), {"slips": slips})

    def make(self: ControlTask, env: str, num_envs: int, threads: int) -> Any:
        mode = gymnasium.vector.AutoresetMode.DISABLED
        return gymnasium.vector.SyncVectorEnv([single] * num_envs, autoreset_mode=mode)

    for check in TASK_CHECKS[1:]:
        check(type("Own", (ControlTask,), {"make": make}), "own")


def test_the_whole_contract_in_one_call() -> None:
    check_task(ENVS["gymnasium"])
