"""Text for people: tables, numbers, plurals, lines that cannot steer a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, TextIO

from ..errors import shorten

WIDTH = 120  # of a table in a file
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that a spreadsheet would run
NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?")
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


def rows_to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], header: bool = True) -> str:
    """CSV text. A text cell that a spreadsheet would run as a formula gets a leading apostrophe."""
    rows = list(rows)
    return columns_to_csv({c: [row.get(c) for row in rows] for c in columns}, header)


def columns_to_csv(columns: Mapping[str, Sequence[Any]], header: bool = True) -> str:
    """CSV text of columns by name, escaped like `rows_to_csv`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*map(_harmless, columns.values()), strict=True))
    return stream.getvalue()


def _harmless(column: Sequence[Any]) -> list[Any]:
    texts = {v for v in column if isinstance(v, str) and v.startswith(FORMULA)}
    escapes = {v: f"'{v}" for v in texts if not NUMBER.fullmatch(v)}
    return [escapes.get(v, v) if isinstance(v, str) else v for v in column] if escapes else list(column)


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


def table_width(stream: TextIO) -> int:
    """Width of a table for a stream: a terminal's own, else 120 columns."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if stream.isatty() else WIDTH


def fixed_width(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Table as lines of text with a rule under the headers; the first column left-aligned, the others right-aligned."""
    widths = [max(len(line[i]) for line in (headers, *lines)) for i in range(len(headers))]
    text = []
    for line in (headers, ["-" * w for w in widths], *lines):
        right = [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *right]).rstrip())
    return text


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def fit(
    headers: list[str], lines: list[list[str]], width: int, least: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Drop columns of a table, in the order `least`, until it fits into `width`: (headers, lines, dropped headers)."""
    hidden: list[str] = []

    def width_for_names() -> int:
        columns = [[h, *(line[i] for line in lines)] for i, h in enumerate(headers)][1:]
        return width - sum(max(map(len, c)) + 2 for c in columns)

    names = max(len(line[0]) for line in (headers, *lines))
    for name in least:
        if width_for_names() >= min(names, 16):
            break
        i = headers.index(name)
        hidden.append(name)
        headers, lines = [*headers[:i], *headers[i + 1 :]], [[*line[:i], *line[i + 1 :]] for line in lines]
    space = max(9, width_for_names())
    return headers, [[shorten(line[0], space), *line[1:]] for line in lines], hidden
