"""Claims as the file of a figure writes them: parts, verdicts, and queries in braces for numbers in texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import UserError, nearest
from ..significance_and_power import ALPHA
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
    what: str = "score"  # area, return, kept, seconds, warned, or a column of the metrics (`study_evidence.py`)
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
            raise UserError(
                f"part {self.says!r}: give `of`, the method, and `over`, `over_k` or `than`, what it is compared with"
            )
        if self.beyond and (not self.over or self.over_k is None):
            raise UserError(f"part {self.says!r}: beyond needs over and over_k")
        if len(self.phases) not in (0, 2):
            raise UserError(f"part {self.says!r}: phases takes two numbers, the first phase and the one after the last")
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


OPTIONS = ("K", "env", "study", "over", "phases", "reduce", "digits", "as", "level", "over_k", "of", "seeds")


@dataclass(frozen=True)
class NumberQuery:
    """Words between two braces: a quantity, a label (may contain spaces), options, and whether to omit the interval."""

    quantity: str
    label: str
    plain: bool
    options: Mapping[str, str]
    alpha: float = ALPHA  # level of the test behind a word

    @property
    def k(self) -> int | None:
        return int(self.options["K"]) if "K" in self.options else None

    @property
    def over(self) -> str:
        """Label to compare with, where ~ stands for its space: `over=vaco~N=4`."""
        return self.options.get("over", "").replace("~", " ")

    @property
    def env(self) -> str:
        return self.options.get("env", "")

    @property
    def phases(self) -> tuple[int, ...]:
        """The first phase, and the one after the last; empty for all. Raises `UserError`."""
        if "phases" not in self.options:
            return ()
        ends = tuple(map(int, self.options["phases"].split(":")))
        if len(ends) != 2:
            raise UserError(f"phases={self.options['phases']}: give the first and the one after the last, as 10:50")
        return ends

    def text(
        self, value: float, low: float | None = None, high: float | None = None, runs: Sequence[float] = ()
    ) -> str:
        """Format a number with its interval, or with the runs that it is the mean of: `0.19 [0.17, 0.20]`."""
        percent = self.options.get("as", "%" if self.quantity in ("kept", "clipped") else "") == "%"
        digits = int(self.options.get("digits", 0 if percent or self.quantity == "return" else 2))

        def text(x: float) -> str:
            return f"{100 * x if percent else x:z.{digits}f}".replace("-", "−")

        number = text(value) + ("%" if percent else "")
        if self.plain:
            return number
        if low is not None and high is not None:
            return f"{number} [{text(low)}, {text(high)}]"
        if len(runs) > 1:
            return f"{number} ({', '.join(map(text, runs))})"
        return number + (" (one run)" if runs else "")


def read_query(text: str) -> NumberQuery:
    """Parse the words between two braces. Raises `UserError` for an unknown option."""
    quantity, *rest = text.split() or [""]
    label, plain, options = "", False, {}
    for word in rest:
        name, equals, value = word.partition("=")
        if equals and "[" not in name and name != "N":
            if name not in OPTIONS:
                raise UserError(f"unknown option {name!r}; {nearest(name, OPTIONS)}")
            if name == "seeds" and value != "paired":
                raise UserError(f"seeds={value} is not known: seeds=paired, or nothing")
            if name == "as" and value not in ("%", "number", "ratio"):
                raise UserError(f"as={value} is not known: as=%, as=number or as=ratio")
            options[name] = value
        elif word == "plain":
            plain = True
        else:
            label = f"{label} {word}".strip()
    comparison = next((f"{x}={options[x]}" for x in ("seeds", "as") if options.get(x) in ("paired", "ratio")), None)
    if comparison and not {"over", "over_k"} & options.keys():
        raise UserError(f"{comparison} is for a comparison; give over=<method> or over_k=<K>")
    return NumberQuery(quantity, label, plain, options)
