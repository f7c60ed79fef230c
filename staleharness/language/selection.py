"""Which of a task's problems a run trains on and is tested on, and what a warm start teaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..errors import UserError, shorten
from .answers import grade, number
from .problem import Problem, strip_calculator
from .spec import LanguageSpec

Split = Literal["train", "test"]


def selected(problems: Sequence[Problem], spec: LanguageSpec, split: Split) -> list[Problem]:
    """Those of at most `most_steps` steps, of the training split the first `training_problems` of them. Raises
    `UserError` where none is left or an answer is no number."""
    if not problems:
        raise UserError(f"{spec.env} has no {split} problems")
    for problem in problems:
        if number(problem.answer) is None:
            raise UserError(
                f"{spec.env}: the answer {shorten(problem.answer)!r} to the {split} problem "
                f"{shorten(problem.question)!r} is not a number"
            )
    kept = _within(problems, spec.most_steps)
    if not kept:
        raise UserError(f"no {split} problem is solved in most_steps={spec.most_steps}; raise it")
    return kept[: spec.training_problems or None] if split == "train" else kept


def _within(problems: Sequence[Problem], most_steps: int) -> list[Problem]:
    return [problem for problem in problems if not most_steps or problem.steps <= most_steps]


def lessons_of(
    problems: Sequence[Problem], trained: Sequence[Problem], spec: LanguageSpec, extractor: str
) -> tuple[list[Problem], int]:
    """(problems with the solutions that a warm start teaches, how many of its problems are not among them), given all
    training problems and those `trained` on. Raises `UserError` where there are none, or one would teach what the run
    then does not pay for."""
    chosen = trained
    if spec.warm_start_problems == "others":
        questions = {problem.question for problem in trained}
        chosen = [problem for problem in problems if problem.question not in questions]
    chosen = _within(chosen, spec.warm_start_most_steps)
    if not chosen:
        names = ("warm_start_problems", "warm_start_most_steps", "most_steps", "training_problems")
        settings = ", ".join(f"{name}={getattr(spec, name)}" for name in names)
        raise UserError(f"nothing is left for the warm start to teach, with {settings}")
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
                f"{shorten(problem.question)!r}; give another prompt_format or extractor"
            )
    return taught, len(chosen) - len(taught)
