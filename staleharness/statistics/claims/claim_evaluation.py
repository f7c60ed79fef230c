"""Evaluation of a claim on stored runs: the tests of its parts, its verdict, and its text with numbers.

In a text `{iqm vaco K=16}` becomes `0.19 [0.17, 0.20]`:

    {QUANTITY [LABEL] [OPTION=VALUE ...] [plain]}

QUANTITY is one of `placeholder_values.py`, a measure (`study_evidence.py`: score, area, return, kept, seconds) or a
column of the metrics. Options: K, env, study, over=LABEL (the difference from it; with as=ratio the
ratio, with seeds=paired seed by seed), over_k, phases=10:50, reduce, digits, as=% or as=number, level. A cell of five
runs or more has an interval; fewer are listed in parentheses, if they are of one environment. `plain`: the number
alone.

    <each OTHER: {told ...} at K = 4; {told ...} at 16>   becomes   above OTHER at K = 4 and 16
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ...errors import UserError
from ..significance_and_power import ALPHA, holm, holm_level
from .claim_schema import ClaimPart, NumberQuery, read_query, verdict
from .part_tests import PartResult, correct_part, evaluate_part
from .placeholder_values import SIDES, quantity_text, told_difference
from .study_evidence import Evidence

T = TypeVar("T")
BRACES = r"\{([^{}]+)\}"
LISTS = r"<each ([^:<>]+): ([^<>]+)>"


@dataclass(frozen=True)
class ClaimResult:
    """Verdict on a claim, with the tests behind it."""

    verdict: str  # of `claim.VOCABULARY`; empty where there is nothing to judge
    observation: str  # text with numbers
    parts: Sequence[PartResult]
    tests: frozenset[tuple[float, float]] = frozenset()  # value and p of all tests that Holm's correction covers

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

    Holm's correction covers all tests of the parts and those whose result the text states. `default_verdict`: the
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
    text = fill_numbers(observation, evidence_of, holm_level(ps))
    return ClaimResult(verdict(outcomes) or default_verdict, text, results, frozenset(family))


def fill_numbers(text: str, evidence_of: Callable[[str], Evidence], alpha: float = ALPHA) -> str:
    """Replace the braces of a text, then its lists; `evidence_of` returns the runs of a study, the figure's own for
    ``""``.

    alpha: level of the tests behind `told`. Raises `UserError` that quotes the braces.
    """

    def evaluate(query: NumberQuery) -> str:
        return quantity_text(replace(query, alpha=alpha), evidence_of(query.options.get("study", "")))

    content = re.sub(BRACES, lambda braces: _with_query(braces[1], evaluate), text)
    return re.sub(LISTS, lambda match: _by_side(match[1], match[2].split("; ")), content)


def _by_side(other: str, places: Sequence[str]) -> str:
    """Join places, grouped by their side of `other`, so that each side is named once: `above PPO-clip's at K = 4, not
    significantly different from it at 16 and 64`. Raises `UserError` for a place without a side."""
    sides: dict[str, list[str]] = {}
    for text in places:
        side = next((side for side in SIDES if text.startswith(f"{side} ")), None)
        if side is None:
            raise UserError(f"<each {other}: ...>: {text!r} begins with none of {', '.join(SIDES)}")
        sides.setdefault(side, []).append(text.removeprefix(f"{side} "))
    pronouns = iter([other, *["it"] * len(sides)])
    lists = {side: " and ".join([", ".join(where[:-1]), where[-1]][len(where) == 1 :]) for side, where in sides.items()}
    return ", ".join(f"{side} {next(pronouns)} {where}" for side, where in lists.items())


def _with_query(words: str, function: Callable[[NumberQuery], T]) -> T:
    """Call a function with the query that is written between two braces. Raises `UserError` that names it."""
    try:
        return function(read_query(words))
    except (UserError, ValueError) as error:  # a ValueError: K=x, phases=1:y
        raise UserError(f"{{{words}}}: {error}") from None


def tests_in_text(text: str, evidence_of: Callable[[str], Evidence]) -> set[tuple[float, float]]:
    """Value and p of each difference that a text calls above, below or not significantly different."""

    def test(query: NumberQuery) -> set[tuple[float, float]]:
        if query.quantity != "told":
            return set()
        difference = told_difference(query, evidence_of(query.options.get("study", "")))
        p = difference.p_beyond("more")
        return set() if p is None else {(difference.value, p)}

    return {pair for words in re.findall(BRACES, text) for pair in _with_query(words, test)}
