"""What stands between two braces of a text, and a number as it is written there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import UserError, nearest

KNOWN = ("K", "env", "study", "over", "phases", "reduce", "digits", "as", "level", "over_k", "of")


@dataclass(frozen=True)
class Asked:
    """What stands between two braces."""

    what: str
    label: str
    plain: bool
    options: Mapping[str, str]

    @property
    def k(self) -> int | None:
        return int(self.options["K"]) if "K" in self.options else None

    @property
    def percent(self) -> bool:
        return self.options.get("as", "%" if self.what in ("kept", "clipped") else "") == "%"

    @property
    def digits(self) -> int:
        return int(self.options.get("digits", 0 if self.percent or self.what == "return" else 2))

    @property
    def phases(self) -> tuple[int, ...]:
        """The first, and the one after the last. Raises `UserError`."""
        if "phases" not in self.options:
            return ()
        ends = tuple(map(int, self.options["phases"].split(":")))
        if len(ends) != 2:
            raise UserError(f"phases={self.options['phases']}: give the first and the one after the last, as 10:50")
        return ends


@dataclass(frozen=True)
class Number:
    """An estimate with its interval, or with the runs that it is the mean of."""

    value: float
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = field(default=())

    def text(self, asked: Asked) -> str:
        def said(x: float) -> str:
            text = f"{100 * x if asked.percent else x:.{asked.digits}f}"
            return text.replace("-", "−")

        sign = "%" if asked.percent else ""
        if asked.plain:
            return said(self.value) + sign
        if self.low is not None and self.high is not None:
            return f"{said(self.value)}{sign} [{said(self.low)}, {said(self.high)}]"
        if len(self.runs) > 1:
            return f"{said(self.value)}{sign} ({', '.join(said(x) for x in self.runs)})"
        return f"{said(self.value)}{sign}" + (" (one run)" if self.runs else "")


def read(text: str) -> Asked:
    """The words between two braces. Raises `UserError`."""
    what, *rest = text.split() or [""]
    label, plain, options = "", False, {}
    for word in rest:
        name, equals, value = word.partition("=")
        if equals and "[" not in name and name != "N":
            if name not in KNOWN:
                raise UserError(f"unknown option {name!r}; {nearest(name, KNOWN)}")
            options[name] = value
        elif word == "plain":
            plain = True
        else:
            label = f"{label} {word}".strip()
    return Asked(what, label, plain, options)
