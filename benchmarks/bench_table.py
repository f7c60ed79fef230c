"""One table for all benchmarks: what was measured, its value, its spread, and its limit.

    python benchmarks/bench_table.py FILE

Each benchmark prints its rows by `show`, and appends them to the file that BENCH_TABLE names, if any; `make bench`
prints that file once all have run, and exits with 1 if a limit is not kept. A value is a ratio where its unit is `x`
(the median), otherwise seconds (the least, which a busy machine moves least) or megabytes (the largest). A limit of the
form `<= 10` or `>= 0.7` is checked, and a value beyond it is marked; other limits are a bound in words.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

STATISTICS = "ratios are medians, seconds the smallest value, memory the largest"
HEAD = f"{'what':<58}{'value':>12}{'spread':>20}{'n':>4}  limit"


def show(what: str, values: Sequence[float], limit: str = "", unit: str = "x", least: bool = False) -> None:
    """Print a row: the median of the values, or with `least` the smallest, which a busy machine moves least."""
    text = row(what, values, limit, unit, least)
    print(text, flush=True)
    if path := os.environ.get("BENCH_TABLE"):
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")


def row(what: str, values: Sequence[float], limit: str, unit: str, least: bool) -> str:
    value = min(values) if least else statistics.median(values)
    beyond = "" if holds(value, limit) else "  NOT KEPT"
    spread = f"{number(min(values))} to {number(max(values))}" if len(values) > 1 else ""
    return f"{what:<58}{f'{number(value)} {unit}':>12}{spread:>20}{len(values):>4}  {limit}{beyond}"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def holds(value: float, limit: str) -> bool:
    """Return whether a value keeps a limit; a limit in words always holds."""
    sign, _, bound = limit.partition(" ")
    return value <= float(bound) if sign == "<=" else value >= float(bound) if sign == ">=" else True


def main(path: str) -> int:
    """Print the table; returns 1 where a limit is not kept or a benchmark failed, else 0."""
    rows = Path(path).read_text(encoding="utf-8")
    print(f"\n{STATISTICS}\n{HEAD}\n{rows}", end="")
    return int(any(line.endswith(("NOT KEPT", ": failed")) for line in rows.splitlines()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
