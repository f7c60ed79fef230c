"""A claim evaluated on runs: verdict, tests, and text with numbers, `{iqm vaco K=16}` becoming `0.19 [0.17, 0.20]`.

    {QUANTITY [LABEL] [OPTION=VALUE ...] [plain]}

QUANTITY is one of `quantities.py`, a measure (`evidence.measure`: score, area, return, kept, seconds) or a
column of the metrics. Options: K, env, study, over=LABEL (the difference from it, seed by seed; with as=ratio the
ratio), over_k, phases=10:50, reduce, digits, as=%, level. A cell of five runs or more has an interval; fewer are listed
in parentheses, if they are of one environment. `plain`: the number alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UserError
from .claim import ClaimPart, verdict
from .number_query import read_query
from .part_tests import PartResult, evaluate_part
from .quantities import quantity_text
from .run_measures import Evidence


def fill_numbers(text: str, evidence_of: Callable[[str], Evidence]) -> str:
    """Replace the braces of a text; `evidence_of` returns the runs of a study, the figure's own for ``""``. Raises
    `UserError` with the braces."""

    def evaluate(braces: re.Match[str]) -> str:
        try:
            query = read_query(braces[1])
            return quantity_text(query, evidence_of(query.options.get("study", "")))
        except (UserError, ValueError) as error:  # a ValueError: K=x, phases=1:y
            raise UserError(f"{braces[0]}: {error}") from None

    return re.sub(r"\{([^{}]+)\}", evaluate, text)


@dataclass(frozen=True)
class ClaimResult:
    """Verdict on a claim, with the tests behind it."""

    verdict: str  # of `claim.VOCABULARY`; empty where there is nothing to judge
    saw: str  # text with numbers
    parts: Sequence[PartResult]


def evaluate_claim(
    parts: Sequence[ClaimPart],
    saw: str,
    default_verdict: str,
    evidence_of: Callable[[str], Evidence],
    names: Mapping[str, str],
) -> ClaimResult:
    """Test the parts of a claim and fill in the text about it. Raises `UserError`.

    `verdict_without_parts`: the verdict in the file, for a claim without testable parts. `names`: {label: text}.
    """
    results = []
    for part in parts:
        try:
            results.append(evaluate_part(part, evidence_of(part.study), names))
        except UserError as error:
            raise UserError(f"part {part.says!r}: {error}") from None
    return ClaimResult(
        verdict([t.outcome for t in results]) or default_verdict, fill_numbers(saw, evidence_of), results
    )
