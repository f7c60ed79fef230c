"""Evaluation of a claim on stored runs: the tests of its parts, its verdict, and its text with numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UserError
from ..significance_and_power import holm, holm_level
from .claim import ClaimPart, verdict
from .claim_text import fill_numbers, tests_in_text
from .part_tests import PartResult, correct_part, evaluate_part
from .study_evidence import Evidence


@dataclass(frozen=True)
class ClaimResult:
    """Verdict on a claim, with the tests behind it."""

    verdict: str  # of `claim.VOCABULARY`; empty where there is nothing to judge
    observation: str  # text with numbers
    parts: Sequence[PartResult]

    @property
    def by_claim(self) -> dict[str, Sequence[PartResult]]:
        """Parts of each claim by its name, where the file names claims."""
        of_claims = [result for result in self.parts if result.part.role == "claim" and result.part.claim]
        names = dict.fromkeys(result.part.claim for result in of_claims)
        return {name: [result for result in of_claims if result.part.claim == name] for name in names}


def evaluate_claim(
    parts: Sequence[ClaimPart],
    observation: str,
    default_verdict: str,
    evidence_of: Callable[[str], Evidence],
    names: Mapping[str, str],
) -> ClaimResult:
    """Test the parts of a claim and fill in the text about it. Raises `UserError`.

    Holm's correction is for all tests of the parts and for those whose result the text tells. `default_verdict`: the
    verdict in the file, for a claim without testable parts. `names`: {label: text}.
    """
    results = []
    for part in parts:
        try:
            results.append(evaluate_part(part, evidence_of(part.study), names))
        except UserError as error:
            raise UserError(f"part {part.says!r}: {error}") from None
    family = tests_in_text(observation, evidence_of)
    family |= {
        (row.contrast.value, p) for r in results for row in r.rows if (p := row.p(r.part)) is not None and row.contrast
    }
    ps = [p for _, p in sorted(family)]
    p_holm = dict(zip(ps, holm(ps).tolist(), strict=True))
    results = [correct_part(result, p_holm) for result in results]
    outcomes = [r.outcome for r in results if r.part.role == "claim"]
    return ClaimResult(
        verdict(outcomes) or default_verdict, fill_numbers(observation, evidence_of, holm_level(ps)), results
    )
