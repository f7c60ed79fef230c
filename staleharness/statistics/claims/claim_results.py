"""Numbers in a text, computed from runs: `VACO ends at {iqm vaco K=16}` becomes `VACO ends at 0.19 [0.17, 0.20]`.

    {QUANTITY [LABEL] [OPTION=VALUE ...] [plain]}

QUANTITY is one of `quantities.py`, a measure (`measured.measure`: score, area, return, kept, seconds) or a
column of the metrics. Options: K, env, study, over=LABEL (the difference from it, seed by seed; with as=ratio their
ratio), over_k, phases=10:50, reduce, digits, as=%, level. From five runs of a cell on there is an interval; fewer stand
in parentheses themselves, where they are of one environment. `plain`: the number alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UserError
from .asked import read
from .claim import ClaimPart, verdict
from .evidence import Evidence
from .part_tests import PartResult, evaluate_part
from .quantities import WORDS, number, words


def fill_numbers(text: str, evidence_of: Callable[[str], Evidence]) -> str:
    """A text with its numbers; `evidence_of` gives the runs of a study, of the figure's own by ``""``. Raises
    `UserError` naming the braces."""

    def one(found: re.Match[str]) -> str:
        try:
            asked = read(found[1])
            evidence = evidence_of(asked.options.get("study", ""))
            if asked.what in WORDS:
                return words(asked, evidence)
            return number(asked, evidence).text(asked)
        except (UserError, ValueError) as error:  # a ValueError: K=x, phases=1:y
            raise UserError(f"{{{found[1]}}}: {error}") from None

    return re.sub(r"\{([^{}]+)\}", one, text)


@dataclass(frozen=True)
class ClaimResult:
    verdict: str  # a word of `part.VOCABULARY`; empty where there is nothing to judge
    saw: str
    parts: Sequence[PartResult]


def evaluate_claim(
    parts: Sequence[ClaimPart], saw: str, stated: str, evidence_of: Callable[[str], Evidence], names: Mapping[str, str]
) -> ClaimResult:
    """`stated`: the verdict of a claim that no part of the runs can test. Raises `UserError`."""
    done = []
    for part in parts:
        try:
            done.append(evaluate_part(part, evidence_of(part.study), names))
        except UserError as error:
            raise UserError(f"part {part.says!r}: {error}") from None
    return ClaimResult(verdict([t.outcome for t in done]) or stated, fill_numbers(saw, evidence_of), done)
