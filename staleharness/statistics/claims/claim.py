"""Claims: their parts, as in the file of a figure, and their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import UserError
from ..t_tests_and_intervals import Outcome

Role = Literal["claim", "identity", "ours"]
AGREES, PARTLY, DISAGREES, CANNOT_TELL = "agrees", "partly", "disagrees", "cannot tell"
VOCABULARY = (AGREES, PARTLY, DISAGREES, CANNOT_TELL)


@dataclass(frozen=True)
class ClaimPart:
    """A testable statement: a quantity of each of `of` at each of `k` is more or less than, or alike to, that of each
    of `over`, or that at `over_k`, or a number.

    Quantities are compared per environment and averaged over environments (see `part_tests.py`).
    """

    says: str  # the statement in words
    of: tuple[str, ...] = ()  # algorithms, as the study names them
    be: Literal["more", "less", "alike"] = "more"
    what: str = "score"  # area, return, kept, seconds, warned, or a column of the metrics (`run_measures.py`)
    over: tuple[str, ...] = ()  # algorithms to compare with
    k: tuple[int, ...] = ()  # capacities; empty: the study's only one
    over_k: int | None = None  # capacity to compare with
    beyond: bool = False  # compare the difference from `over` at k with that at `over_k`
    than: float | None = None  # number to compare with, or for the difference (with `ratio` the ratio)
    margin: float = 0.0  # alike: differences up to this (of logarithms with `ratio`); more and less: beyond this;
    # negative: not worse by as much
    env: str = ""  # one environment; empty: all
    study: str = ""  # another study's runs; empty: the figure's
    phases: tuple[int, ...] = ()  # of a column of the metrics: from the first up to before the second; empty: all
    reduce: Literal["mean", "max", "geometric", "change", "jump", "turn"] = "mean"  # over those phases
    ratio: bool = False  # of positive values: their ratio is compared, by differences of logarithms
    by_seed: bool = False  # seed by seed: runs of one seed share their random numbers, or their machine
    claim: str = ""  # name of the claim that this is part of, where a figure has several: each has its verdict then
    role: Role = "claim"  # identity: true by definition; ours: nobody's claim. The verdict is that of claims alone
    untested: str = ""  # reason why no run can test it; then nothing else is given

    @property
    def text(self) -> str:
        """The statement, behind the name of its claim where it has one."""
        return f"{self.claim}: {self.says}" if self.claim else self.says

    def __post_init__(self) -> None:
        if self.untested or self.what in ("warned", "warned first"):
            return
        if not self.of or (self.than is None and not self.over and self.over_k is None):
            raise UserError(f"part {self.says!r}: say of whom, and compare with over, over_k or than")
        if self.beyond and (not self.over or self.over_k is None):
            raise UserError(f"part {self.says!r}: beyond needs over and over_k")
        if len(self.phases) not in (0, 2):
            raise UserError(f"part {self.says!r}: phases are the first, and the one after the last")
        if self.be == "alike" and not self.margin > 0:
            raise UserError(f"part {self.says!r}: alike needs a margin")


def combine_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Combine the comparisons of a part: yes if all are, no if one is."""
    return "no" if "no" in outcomes else "yes" if outcomes and set(outcomes) == {"yes"} else "open"


def verdict(parts: Sequence[Outcome]) -> str:
    """Verdict of a claim from the outcomes of its parts; empty without parts."""
    if not parts:
        return ""
    if set(parts) == {"yes"}:
        return AGREES
    if "yes" in parts:
        return PARTLY
    return DISAGREES if "no" in parts else CANNOT_TELL
