"""Tasks that grade completions themselves: answers of any text, the reward, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from language_fixtures import Specs, error_line

from staleharness.language.answer_grading import Grade
from staleharness.language.problem import Problem
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

Gradings = list[tuple[Problem, str]]


@pytest.fixture
def gradings(monkeypatch: pytest.MonkeyPatch) -> Gradings:
    """Completions that are graded, of word-problems with words as answers: right is what has as many letters as the
    question has, modulo two."""
    family: Any = find_env("word-problems")[1]
    problems = family.problems
    pairs: Gradings = []

    def words(self: LanguageTask, spec: LanguageSpec, split: Any) -> list[Problem]:
        return [replace(problem, answer="a word") for problem in problems(self, spec, split)]

    def grade(self: LanguageTask, spec: LanguageSpec, problem: Problem, text: str) -> Grade:
        pairs.append((problem, text))
        return Grade(correct=is_right(problem, text), has_answer=len(text) > 20)

    monkeypatch.setattr(family, "problems", words)
    monkeypatch.setattr(family, "grade", grade)
    return pairs


def is_right(problem: Problem, text: str) -> bool:
    return len(problem.question) % 2 == len(text) % 2


def test_reward_and_score_are_those_of_the_task(spec: Specs, gradings: Gradings) -> None:
    simulation = simulation_of(spec())
    metrics = simulation.advance().metrics
    rollout = gradings[-12:]  # four prompts, three completions of each, after an evaluation
    assert all(len({id(problem) for problem, _ in rollout[i : i + 3]}) == 1 for i in range(0, 12, 3))
    shares = [is_right(*pair) for pair in rollout], [len(text) <= 20 for _, text in rollout]
    assert 0 < sum(shares[0]) < 12 and 0 < sum(shares[1]) < 12
    assert metrics["reward"] == pytest.approx(sum(shares[0]) / 12)
    assert metrics["unparsed"] == pytest.approx(sum(shares[1]) / 12)
    gradings.clear()
    scores = simulation.evaluate().returns["deterministic"]
    assert scores == [float(is_right(*pair)) for pair in gradings]


@pytest.fixture
def rewards(monkeypatch: pytest.MonkeyPatch, gradings: Gradings) -> list[float]:
    """Rewards of completions that are all wrong, from 0 to 1.75 by their length modulo eight, two lengths a reward."""
    earned: list[float] = []

    def grade(self: LanguageTask, spec: LanguageSpec, problem: Problem, text: str) -> Grade:
        earned.append(len(text) % 8 // 2 / 4)
        return Grade(correct=False, has_answer=True, reward=earned[-1])

    monkeypatch.setattr(find_env("word-problems")[1], "grade", grade)
    return earned


def test_training_takes_the_reward_and_scores_count_right_answers(spec: Specs, rewards: list[float]) -> None:
    simulation = simulation_of(spec(prompts=8, completions=2))
    metrics = simulation.advance().metrics
    groups = np.reshape(rewards[-16:], (8, 2))
    share = np.mean(groups[:, 0] == groups[:, 1])
    assert len(np.unique(groups)) > 2 and 0 < share < 1
    assert metrics["reward"] == pytest.approx(groups.mean())
    assert metrics["groups_without_signal"] == share
    assert metrics["grad_norm"] > 0  # the advantages differ, though all are wrong
    assert set(simulation.evaluate().returns["deterministic"]) == {0.0}


def test_dynamic_sampling_keeps_groups_whose_rewards_differ(spec: Specs, rewards: list[float]) -> None:
    simulation: Any = simulation_of(spec(dynamic_sampling=True, prompts=6, completions=2))
    simulation.buffer.push(simulation.policy.snapshot(0, 0))
    round_of_six = simulation.generator.collect(simulation.buffer, 0)
    groups = np.reshape(rewards, (-1, 2))
    mixed = groups[groups[:, 0] != groups[:, 1]]
    assert len(groups) > len(mixed) and round_of_six.dropped_groups == len(groups) - len(mixed)
    np.testing.assert_array_equal(round_of_six.completions.outcome.view(6, 2), mixed)


def test_an_extractor_beside_a_task_that_grades_is_refused(spec: Specs, gradings: Gradings) -> None:
    family = find_env("word-problems")[1]
    line = error_line(lambda: family.check(spec(extractor="strict")))
    assert line == "ENV=word-problems grades completions itself; leave out extractor=strict"


def test_worked_examples_that_are_graded_as_wrong_are_refused(spec: Specs) -> None:
    examples = {"prompt_format": "lm_eval_5shot", "prompt_tokens": 512}
    line = error_line(lambda: simulation_of(spec(**examples, extractor="boxed")))
    assert line.startswith("prompt lm_eval_5shot cannot show worked examples that are graded as wrong, such as the")
