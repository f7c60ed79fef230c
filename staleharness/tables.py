"""The table of results as data, as text, as CSV. Imports nothing heavy: a cached table shows at once."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table

COLUMNS = (
    "algorithm", "env", "capacity", "n_runs", "n_tasks",
    "iqm", "iqm_low", "iqm_high", "median", "median_low", "median_high", "mean", "mean_low", "mean_high",
    "optimality_gap", "optimality_gap_low", "optimality_gap_high",
    "raw_mean", "auc", "auc_low", "auc_high", "lag_mean", "tv", "ess", "clipped", "seconds", "missing",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """One row per (algorithm, capacity), aggregated over environments; every row has the keys of `COLUMNS`.

    A number that does not exist (an interval from one run, a score of no run) is None.
    """

    rows: list[dict[str, Any]]
    notes: list[str]  # what a reader must know: missing runs, unequal seeds, mixed versions
    settings: dict[
        str, Any
    ]  # score, normalise, constants {env: [low, high]}, reps, level, envs, dates, sizes

    @property
    def draft(self) -> bool:
        """Whether runs are missing that were asked for."""
        return any(row["missing"] for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def headline(self) -> str:
        """What the numbers are, in one line."""
        s = self.settings
        scale = f"normalised: {s['normalise']} ({s['constants_note']})"
        ends = f"{s['level']:.0%} stratified bootstrap intervals, {s['reps']:,} resamples ({s['engine']})"
        return f"{', '.join(s['envs'])} | {s['measure']} | {scale} | {ends}"


def render(table: Table, width: int = 120) -> rich.table.Table:
    """The table for a terminal of `width` columns, by rich. Where not all columns fit, the least telling go first
    and the caption says which.
    """
    headers, lines, hidden = _fitted(table, width - 2)  # rich draws an edge on either side
    return in_rich(headers, lines, _no_room(hidden))


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


def plain(table: Table, width: int = 120) -> str:
    """The table as fixed-width text, headline above and notes below; no line is over `width` columns."""
    headers, lines, hidden = _fitted(table, width)
    text = [*textwrap.wrap(table.headline, width), *fixed_width(headers, lines)]
    text += wrapped([*filter(None, [_no_room(hidden)]), *(f"note: {note}" for note in table.notes)], width)
    return "\n".join(map(printable, text))


def fixed_width(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text, a rule under the headers: names to the left, the rest to the right."""
    widths = [max(len(line[i]) for line in (headers, *lines)) for i in range(len(headers))]
    text = []
    for line in (headers, ["-" * w for w in widths], *lines):
        right = [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *right]).rstrip())
    return text


def wrapped(notes: Iterable[str], width: int) -> list[str]:
    """Notes in lines of at most `width` columns."""
    return [line for note in notes for line in textwrap.wrap(note, width, subsequent_indent="      ")]


def _no_room(hidden: Sequence[str]) -> str:
    return f"no room for {', '.join(hidden)}: they are in the report and in table.csv" if hidden else ""


def to_csv(table: Table) -> str:
    """All columns, full precision, empty where there is no number."""
    return rows_to_csv(table.rows, COLUMNS)


def rows_to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], header: bool = True) -> str:
    """CSV text, by default with a header. A text cell that a spreadsheet would run as a formula gets a leading
    apostrophe.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    for row in rows:
        values = (row.get(c) for c in columns)
        writer.writerow([f"'{v}" if isinstance(v, str) and v[:1] in "=+-@\t\r" and v else v for v in values])
    return stream.getvalue()


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(row: Mapping[str, Any], name: str) -> str:
    """`0.83 [0.71, 0.90]`; the bracket is a dash where the interval is undefined."""
    if row[name] is None:
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{number(row[name])} " + ("[–]" if low is None else f"[{number(low)}, {number(high)}]")


def count(row: Mapping[str, Any]) -> str:
    """Runs × tasks; `*` where runs are missing."""
    return f"{row['n_runs']}×{row['n_tasks']}" + ("*" if row["missing"] else "")


def raw_digits(table: Table) -> int:
    """Digits of a raw score: an accuracy needs more than a return."""
    return 3 if table.settings["normalise"] == "raw" else 1


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


def printable(text: str) -> str:
    """A line without control characters: a name or an error message cannot steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def shorten(text: str, width: int) -> str:
    """At most `width` characters, the cut marked with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _fitted(table: Table, width: int) -> tuple[list[str], list[list[str]], list[str]]:
    return fit(*_cells(table), width, ("clip%", "raw", "gap", "ESS", "time", "median", "TV"))


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


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    low_high = f"IQM [{table.settings['level']:.0%} CI]"
    headers = [
        "algorithm",
        "K",
        low_high,
        "median",
        "mean",
        "gap",
        "raw",
        "lag",
        "TV",
        "ESS",
        "clip%",
        "n",
        "time",
    ]
    lines = []
    for row in table.rows:
        clipped = None if row["clipped"] is None else 100 * row["clipped"]
        lines.append([
            printable(row["algorithm"]), str(row["capacity"]), interval(row, "iqm"), number(row["median"]),
            number(row["mean"]), number(row["optimality_gap"]), number(row["raw_mean"], raw_digits(table)),
            number(row["lag_mean"]), number(row["tv"], 3), number(row["ess"]), number(clipped, 1),
            count(row), duration(row["seconds"]),
        ])  # fmt: skip
    return headers, lines
