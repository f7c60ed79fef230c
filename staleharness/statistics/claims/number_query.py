"""Queries in braces for numbers in the texts of claims: their parts, and the format of the number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import UserError, nearest
from ..significance_and_power import ALPHA

OPTIONS = ("K", "env", "study", "over", "phases", "reduce", "digits", "as", "level", "over_k", "of", "seeds")


@dataclass(frozen=True)
class NumberQuery:
    """Words between two braces: a quantity, a label (may have blanks), options, and whether to omit the interval."""

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
