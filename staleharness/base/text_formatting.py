"""Text for people: numbers, plurals, durations, command lines, lines that cannot steer a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


def invocation(verb: str, **values: str | bool) -> str:
    """Command line for a reader: `make figures PAPER=vaco FIG=3` in a checkout, `staleharness figures --paper vaco
    --fig 3` where only the wheel is installed; the value of a switch is True."""
    if MAKEFILE.is_file():
        words = [f"{name.upper()}={1 if value is True else quote(str(value))}" for name, value in values.items()]
        return " ".join(["make", verb, *words])
    words = [f"--{name}" if value is True else f"--{name} {quote(str(value))}" for name, value in values.items()]
    return " ".join(["staleharness", verb, *words])


def listing(names: Sequence[str], limit: int) -> str:
    """Join names by commas, up to `limit` of them: `a, b and 3 more`."""
    suffix = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + suffix


def wrap_lines(notes: Iterable[str], width: int) -> list[str]:
    """Wrap notes into lines of at most `width` columns."""
    return [line for note in notes for line in textwrap.wrap(note, width, subsequent_indent="      ")]


def number(value: float | None, digits: int = 2) -> str:
    """Number with fixed digits; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def word(value: Any) -> str:
    """Value of a setting for a reader: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def plural(n: int, thing: str) -> str:
    """`1 run`, `2 runs`, `2 capacities`, `2 minibatches`, `2 epochs`."""
    if n == 1:
        return f"1 {thing}"
    if thing.endswith("y"):
        return f"{n} {thing[:-1]}ies"
    return f"{n} {thing}{'es' if thing.endswith('tch') else 's'}"


def span(numbers: Iterable[int]) -> str:
    """Smallest and largest number, `1,000 to 2,000`, or the only one; 0 for none."""
    numbers = list(numbers)
    low, high = min(numbers, default=0), max(numbers, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def duration(seconds: float | None) -> str:
    """`45s`, `3m20s`, `2h05m`."""
    if seconds is None:
        return "–"
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    return f"{total // 3600}h{total % 3600 // 60:02d}m"


def megabytes(size: float) -> str:
    """Bytes as `12 MB`, at least 1; from 10,000 on as `18 GB`."""
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{max(1, round(size / 1e6)):,} MB"


def printable(text: str) -> str:
    """Replace control characters, so that a name or an error message cannot steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
