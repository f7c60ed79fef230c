"""A figure's claim read against runs: its verdict, the tests behind it, and what was seen, with numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UserError
from .measured import Evidence
from .part import Part, verdict
from .quoted import filled
from .tested import Tested, hold


@dataclass(frozen=True)
class Reading:
    verdict: str  # a word of `part.VOCABULARY`; empty where there is nothing to judge
    saw: str
    tested: Sequence[Tested]


def read(
    parts: Sequence[Part], saw: str, stated: str, evidence_of: Callable[[str], Evidence], names: Mapping[str, str]
) -> Reading:
    """`stated`: the verdict of a claim that no part of the runs can test. Raises `UserError`."""
    done = []
    for part in parts:
        try:
            done.append(hold(part, evidence_of(part.study), names))
        except UserError as error:
            raise UserError(f"part {part.says!r}: {error}") from None
    return Reading(verdict([t.outcome for t in done]) or stated, filled(saw, evidence_of), done)
