"""The lags that a real system logged: read, checked, and what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.text import plural
from ..errors import UserError, nearest, shortened
from .files import Columns, columns, find
from .systems import UNITS, lag_column

MOST = 2.0**53  # up to which every whole number is a float
KEYS = ("lag", "count")  # that COLUMNS may name


@dataclass(frozen=True)
class LagLog:
    """Lags [n] and how often each counts [n]."""

    file: str
    column: str
    unit: str  # of `systems.UNITS`
    lags: NDArray[np.float64]
    weights: NDArray[np.float64]
    note: str  # where the column's meaning comes from

    @property
    def mean(self) -> float:
        return float(np.average(self.lags, weights=self.weights))

    def quantile(self, share: float) -> float:
        """The least lag that `share` of the weight does not exceed."""
        order = np.argsort(self.lags)
        heavy = np.cumsum(self.weights[order])
        return float(self.lags[order][np.searchsorted(heavy, share * heavy[-1] * (1 - 1e-12))])

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file, "column": self.column, "unit": self.unit, "rows": len(self.lags), "mean": self.mean,
            "median": self.quantile(0.5), "p95": self.quantile(0.95), "max": float(self.lags.max()), "note": self.note,
        }  # fmt: skip


def read_log(text: str, asked: str | None = None, unit: str | None = None) -> LagLog:
    """The lags in a file. `asked`: which columns hold what, `lag=NAME` or `lag=NAME,count=NAME`; without it they are
    known by the names that systems give them. `unit` of what is asked for, versions where it is not said. Raises
    `UserError`."""
    path = find(text)
    if unit is not None and unit not in UNITS:
        raise UserError(f"UNIT={unit!r} is not known; {nearest(unit, UNITS)}")
    if path.suffix == ".parquet":
        if asked is not None or unit not in (None, "versions"):
            raise UserError(
                f"LOG={path.name} is a trace: its lags are in versions, and COLUMNS has no meaning"
            )
        return _trace(str(path), path.name)
    held = columns(path)
    if asked is None:
        name, system = lag_column(held, f"LOG={path.name}")
        counts = "count" if name == "lag" and "count" in held else None
        note = f"read as that of {system.name}" + ("" if system.certain else ", a name that is not certain")
        note += f": means over {system.what}, in {system.unit.replace('_', ' ')}"
        found = system.unit if unit is None else unit
    else:
        mapping = _mapping(asked, held, path.name)
        name, counts, found = mapping["lag"], mapping.get("count"), unit or UNITS[0]
        note = f"taken as the lag because COLUMNS says so, in {found.replace('_', ' ')}"
    lags, weights = _numbers(held, name, counts, path.name)
    return LagLog(path.name, name, found, lags, weights, note)


def _mapping(asked: str, held: Columns, file: str) -> dict[str, str]:
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
        if name not in held:
            raise UserError(f"LOG={file} has no column {shortened(name)!r}; {nearest(name, held)}")
        mapping[key] = name
    if "lag" not in mapping:
        raise UserError("COLUMNS does not say which column is the lag: give lag=NAME")
    return mapping


def _numbers(
    held: Columns, name: str, counts: str | None, file: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lags and weights, without the rows where the lag is missing."""
    lags = _column(held[name], name, file)
    weights = np.ones(len(lags)) if counts is None else _column(held[counts], counts, file)
    there = ~np.isnan(lags) & ~np.isnan(weights)
    lags, weights = lags[there], weights[there]
    if not weights.sum() > 0:
        raise UserError(f"LOG={file}: column {shortened(name)!r} holds no lag")
    return lags, weights


def _column(cells: Sequence[Any], name: str, file: str) -> NDArray[np.float64]:
    numbers = []
    for i, cell in enumerate(cells, 1):
        try:
            number = math.nan if cell is None else float(cell)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not (math.isnan(number) or 0 <= number <= MOST):
            raise UserError(
                f"LOG={file}: {shortened(str(cell))!r} in row {i} of {shortened(name)!r} is no lag: a number "
                "from 0 to 2^53"
            )
        numbers.append(number)
    return np.array(numbers)


def _trace(path: str, file: str) -> LagLog:
    """Lags of the decisions of a trace's trained rows, stretch by stretch."""
    from ..trace import read_trace

    header, rows = read_trace(path)
    trained = rows[rows["phase"] >= 0]
    lags = [phase - np.asarray(v) for phase, v in zip(trained["phase"], trained["versions"], strict=True)]
    decisions = [np.diff(np.asarray(ends), prepend=0) for ends in trained["ends"]]
    if not lags:
        raise UserError(f"LOG={file}: no row of this trace was trained on")
    note = f"a trace ({header.get('source', 'of unknown source')}) of {plural(len(trained), 'trained row')}: "
    note += "lags of their decisions, in versions"
    there, weights = np.concatenate(lags).astype(float), np.concatenate(decisions).astype(float)
    return LagLog(file, "versions", UNITS[0], there, weights, note)
