"""Columns in which real systems log their lag, with the unit and the population of their means.

`versions` are trainer steps after which new weights reach the actors; `gradient_steps` are optimiser steps, of which a
version may have many; `samples` are rows trained on, of which a version has a batch. A mean over `rows` counts each row
once, at one of its decisions; a mean over `decisions` counts each decision, and is larger where long rows are old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.parsing import read_toml
from ..base.text_formatting import listing
from ..base.typed_values import build
from ..errors import UserError, nearest, shorten

UNITS = ("versions", "gradient_steps", "samples")
OVER = ("rows", "decisions")


@dataclass(frozen=True)
class System:
    """One column of a real system: `pattern` matches its whole name."""

    name: str
    pattern: str
    unit: str
    subject: str  # whose lag a value has
    source: str = ""  # where the system's code computes it
    over: str = "rows"  # of `OVER`: what a value is a mean over
    granularity: str = "step"  # a value is a mean over a training step, or the lag of one "row"
    kind: str = "tokens"  # of the tasks that the system trains; empty: any


_TABLE = read_toml(Path(__file__).with_suffix(".toml"))
SYSTEMS = tuple(build(System, values, "framework_lag_metrics.toml") for values in _TABLE["system"])
"""Columns in order of preference: a system's first column that is in a log gives its lag."""
NO_LAG: dict[str, str] = _TABLE["no_lag"]
"""Columns that look like a lag and are not: pattern of the name, and the reason."""
STEPS: list[str] = _TABLE["steps"]
"""Columns of steps, in order of preference and in lower case."""
STATISTICS = ("max", "p50", "p90", "p95", "p99")


def lag_column(names: Iterable[str], where: str) -> tuple[str, System]:
    """Find the column of the lag. W&B's tables put `<run> - ` before a name. Raises `UserError` where there is none,
    or more than one system's or run's."""
    names = list(names)
    all_matches = _matches(names)
    systems = [system for _, system in all_matches]
    first = {system.name: system for system in reversed(SYSTEMS) if system in systems}
    matches = [(name, system) for name, system in all_matches if system is first[system.name]]
    if len(matches) > 1:
        raise UserError(
            f"{where}: {len(matches)} columns may be the lag: {_names(n for n, _ in matches)}; "
            "say which one: COLUMNS=lag=NAME"
        )
    if not names:
        raise UserError(f"{where} has no columns: the file is empty")
    if not matches:
        hints = [hint for pattern, hint in NO_LAG.items() if any(re.fullmatch(pattern, _column_name(n)) for n in names)]
        reason = f" ({'; '.join(hints)})" if hints else ""
        raise UserError(
            f"{where}: no column has a name that is known to be a lag{reason}; "
            f"say which one: COLUMNS=lag=NAME; there are: {_names(names)}"
        )
    return matches[0]


def find_column(name: str, names: Sequence[str], where: str) -> str:
    """Return the column of this name, or the only one of this name behind W&B's `<run> - `. Raises `UserError`."""
    if name in names:
        return name
    matches = [column for column in names if _column_name(column) == name]
    if len(matches) > 1:
        raise UserError(f"{where} has {len(matches)} columns {shorten(name)!r}, of several runs: {_names(matches)}")
    if not matches:
        raise UserError(f"{where} has no column {shorten(name)!r}; {nearest(name, names)}")
    return matches[0]


def count_column(name: str, names: Iterable[str]) -> str | None:
    """Return the column of the counts of a histogram, beside a column `lag` of the same run; None without one."""
    if _column_name(name) != "lag":
        return None
    run = name.rpartition(" - ")[0]
    matches = [n for n in names if n.rpartition(" - ")[0] == run and _column_name(n).lower() == "count"]
    return matches[0] if len(matches) == 1 else None


def step_column(name: str, names: Sequence[str]) -> str | None:
    """Return the column of the steps beside a column of lags, of the same run or of all; None without one."""
    run = name.rpartition(" - ")[0]
    columns = {_column_name(n).lower(): n for n in names if n != name and n.rpartition(" - ")[0] in ("", run)}
    return next((columns[step] for step in STEPS if step in columns), None)


def system_of(name: str) -> System | None:
    """Return the system that has a column of this name."""
    return next((system for _, system in _matches([name])), None)


def other_lags(name: str, system: System, names: Sequence[str]) -> list[tuple[str, System]]:
    """Return the other lags that a system logs, of the same run."""
    run = name.rpartition(" - ")[0]
    return [
        (column, candidate)
        for column, candidate in _matches(names)
        if column != name and candidate.name == system.name and column.rpartition(" - ")[0] == run
    ]


def statistic_columns(name: str, names: Iterable[str]) -> dict[str, str]:
    """Return {statistic: column} of the system's own `STATISTICS` beside a column of means."""
    end = max(name.rfind("mean"), name.rfind("avg"))
    if end < 0:
        return {}
    stem, rest = name[:end], re.sub("^(mean|avg)", "", name[end:])
    return {key: f"{stem}{key}{rest}" for key in STATISTICS if f"{stem}{key}{rest}" in set(names)}


def _matches(names: Iterable[str]) -> list[tuple[str, System]]:
    return [(n, system) for n in names for system in SYSTEMS if re.fullmatch(system.pattern, _column_name(n))]


def _column_name(name: str) -> str:
    return name.rpartition(" - ")[2].strip()


def _names(names: Iterable[str]) -> str:
    return listing([shorten(name) for name in sorted(names)], 8)
