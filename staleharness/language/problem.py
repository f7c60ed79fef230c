"""Problems with a verifiable answer, and the selection of those that a run or its warm start uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from ..errors import UserError, one_line, shorten
from .answer_grading import Grade, has_odd_commas, number

if TYPE_CHECKING:
    from .spec import LanguageSpec

Split = Literal["train", "test"]
_ANNOTATION = re.compile(r"<<([^<>]*)>>")


@dataclass(frozen=True)
class Problem:
    """One problem.

    solution: the worked solution, which ends in `#### <number>` as GSM8K's do.
    answer: that number as text, without thousands separators; the gold of grading. A task with a grader of its own may
        have any text here, and any solution that it grades as right.
    """

    question: str
    solution: str
    answer: str

    @property
    def steps(self) -> int:
        """Number of calculations in the worked solution or, if it has none, of its lines before the answer.

        Equations in the text are counted as well as annotations `<<48/2=24>>`: a fifth of GSM8K's solutions annotate
        fewer calculations than they make.
        """
        text = strip_calculator(self.solution)
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("####")]
        return max(self.solution.count("<<"), text.count("=")) or len(lines)

    @property
    def in_equations(self) -> Problem | None:
        """Problem with only the annotated calculations as its solution, a line each, as in Deng et al. 2023
        (arXiv 2311.01460); None where the last of them does not compute the answer."""
        equations = _ANNOTATION.findall(self.solution)
        gold = number(self.answer)
        if not equations or gold is None or number(equations[-1].rpartition("=")[2]) != gold:
            return None
        return replace(self, solution="\n".join([*equations, f"#### {self.answer}"]))


Grader = Callable[[Problem, str], Grade]  # of a problem and the text of a completion


def strip_calculator(solution: str) -> str:
    """Return `solution` without its calculator annotations `<<48/2=24>>`."""
    return _ANNOTATION.sub("", solution)


def validate_problems(answer: object, env: str, split: Split) -> list[Problem]:
    """Return what a task's `problems` returned for a split as a list. Raises `UserError` where it is not problems of
    three strings, or none."""
    where = f'ENV={env}: problems(spec, "{split}") returns'
    if isinstance(answer, str) or not (hasattr(answer, "__iter__") or hasattr(answer, "__getitem__")):
        raise UserError(f"{where} {shorten(one_line(repr(answer)))}, not a list of problems")
    problems: list[Problem] = list(cast("Iterable[Problem]", answer))
    if not problems:
        raise UserError(f"{where} no problems")
    for problem in problems:
        if not isinstance(problem, Problem):
            raise UserError(f"{where} a {type(problem).__name__}, not a Problem(question, solution, answer)")
        for name in ("question", "solution"):
            if not isinstance(text := getattr(problem, name), str):
                raise UserError(f"{where} a Problem whose {name} is {shorten(one_line(repr(text)))}, not a string")
    return problems


def select_problems(
    problems: Sequence[Problem], spec: LanguageSpec, split: Split, numeric: bool = True
) -> list[Problem]:
    """Return the problems of at most `most_steps` steps; for the training split, the first `training_problems`. Raises
    `UserError` where none is left, an answer is no text or, with `numeric`, not a number."""
    for problem in problems:
        answer = problem.answer
        if not isinstance(answer, str) or (numeric and (has_odd_commas(answer) or number(answer) is None)):
            form = "a number, written as a string like '1234.5'" if numeric else "a string"
            raise UserError(
                f"{spec.env}: the answer {shorten(repr(answer))} to the {split} problem "
                f"{shorten(problem.question)!r} is not {form}"
            )
    short = _with_steps(problems, spec.most_steps)
    if not short:
        raise UserError(f"every {split} problem takes more than most_steps={spec.most_steps} steps; raise it")
    return short[: spec.training_problems or None] if split == "train" else short


def _with_steps(problems: Sequence[Problem], most_steps: int) -> list[Problem]:
    return [problem for problem in problems if not most_steps or problem.steps <= most_steps]


def warm_start_problems(
    problems: Sequence[Problem], run_problems: Sequence[Problem], spec: LanguageSpec, grader: Grader
) -> tuple[list[Problem], int]:
    """Return the problems whose solutions a warm start teaches, and how many it leaves out for their solutions.

    problems: the training split; run_problems: those that the run trains on. Raises `UserError` where none is left, or
    where a solution is graded as wrong.
    """
    candidates = run_problems
    if spec.warm_start_problems == "others":
        questions = {problem.question for problem in run_problems}
        candidates = [problem for problem in problems if problem.question not in questions]
    candidates = _with_steps(candidates, spec.warm_start_most_steps)
    if not candidates:
        names = ("warm_start_problems", "warm_start_most_steps", "most_steps", "training_problems")
        settings = ", ".join(f"{name}={getattr(spec, name)}" for name in names)
        raise UserError(f"no problem is left for the warm start to teach, with {settings}")
    lessons = candidates
    if spec.warm_start_text == "equations":
        lessons = [lesson for problem in candidates if (lesson := problem.in_equations)]
        if not lessons:
            raise UserError(
                f"no training problem of {spec.env} annotates the calculation of its answer, as in <<48/2=24>>; "
                "SET=warm_start_text=solutions"
            )
    for problem in lessons:
        if not grader(problem, strip_calculator(problem.solution)).correct:
            raise UserError(
                "warm_start cannot teach solutions that are graded as wrong, such as that of "
                f"{shorten(problem.question)!r}; give another prompt_format or extractor"
            )
    return lessons, len(candidates) - len(lessons)
