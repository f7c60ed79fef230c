"""Which of a task's problems a run trains on and is tested on, and what a warm start teaches."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UserError, shortened
from .answers import grade, number
from .problem import Problem, strip_calculator
from .spec import LanguageSpec


def short_ones(problems: Sequence[Problem], spec: LanguageSpec, split: str) -> list[Problem]:
    """Those of at most `most_steps` steps. Raises `UserError` where none is left or an answer is no number."""
    if not problems:
        raise UserError(f"{spec.env} has no {split} problems")
    for problem in problems:
        if number(problem.answer) is None:
            raise UserError(
                f"{spec.env}: the answer {shortened(problem.answer)!r} to the {split} problem "
                f"{shortened(problem.question)!r} is not a number"
            )
    kept = [problem for problem in problems if not spec.most_steps or problem.steps <= spec.most_steps]
    if not kept:
        raise UserError(f"no {split} problem is solved in most_steps={spec.most_steps}; raise it")
    return kept


def small_ones(problems: list[Problem], spec: LanguageSpec, split: str) -> list[Problem]:
    """Those with no number above `largest_number`. Raises `UserError` where none is left."""
    kept = [
        problem for problem in problems if not spec.largest_number or problem.largest <= spec.largest_number
    ]
    if not kept:
        raise UserError(
            f"no {split} problem has only numbers up to largest_number={spec.largest_number}; raise it"
        )
    return kept


def lessons_of(
    problems: Sequence[Problem], trained: Sequence[Problem], spec: LanguageSpec, extractor: str
) -> tuple[list[Problem], int]:
    """(problems with the solutions that a warm start teaches, how many of its problems are not among them), given all
    training problems and those `trained` on. Raises `UserError` where there are none, or one would teach what the run
    then does not pay for."""
    if spec.warm_start_problems == "others":
        questions = {problem.question for problem in trained}
        chosen = [problem for problem in problems if problem.question not in questions]
        if not chosen:
            raise UserError(
                f"warm_start_problems=others, and most_steps={spec.most_steps}, largest_number={spec.largest_number} "
                "leave no problem out"
            )
    else:
        chosen = short_ones(problems, spec, "train")
    taught = chosen
    if spec.warm_start_text == "equations":
        taught = [lesson for problem in chosen if (lesson := problem.in_equations)]
        if not taught:
            raise UserError(
                f"no training problem of {spec.env} annotates the calculation of its answer, as in <<48/2=24>>; "
                "SET=warm_start_text=solutions"
            )
    for problem in taught:
        if not grade(strip_calculator(problem.solution), problem.answer, extractor).correct:
            raise UserError(
                f"warm_start cannot teach solutions that extractor {extractor} does not read, such as that of "
                f"{shortened(problem.question)!r}; give another prompt_format or extractor"
            )
    return taught, len(chosen) - len(taught)
