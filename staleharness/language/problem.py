"""Word problems whose answer is a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from .answer_grading import number

Split = Literal["train", "test"]
_ANNOTATION = re.compile(r"<<([^<>]*)>>")


@dataclass(frozen=True)
class Problem:
    """One problem.

    solution: the worked solution, which ends in `#### <number>` as GSM8K's do.
    answer: that number as text, without thousands separators; the gold of grading.
    """

    question: str
    solution: str
    answer: str

    @property
    def steps(self) -> int:
        """Number of calculations in the worked solution, or else of its lines before the answer.

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
        if not equations or number(equations[-1].rpartition("=")[2]) != number(self.answer):
            return None
        return replace(self, solution="\n".join([*equations, f"#### {self.answer}"]))


def strip_calculator(solution: str) -> str:
    """Return `solution` without its calculator annotations `<<48/2=24>>`."""
    return _ANNOTATION.sub("", solution)
