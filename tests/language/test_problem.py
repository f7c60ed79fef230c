"""Selection of problems for training, test and warm start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from language_fixtures import Specs

from staleharness.errors import UserError
from staleharness.language.answer_grading import Grade, grade
from staleharness.language.problem import Problem, select_problems, validate_problems, warm_start_problems

PROBLEMS = [Problem(f"What is {n} + 1?", f"{n} + 1 = {n + 1}\n#### {n + 1}", str(n + 1)) for n in range(6)]


def strict(problem: Problem, text: str) -> Grade:
    return grade(text, problem.answer, "strict")


def test_only_training_problems_are_limited_in_number(spec: Specs) -> None:
    two = spec(training_problems=2)
    assert select_problems(PROBLEMS, two, "train") == PROBLEMS[:2]
    assert select_problems(PROBLEMS, two, "test") == PROBLEMS
    assert select_problems(PROBLEMS, spec(), "train") == PROBLEMS


@pytest.mark.parametrize("answer", [7, 7.5, None, "1,5", "3/4", ""])
def test_an_answer_that_is_no_number_as_text_is_refused(spec: Specs, answer: Any) -> None:
    """A decimal comma would be read as one that groups thousands: 1,5 as 15."""
    with pytest.raises(UserError, match="is not a number, written as a string"):
        select_problems([replace(PROBLEMS[0], answer=answer)], spec(), "train")
    assert select_problems([replace(PROBLEMS[0], answer="1,234.5")], spec(), "train")


def test_a_warm_start_with_others_teaches_none_that_is_trained_on(spec: Specs) -> None:
    others = spec(training_problems=2, warm_start_problems="others")
    assert warm_start_problems(PROBLEMS, PROBLEMS[:2], others, strict) == (PROBLEMS[2:], 0)
    same = spec(training_problems=2, warm_start_problems="same")
    assert warm_start_problems(PROBLEMS, PROBLEMS[:2], same, strict) == (PROBLEMS[:2], 0)
    with pytest.raises(UserError, match="no problem is left for the warm start to teach"):
        warm_start_problems(PROBLEMS[:2], PROBLEMS[:2], others, strict)


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        ([], "no problems"),
        (None, "None, not a list of problems"),
        (3, "3, not a list of problems"),
        ([*PROBLEMS, ("1 + 1?", "#### 2", "2")], "a tuple, not a Problem(question, solution, answer)"),
        ([None], "a NoneType, not a Problem(question, solution, answer)"),
        ([replace(PROBLEMS[0], question=3)], "a Problem whose question is 3, not a string"),  # type: ignore[arg-type]
        ([replace(PROBLEMS[0], solution=None)], "a Problem whose solution is None, not a string"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list_of_problems_is_one_line(problems: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        validate_problems(problems, "sums", "train")
    assert str(error.value) == f'ENV=sums: problems(spec, "train") returns {words}'
    assert validate_problems(iter(PROBLEMS), "sums", "train") == PROBLEMS


def test_answers_of_a_task_that_grades_itself_are_any_text(spec: Specs) -> None:
    red = replace(PROBLEMS[0], answer="red")
    assert select_problems([red], spec(), "train", numeric=False) == [red]
    with pytest.raises(UserError, match=r"the answer 7 to the train problem .* is not a string$"):
        select_problems([replace(red, answer=7)], spec(), "train", numeric=False)  # type: ignore[arg-type]


def test_no_equations_lead_to_an_answer_that_is_no_number() -> None:
    assert replace(PROBLEMS[0], solution="<<a=b>> so red", answer="red").in_equations is None
