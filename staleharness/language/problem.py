"""A word problem whose answer is a number: what every loader and generator of the language half hands over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem.

    solution: the worked solution, which ends in `#### <number>` as GSM8K's do.
    answer: that number as text, without thousands separators; what completions are graded against.
    """

    question: str
    solution: str
    answer: str

    @property
    def steps(self) -> int:
        """Calculations in the worked solution: its annotations `<<48/2=24>>`, or else its lines before the answer."""
        lines = [line for line in self.solution.splitlines() if line.strip() and not line.startswith("####")]
        return self.solution.count("<<") or len(lines)
