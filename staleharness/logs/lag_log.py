"""The lags that a real system logged: read, checked, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.text import plural
from ..errors import UserError, nearest, shortened
from .files import columns, find, numbers
from .systems import UNITS, lag_column
from .tally import Tally

KEYS = ("lag", "count")  # that COLUMNS may name


@dataclass(frozen=True)
class LagLog:
    """Distinct lags [n] in ascending order, and how often each counts [n], over so many rows."""

    file: str
    column: str
    unit: str  # of `systems.UNITS`
    lags: NDArray[np.float64]
    weights: NDArray[np.float64]
    note: str  # where the column's meaning comes from
    rows: int

    @property
    def mean(self) -> float:
        return float(np.average(self.lags, weights=self.weights))

    def quantile(self, share: float) -> float:
        """The least lag that `share` of the weight does not exceed."""
        heavy = np.cumsum(self.weights)
        return float(self.lags[np.searchsorted(heavy, share * heavy[-1] * (1 - 1e-12))])

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "column": self.column,
            "unit": self.unit,
            "rows": self.rows,
            "mean": self.mean,
            "median": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": float(self.lags.max()),
            "note": self.note,
        }


def read_log(text: str, asked: str | None = None, unit: str | None = None) -> LagLog:
    """The lags in a file. `asked`: which columns hold what, `lag=NAME` or `lag=NAME,count=NAME`; without it they are
    known by the names that systems give them. `unit` of what is asked for, versions where it is not said. Raises
    `UserError`."""
    path = find(text)
    if unit is not None and unit not in UNITS:
        raise UserError(f"UNIT={unit!r} is not known; {nearest(unit, UNITS)}")
    if path.suffix == ".parquet":
        if asked is not None or unit not in (None, "versions"):
            raise UserError(f"LOG={path.name} is a trace: its lags are in versions, and COLUMNS has no meaning")
        return _trace(str(path), path.name)
    names = columns(path)
    if asked is None:
        name, system = lag_column(names, f"LOG={path.name}")
        counts = "count" if name == "lag" and "count" in names else None
        note = f"read as that of {system.name}" + ("" if system.certain else ", a name that is not certain")
        note += f": means over {system.what}, in {system.unit.replace('_', ' ')}"
        found = system.unit if unit is None else unit
    else:
        mapping = _mapping(asked, names, path.name)
        name, counts, found = mapping["lag"], mapping.get("count"), unit or UNITS[0]
        note = f"taken as the lag because COLUMNS says so, in {found.replace('_', ' ')}"
    tally = Tally()
    for rows in numbers(path, list(dict.fromkeys((name, counts or name)))):
        tally.add(rows[:, 0], rows[:, -1] if counts else np.ones(len(rows)))
    if not len(tally.lags):
        raise UserError(f"LOG={path.name}: column {shortened(name)!r} holds no lag")
    return _lag_log(path.name, name, found, tally, note)


def _lag_log(file: str, column: str, unit: str, tally: Tally, note: str) -> LagLog:
    if tally.error:
        note += f"; of its many distinct lags, quantiles are within {100 * tally.error:.2g}% of their value"
    return LagLog(file, column, unit, tally.lags, tally.weights, note, tally.rows)


def _mapping(asked: str, names: Sequence[str], file: str) -> dict[str, str]:
    """COLUMNS as {key: name}; a name may have blanks in it."""
    mapping: dict[str, str] = {}
    for part in asked.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise UserError(f"COLUMNS: {shortened(part)!r} is not lag=NAME")
        if key not in KEYS:
            raise UserError(f"COLUMNS: {shortened(key)!r} is not known; {nearest(key, KEYS)}")
        if key in mapping:
            raise UserError(f"COLUMNS gives {key} more than once")
        if name not in names:
            raise UserError(f"LOG={file} has no column {shortened(name)!r}; {nearest(name, names)}")
        mapping[key] = name
    if "lag" not in mapping:
        raise UserError("COLUMNS does not say which column is the lag: give lag=NAME")
    return mapping


def _trace(path: str, file: str) -> LagLog:
    """Lags of the decisions of a trace's trained rows, stretch by stretch."""
    from ..trace import stream_trace

    header, pieces = stream_trace(path)
    tally, count = Tally(), 0
    for rows in pieces:
        trained = rows[rows["phase"] >= 0]
        if len(trained):
            lags = [phase - v for phase, v in zip(trained["phase"], trained["versions"], strict=True)]
            decisions = [np.diff(ends, prepend=0) for ends in trained["ends"]]
            tally.add(np.concatenate(lags).astype(float), np.concatenate(decisions).astype(float))
            count += len(trained)
    if not count:
        raise UserError(f"LOG={file}: no row of this trace was trained on")
    note = f"a trace ({header.get('source', 'of unknown source')}) of {plural(count, 'trained row')}: "
    note += "lags of their decisions, in versions"
    return _lag_log(file, "versions", UNITS[0], tally, note)
