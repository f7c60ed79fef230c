"""Lags from the log of a real system, as a weighted histogram in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.text import plural
from ..errors import UserError, nearest, shorten
from .lag_columns import UNITS, lag_column
from .log_files import find_log, log_columns, log_rows

KEYS = ("lag", "count")  # of COLUMNS


@dataclass(frozen=True)
class LagLog:
    """Distinct lags [n] in ascending order, and their weights [n], of a log of `rows` rows."""

    file: str
    column: str
    unit: str  # of `lag_columns.UNITS`
    lags: NDArray[np.float64]
    weights: NDArray[np.float64]
    note: str  # source of the column's meaning
    rows: int

    @property
    def mean(self) -> float:
        return float(np.average(self.lags, weights=self.weights))

    def quantile(self, share: float) -> float:
        """Least lag that `share` of the weight does not exceed."""
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


def read_log(text: str, columns: str | None = None, unit: str | None = None) -> LagLog:
    """Read the lags in a file. Raises `UserError`.

    `columns`: `lag=NAME` or `lag=NAME,count=NAME`; without it, the column names of known systems. `unit` of the lags;
    by default the system's, or versions with `columns`.
    """
    path = find_log(text)
    if unit is not None and unit not in UNITS:
        raise UserError(f"UNIT={unit!r} is not known; {nearest(unit, UNITS)}")
    if path.suffix == ".parquet":
        if columns is not None or unit not in (None, "versions"):
            raise UserError(f"LOG={path.name} is a trace: its lags are in versions, and COLUMNS has no meaning")
        return _trace(str(path), path.name)
    names = log_columns(path)
    if columns is None:
        name, system = lag_column(names, f"LOG={path.name}")
        counts = "count" if name == "lag" and "count" in names else None
        note = f"read as that of {system.name}" + ("" if system.certain else ", a name that is not certain")
        note += f": means over {system.what}, in {system.unit.replace('_', ' ')}"
        log_unit = system.unit if unit is None else unit
    else:
        mapping = _read_columns(columns, names, path.name)
        name, counts, log_unit = mapping["lag"], mapping.get("count"), unit or UNITS[0]
        note = f"taken as the lag because COLUMNS says so, in {log_unit.replace('_', ' ')}"
    histogram = LagHistogram()
    for rows in log_rows(path, list(dict.fromkeys((name, counts or name)))):
        histogram.add(rows[:, 0], rows[:, -1] if counts else np.ones(len(rows)))
    if not len(histogram.lags):
        raise UserError(f"LOG={path.name}: column {shorten(name)!r} holds no lag")
    return _lag_log(path.name, name, log_unit, histogram, note)


def _lag_log(file: str, column: str, unit: str, histogram: LagHistogram, note: str) -> LagLog:
    if histogram.error:
        note += f"; of its many distinct lags, quantiles are within {100 * histogram.error:.2g}% of their value"
    return LagLog(file, column, unit, histogram.lags, histogram.weights, note, histogram.rows)


def _read_columns(text: str, names: Sequence[str], file: str) -> dict[str, str]:
    """Parse COLUMNS to {key: name}; a name may have blanks."""
    mapping: dict[str, str] = {}
    for part in text.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise UserError(f"COLUMNS: {shorten(part)!r} is not lag=NAME")
        if key not in KEYS:
            raise UserError(f"COLUMNS: {shorten(key)!r} is not known; {nearest(key, KEYS)}")
        if key in mapping:
            raise UserError(f"COLUMNS gives {key} more than once")
        if name not in names:
            raise UserError(f"LOG={file} has no column {shorten(name)!r}; {nearest(name, names)}")
        mapping[key] = name
    if "lag" not in mapping:
        raise UserError("COLUMNS does not say which column is the lag: give lag=NAME")
    return mapping


def _trace(path: str, file: str) -> LagLog:
    """Read the lags of the decisions in a trace's trained rows."""
    from ..trace import stream_trace

    header, pieces = stream_trace(path)
    histogram, count = LagHistogram(), 0
    for rows in pieces:
        trained = rows[rows["phase"] >= 0]
        if len(trained):
            lags = [phase - v for phase, v in zip(trained["phase"], trained["versions"], strict=True)]
            decisions = [np.diff(ends, prepend=0) for ends in trained["ends"]]
            histogram.add(np.concatenate(lags).astype(float), np.concatenate(decisions).astype(float))
            count += len(trained)
    if not count:
        raise UserError(f"LOG={file}: no row of this trace was trained on")
    note = f"a trace ({header.get('source', 'of unknown source')}) of {plural(count, 'trained row')}: "
    note += "lags of their decisions, in versions"
    return _lag_log(file, "versions", UNITS[0], histogram, note)


Numbers = NDArray[np.float64]
MAX_BINS = 2**20  # distinct lags
EXACT = 52  # bits of a double's mantissa


class LagHistogram:
    """A weighted histogram of lags, one bin per distinct lag.

    Beyond `MAX_BINS` bins, lags whose leading `bits` bits are equal share one, at their weighted
    mean: the mean of all stays, and a quantile is within a share `error` of its value.
    """

    def __init__(self) -> None:
        self.lags: Numbers = np.empty(0)  # [n], ascending
        self.weights: Numbers = np.empty(0)  # [n], above 0
        self.rows = 0
        self.bits = EXACT

    @property
    def error(self) -> float:
        return 0.0 if self.bits == EXACT else 2.0**-self.bits

    def add(self, lags: Numbers, weights: Numbers) -> None:
        """Count rows: lags [m] from 0 upwards and their weights [m]; NaN: missing, and its row does not count."""
        valid = ~np.isnan(lags) & ~np.isnan(weights)
        self.rows += int(valid.sum())
        valid &= weights > 0
        # adding zero makes 0 of -0, whose bits are another number's
        lags, weights = np.append(self.lags, lags[valid] + 0.0), np.append(self.weights, weights[valid])
        if not len(lags):
            return
        order = np.argsort(lags, kind="stable")
        self._merge(lags[order], weights[order])

    def _merge(self, lags: Numbers, weights: Numbers) -> None:
        begins = _begins(lags, self.bits)
        while len(begins) > MAX_BINS:
            self.bits -= 1
            begins = _begins(lags, self.bits)
        least, most = lags[begins], lags[np.append(begins[1:], len(lags)) - 1]
        self.weights = np.add.reduceat(weights, begins)
        means = np.add.reduceat(lags * weights, begins) / self.weights
        self.lags = np.where(least == most, least, np.clip(means, least, most))


def _begins(lags: Numbers, bits: int) -> NDArray[np.intp]:
    """Places at which sorted lags differ in their leading bits from the previous one: [number of bins]."""
    leading = lags.view(np.int64) >> (EXACT - bits)
    return np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))
