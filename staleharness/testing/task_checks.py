"""Contracts of environment plugins, one check per promise, run on each listed id; of language and chain plugins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.plugins import summary
from ..base.streams import global_generators_restored, seed_global_generators
from ..chain.spec import ChainSpec
from ..chain.task import ChainTask
from ..control.env_checks import seeding_problem, unsupported_space
from ..control.task import ControlTask
from ..errors import shorten
from ..language.answer_grading import Grade
from ..language.problem import Grader, Problem, validate_problems
from ..language.spec import LanguageSpec
from ..language.task import LanguageTask
from ..task import ENVS, Task
from .check_runner import parametrize, refusals_fail, run_checks

TaskCheck = Callable[[type[ControlTask], str], None]
Step = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # observation, reward, terminated, truncated

ENVS_AT_ONCE, STEPS = 3, 40


def is_listed_and_explained(family: type[Task], env: str) -> None:
    """The family is registered, with a docstring and a line on each id, and finds its ids and aliases."""
    assert family.name in ENVS and ENVS[family.name] is family, "register it with @ENVS.register('name')"
    assert summary(family) and family.__doc__ != Task.__doc__, "the first docstring line is what `list` shows"
    assert family.ids[env], "give each id a line"
    assert family.find(env) == env and family.find(env.lower()) == env
    assert all(family.find(alias) == id for alias, id in family.aliases.items())
    assert family.find("no-such-environment-v0") is None


def has_flat_boxes(family: type[ControlTask], env: str) -> None:
    """Observations [N, D] are one-dimensional Boxes, actions too [N, A] or Discrete [N]; auto-reset is DISABLED."""
    import gymnasium

    vector = _make(family, env)
    problem = unsupported_space(vector.single_observation_space, vector.single_action_space)
    assert problem is None, problem
    assert vector.num_envs == ENVS_AT_ONCE
    mode, advice = vector.metadata.get("autoreset_mode"), "make its vector with autoreset_mode=AutoresetMode.DISABLED"
    assert mode == gymnasium.vector.AutoresetMode.DISABLED, f"auto-reset is {mode}; {advice}"
    vector.close()


def steps_in_the_promised_shapes(family: type[ControlTask], env: str) -> None:
    """`step` returns finite numbers [N, D] and [N], booleans [N], and arrays that later steps do not change."""
    vector = _make(family, env)
    first, _ = vector.reset(seed=0)
    second = _play(vector, 1, seed=0)[0][0]
    copies = first.copy(), second.copy()
    obs, reward, terminated, truncated = _play(vector, STEPS, seed=1)[-1]
    assert obs.shape == first.shape == (ENVS_AT_ONCE, *vector.single_observation_space.shape)
    assert reward.shape == terminated.shape == truncated.shape == (ENVS_AT_ONCE,)
    assert terminated.dtype == truncated.dtype == bool
    assert np.isfinite(obs).all() and np.isfinite(reward).all()
    for name, observations, copy in zip(("reset", "step"), (first, second), copies, strict=True):
        assert np.array_equal(observations, copy), f"a later step changed the observations that {name} returned"
    vector.close()


def is_a_function_of_its_seed(family: type[ControlTask], env: str) -> None:
    """The same seed and actions give the same bits. Environments start differently, each by its seed, or all alike."""
    runs = []
    for seed in (0, 0, 1):
        vector = _make(family, env)
        start, _ = vector.reset(seed=seed)
        runs.append((start, _play(vector, STEPS, seed=2)))
        vector.close()
    (start, steps), (same_start, same_steps), (other_start, _) = runs
    assert np.array_equal(start, same_start), f"two resets with the seed 0 start at {start[0]} and {same_start[0]}"
    assert _equal(steps, same_steps), "the same seed and actions give other steps; draw from self.np_random alone"
    changes = not np.array_equal(start, other_start)
    alike = all((rows == rows[0]).all() for rows in (start, other_start))
    assert changes or alike, f"the seed changes nothing, but environments start at {start[0]} and {start[1]}"
    assert not (changes and alike), "all environments start alike, at another place for each seed of the vector"


def takes_a_seed_per_environment(family: type[ControlTask], env: str) -> None:
    """`reset(seed=[3, 4, 3])` seeds each environment by its own entry; with `reset_mask`, entries may be None."""
    vector = _make(family, env)
    problem = seeding_problem(vector)
    assert problem is None, problem
    if not hasattr(vector, "get_state"):  # wrapped by the harness, which gives seeds with a mask
        fresh, _ = vector.reset(seed=[3, 4, 5])
        fresh = fresh.copy()
        before = _play(vector, 1, seed=4)[-1][0].copy()
        seeds, mask = [None, 4, None], np.array([False, True, False])
        after, _ = vector.reset(seed=list(seeds), options={"reset_mask": mask.copy()})
        text = f"reset(seed={seeds}, options={{'reset_mask': {mask.tolist()}}})"
        assert np.array_equal(after[~mask], before[~mask]), f"{text} changes other environments than the second"
        assert np.array_equal(after[mask], fresh[mask]), f"{text} does not start the second environment by its seed"
    vector.close()


def resets_only_what_is_asked(family: type[ControlTask], env: str) -> None:
    """`reset(options={"reset_mask": mask})` starts the marked environments anew and leaves the others alone."""
    vector = _make(family, env)
    start = vector.reset(seed=3)[0].copy()
    before = _play(vector, 1, seed=4)[-1][0].copy()
    mask = np.array([False, True, False])
    after, _ = vector.reset(options={"reset_mask": mask})
    assert np.array_equal(after[~mask], before[~mask]), "a reset of the second environment changes the others"
    anew = not np.array_equal(after[mask], before[mask]) or np.array_equal(after[mask], start[mask])  # fixed start
    assert anew, "a reset of the second environment leaves it where it was"
    vector.close()


def goes_on_from_a_saved_state(family: type[ControlTask], env: str) -> None:
    """`set_state(get_state())` in a fresh vector goes on with the same bits, resets included.

    A vector without the two methods is wrapped by the harness, which replays the actions instead.
    """
    import torch

    from ..control.replay_state import restorable

    vector: Any = restorable(_make(family, env), env)
    vector.reset(seed=5)
    _play(vector, STEPS, seed=6)
    arrays = {key: torch.from_numpy(np.array(value, order="C")) for key, value in vector.get_state().items()}
    state = {key: array.numpy() for key, array in arrays.items()}  # as from a checkpoint
    straight = _play(vector, STEPS, seed=7)
    repeat: Any = restorable(_make(family, env), env)
    repeat.set_state(state)
    assert _equal(_play(repeat, STEPS, seed=7), straight)
    vector.close()
    repeat.close()


TASK_CHECKS: tuple[TaskCheck, ...] = (
    is_listed_and_explained,
    has_flat_boxes,
    steps_in_the_promised_shapes,
    is_a_function_of_its_seed,
    takes_a_seed_per_environment,
    resets_only_what_is_asked,
    goes_on_from_a_saved_state,
)


def check_task(family: type[ControlTask]) -> None:
    """Run every check on every id the family lists. Raises `AssertionError` that names the id and the check."""
    for env in family.ids:
        run_checks(TASK_CHECKS, env, family, env)


def parametrize_with_task_checks(families: Iterable[type[ControlTask]]) -> Any:
    """A pytest decorator: one test `(family, env, check)` for each check on each id of each family."""
    cases = [(env, family, env) for family in families for env in family.ids]
    return parametrize("family env", cases, TASK_CHECKS)


def _make(family: type[ControlTask], env: str) -> Any:
    return family().make(env, ENVS_AT_ONCE, 1)


def _play(vector: Any, steps: int, seed: int) -> list[Step]:
    """Random actions within bounds, ended environments reset by the caller."""
    vector.action_space.seed(seed)
    record: list[Step] = []
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = vector.step(vector.action_space.sample())
        record.append((obs, reward, terminated, truncated))
        if (done := terminated | truncated).any():
            vector.reset(options={"reset_mask": done})
    return record


def _equal(a: list[Step], b: list[Step]) -> bool:
    return all(np.array_equal(x, y) for left, right in zip(a, b, strict=True) for x, y in zip(left, right, strict=True))


def check_language_task(family: type[LanguageTask], env: str, data: str = "") -> None:
    """Check a language task: it is listed and explained; problems are the same each time; train and test are disjoint;
    no question or answer is empty; the worked solution earns the reward by the format's extractor or the strict one,
    or by the task's own `grade`; an empty completion does not; the same text always gets the same grade.
    """
    is_listed_and_explained(family, env)
    spec = LanguageSpec.from_dict({"env": env, "algorithm": "ppo_clip", "data": data})
    specs = [spec, replace(spec, extractor="strict")] if family.reads_numbers() else [spec]
    graders = [family().grader(each_spec) for each_spec in specs]
    with refusals_fail():
        train, test, repeat = (_problems(family, spec, split) for split in ("train", "test", "train"))
    assert train == repeat, "the problems of a split are the same, in the same order, each time"
    for problem in (*train, *test):
        assert problem.question.strip() and problem.answer.strip(), problem
        for grader in graders:
            _grade_is_fixed(grader, problem, "no answer")
        verdicts = [_grade_is_fixed(grader, problem, problem.solution) for grader in graders]
        assert any(v.correct for v in verdicts), f"its own solution earns no reward: {problem}"
        assert not family().grader(spec)(problem, "").correct, f"an empty completion earns a reward: {problem}"
    common = {p.question for p in train} & {p.question for p in test}
    assert not common, f"{len(common)} questions are in both splits, for one: {min(common)!r}"


def _problems(family: type[LanguageTask], spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
    return validate_problems(family().problems(spec, split), spec.env, split)


def _grade_is_fixed(grader: Grader, problem: Problem, text: str) -> Grade:
    """Return the grade of a text. Raises `AssertionError` where it depends on the global generators or on chance."""
    grades = []
    with global_generators_restored():
        for seed in range(2):
            seed_global_generators(seed, "grading")
            grades.append(grader(problem, text))
    first, second = grades
    assert first == second, f"grade() grades the same text {shorten(text)!r} differently: {first} and {second}"
    return first


HORIZONS = (1, 2, 5, 10)


def check_chain_task(family: type[ChainTask], env: str) -> None:
    """Check a chain task: it is listed and explained; each episode has an outcome; the success probability is the sum
    over all 2^H episodes; and the first policy succeeds with the probability that the spec says."""
    is_listed_and_explained(family, env)
    for horizon in HORIZONS:
        spec = ChainSpec.from_dict({"env": env, "algorithm": "seq_is", "horizon": horizon})
        bits = np.array(list(itertools.product((False, True), repeat=horizon)))
        outcome = family().outcome(spec, bits)
        assert outcome.shape == (2**horizon,) and outcome.dtype == bool
        p = np.random.default_rng(horizon).uniform(0.05, 0.95, horizon)
        total = float((np.where(bits, p, 1.0 - p).prod(1) * outcome).sum())
        assert abs(family().success_probability(spec, p) - total) < 1e-12
        start = np.full(horizon, family().start(spec))
        assert abs(family().success_probability(spec, start) - spec.start) < 1e-9
