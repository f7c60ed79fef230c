"""Tasks that grade completions themselves: answers of any text, the reward, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


def test_an_extractor_beside_a_task_that_grades_is_refused(spec: Specs, gradings: Gradings) -> None:
    family = find_env("word-problems")[1]
    line = error_line(lambda: family.check(spec(extractor="strict")))
    assert line == "ENV=word-problems grades completions itself; leave out extractor=strict"


def test_worked_examples_that_are_graded_as_wrong_are_refused(spec: Specs) -> None:
    examples = {"prompt_format": "lm_eval_5shot", "prompt_tokens": 512}
    line = error_line(lambda: simulation_of(spec(**examples, extractor="boxed")))
    assert line.startswith("prompt lm_eval_5shot cannot show worked examples that are graded as wrong, such as the")
