"""A problem whose answer can be checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A question, a worked solution, and the final number that a completion is graded against."""

    question: str
    solution: str
    answer: str  # the final number as text, without commas
