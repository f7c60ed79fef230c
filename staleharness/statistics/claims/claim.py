"""A part of a claim, as the file of a figure states it, and the words that a verdict may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import UserError

Outcome = Literal["yes", "no", "open"]
AGREES, PARTLY, DISAGREES, CANNOT_TELL = "agrees", "partly", "disagrees", "cannot tell"
VOCABULARY = (AGREES, PARTLY, DISAGREES, CANNOT_TELL)


@dataclass(frozen=True)
class ClaimPart:
    """One statement that runs can bear out or not: something of each of `of` at each of `k` is more or less than, or
    alike to, that of each of `over`, or that at `over_k`, or a number.

    What is compared is taken seed by seed, per environment, and averaged over environments (see `tested.py`).
    """

    says: str  # in words
    of: tuple[str, ...] = ()  # algorithms, as the study names them
    be: Literal["more", "less", "alike"] = "more"
    what: str = "score"  # area, return, kept, seconds, warned, or a column of the metrics (`measured.py`)
    over: tuple[str, ...] = ()  # compared with these
    k: tuple[int, ...] = ()  # at these capacities; empty: at the study's one
    over_k: int | None = None  # compared with what is at this capacity
    beyond: bool = False  # whether the difference from `over` at k is compared with that at `over_k`
    than: float | None = None  # compared with this number, or the difference (with `ratio` the ratio) is
    margin: float = 0.0  # alike: differences up to this; more and less: beyond this; negative: not worse by as much
    env: str = ""  # one environment; empty: all
    study: str = ""  # another one's runs; empty: the figure's
    phases: tuple[int, ...] = ()  # of a column of the metrics: from the first up to before the second; empty: all
    reduce: Literal["mean", "max", "geometric", "change", "jump", "turn"] = "mean"  # over those phases
    ratio: bool = False  # of positive values: their ratio is compared, by differences of logarithms
    untested: str = ""  # why no run here can bear it out; then nothing else is given

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
    """Of a part with several comparisons: borne out where each is, refuted where one is."""
    return "no" if "no" in outcomes else "yes" if outcomes and set(outcomes) == {"yes"} else "open"


def verdict(parts: Sequence[Outcome]) -> str:
    """Of a claim, from what became of its parts; empty where it has none."""
    if not parts:
        return ""
    if set(parts) == {"yes"}:
        return AGREES
    if "yes" in parts:
        return PARTLY
    return DISAGREES if "no" in parts else CANNOT_TELL
