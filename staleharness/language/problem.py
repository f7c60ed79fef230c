"""A question with a checkable answer: what every reward on language is computed from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One question, a worked solution that ends in `#### answer`, and the final number as text."""

    question: str
    solution: str
    answer: str
