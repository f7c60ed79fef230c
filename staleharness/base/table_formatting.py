"""Tables as text: CSV, Markdown and columns of fixed width."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from ..errors import shorten

WIDTH = 120  # of a table in a file
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that a spreadsheet would run
NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?%?")


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
    short = shorten_names([line[0] for line in lines], space)
    return headers, [[name, *line[1:]] for name, line in zip(short, lines, strict=True)], hidden


def shorten_names(names: Sequence[str], length: int) -> list[str]:
    """Names of at most `length` characters, cut at the end, or in the middle where different names would be equal."""
    short = [shorten(name, length) for name in names]
    if len(set(short)) == len(set(names)):
        return short
    start = length // 3
    return [n if len(n) <= length else f"{n[:start]}…{n[start + 1 - length :]}" for n in names]
