"""Text for people: tables of fixed width, numbers, plurals, lines that cannot steer a terminal."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would run


def in_rich(headers: Sequence[str], lines: Sequence[Sequence[str]], caption: str = "") -> rich.table.Table:
    """Lines of cells for a terminal. Names are text, never markup."""
    import rich.box
    import rich.table
    import rich.text

    out = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    out.caption, out.caption_justify = caption or None, "left"
    for i, header in enumerate(headers):
        out.add_column(header, justify="right" if i else "left", no_wrap=True, overflow="ellipsis")
    for line in lines:
        out.add_row(*(rich.text.Text(cell) for cell in line))
    return out


def fixed_width(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text, a rule under the headers: names to the left, the rest to the right."""
    widths = [max(len(line[i]) for line in (headers, *lines)) for i in range(len(headers))]
    text = []
    for line in (headers, ["-" * w for w in widths], *lines):
        right = [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *right]).rstrip())
    return text


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A bar inside a cell stays a bar of that cell."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def wrapped(notes: Iterable[str], width: int) -> list[str]:
    """Notes in lines of at most `width` columns."""
    return [line for note in notes for line in textwrap.wrap(note, width, subsequent_indent="      ")]


def rows_to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], header: bool = True) -> str:
    """CSV text, by default with a header. A text cell that a spreadsheet would run as a formula gets a leading
    apostrophe.
    """
    rows = list(rows)
    return columns_to_csv({c: [row.get(c) for row in rows] for c in columns}, header)


def columns_to_csv(columns: Mapping[str, Sequence[Any]], header: bool = True) -> str:
    """As `rows_to_csv`, of columns by name."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*map(_harmless, columns.values()), strict=True))
    return stream.getvalue()


def _harmless(column: Sequence[Any]) -> list[Any]:
    run = {v: f"'{v}" for v in {v for v in column if isinstance(v, str)} if v.startswith(FORMULA)}
    return [run.get(v, v) if isinstance(v, str) else v for v in column] if run else list(column)


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def word(value: Any) -> str:
    """A setting as a reader knows it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def plural(n: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n} {thing}{'' if n == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """`45s`, `3m20s`, `2h05m`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def megabytes(size: float) -> str:
    """Bytes as `12 MB`, at least 1; from 10,000 on as `18 GB`."""
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{max(1, round(size / 1e6)):,} MB"


def printable(text: str) -> str:
    """A line without control characters: a name or an error message cannot steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, the cut marked with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def fit(
    headers: list[str], lines: list[list[str]], width: int, least: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Headers and lines that fit into `width`, and the headers of what had to go: `least` telling first."""
    hidden: list[str] = []

    def room_for_names() -> int:
        columns = [[h, *(line[i] for line in lines)] for i, h in enumerate(headers)][1:]
        return width - sum(max(map(len, c)) + 2 for c in columns)

    names = max(len(line[0]) for line in (headers, *lines))
    for name in least:
        if room_for_names() >= min(names, 16):
            break
        i = headers.index(name)
        hidden.append(name)
        headers, lines = [*headers[:i], *headers[i + 1 :]], [[*line[:i], *line[i + 1 :]] for line in lines]
    room = max(9, room_for_names())
    return headers, [[shorten(line[0], room), *line[1:]] for line in lines], hidden
