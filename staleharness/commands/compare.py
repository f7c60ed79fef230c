"""`staleharness compare A B`: two results folders side by side, as text, JSON and CSV. Trains and draws nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..base.files import check_replaceable, write_bytes
from ..base.table_formatting import WIDTH, fit, fixed_width, rows_to_csv, table_width
from ..base.text_formatting import number, printable, wrap_lines
from ..errors import UserError
from .shared.arguments import Help, Presentation, RunFilters, output_file

if TYPE_CHECKING:
    from ..statistics.result_comparison import Comparison


@dataclass(frozen=True, kw_only=True)
class Command(Presentation, RunFilters):
    """Compare two results folders: B − A, with intervals, in every cell that both have."""

    a: Annotated[str, Help("A")]
    """Folder with results, e.g. published ones: results/reference/staleness_halfcheetah."""
    b: Annotated[str, Help("B")]
    """Folder with results to compare with it, e.g. your own: results."""
    out: Annotated[str | None, Help("FILE.csv")] = None
    """Write the comparison as CSV."""


def handle(command: Command) -> int:
    """Print the comparison and write it if requested. Raises `UserError` before anything is written."""
    from ..base.reference_results import results_path
    from ..statistics.result_comparison import COLUMNS, compare_runs
    from ..store.store import Store
    from .shared.train_and_report import check_presentation

    check_presentation(command)
    target = output_file(command.out, "CSV file", ".csv")
    if target is not None:
        check_replaceable(target, ",".join(COLUMNS), "a comparison")
    paths = results_path(command.a), results_path(command.b)
    if paths[0].resolve() == paths[1].resolve():
        raise UserError(f"A and B are the same folder: {command.a}")
    a, b = command.select_each({f"A={command.a}": Store(paths[0]), f"B={command.b}": Store(paths[1])})
    comparison = compare_runs(a, b, score=command.score, normalise=command.normalise)
    head = f"A = {command.a} | B = {command.b} | {headline(comparison)}"
    stream = sys.stderr if command.json else sys.stdout
    print(as_text(comparison, head, table_width(stream)), file=stream)
    if target is not None:
        write_bytes(target, to_csv(comparison).encode())
        print(f"wrote {target}", file=stream)
    if command.json:
        print(json.dumps({"a": command.a, "b": command.b, **comparison.to_json()}, sort_keys=True))
    return 0


def headline(comparison: Comparison) -> str:
    """Describe the numbers in one line."""
    s = comparison.settings
    return f"{s['measure']} | {s['level']:.0%} bootstrap intervals, {s['reps']:,} resamples ({s['engine']})"


def as_text(comparison: Comparison, head: str, width: int = WIDTH) -> str:
    """Format both tables as fixed-width text: cells first, then rows over environments, then the notes."""
    text = wrap_lines([head], width)
    for title, headers, lines, hidden in _tables(comparison, width):
        text += ["", *wrap_lines([title], width), *fixed_width(headers, lines)]
        text += [f"no room for {', '.join(hidden)}: --json and --out have them"] if hidden else []
    notes = wrap_lines([f"note: {note}" for note in comparison.notes], width)
    return "\n".join(map(printable, [*text, *([""] if notes else []), *notes]))


def to_csv(comparison: Comparison) -> str:
    """Cells, then rows over environments; the column `scale` tells them apart. Full precision."""
    from ..statistics.result_comparison import COLUMNS

    return rows_to_csv([*comparison.cells, *comparison.rows], COLUMNS)


def _tables(comparison: Comparison, width: int) -> list[tuple[str, list[str], list[list[str]], list[str]]]:
    """(title, headers, lines, hidden headers) of the two tables."""
    s = comparison.settings
    digits = 3 if s["accuracy"] else 1  # an accuracy needs more than a return
    level = f"[{s['level']:.0%} CI]"
    scale = f"normalised: {s['normalise']} ({s['constants_note']}, A and B together)"
    tables = []
    for title, rows, places in (
        ("per cell: mean raw scores", comparison.cells, digits),
        (f"per algorithm and K over environments: IQM, {scale}", comparison.rows, max(2, digits - 1)),
    ):
        headers = ["algorithm", "env", "K", "n", "A", "B", f"B − A {level}", f"P(B > A) {level}", "seeds"]
        lines = [_cells(row, places) for row in rows]
        tables.append((title, *fit(headers, lines, width, ("seeds", "n", f"P(B > A) {level}", "B", "A"))))
    return tables


def _cells(row: Mapping[str, Any], digits: int) -> list[str]:
    n = str(row["n_a"]) if row["n_a"] == row["n_b"] else f"{row['n_a']}/{row['n_b']}"
    return [
        printable(row["algorithm"]),
        printable(row["env"]),
        str(row["capacity"]),
        n,
        number(row["a"], digits),
        number(row["b"], digits),
        _interval(row, "difference", f"+z.{digits}f"),
        _interval(row, "probability", ".2f"),
        row["seeds"],
    ]


def _interval(row: Mapping[str, Any], name: str, form: str) -> str:
    """`+0.12 [+0.01, +0.23]`; the bracket is a dash where there is no interval."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:{form}} " + ("[–]" if low is None else f"[{low:{form}}, {high:{form}}]")
