"""Reader of lags from the log of a real system, or from a trace, in bounded memory: a weighted histogram of them, with
what the system logs alongside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.text_formatting import plural
from ..errors import UserError, nearest, shorten
from .framework_lag_metrics import (
    OVER,
    UNITS,
    System,
    count_column,
    find_column,
    lag_column,
    other_lags,
    statistic_columns,
    system_of,
)
from .log_statistics import Drift, DriftMeter, LagHistogram
from .log_table import find_log, is_own_table, log_columns, log_rows, runs_of, steps_of
from .logged_values import LoggedValues

KEYS = ("lag", "count", "over")  # of COLUMNS


class Statistic(NamedTuple):
    """A lag that a log gives besides the mean: the largest of all steps, or a percentile within a step, averaged."""

    column: str
    value: float


class OtherLag(NamedTuple):
    """Mean of another lag of the same rows."""

    column: str
    subject: str
    mean: float


UNKNOWN = System("", "", "versions", "rows", granularity="row", kind="")
"""Any column that the user names."""


@dataclass(frozen=True)
class LagLog:
    """Distinct lags [n] in ascending order, and their weights [n], of a log of `rows` rows."""

    file: str
    column: str
    unit: str  # "versions" or "gradient_steps"
    lags: NDArray[np.float64]
    weights: NDArray[np.float64]
    note: str  # source of the column's meaning
    rows: int
    over: str = "rows"  # of `framework_lag_metrics.OVER`: what `mean` is a mean over
    system: System = UNKNOWN
    statistics: dict[str, Statistic] = field(default_factory=dict)  # of the system's own columns
    others: tuple[OtherLag, ...] = ()
    drift: Drift | None = None
    runs: int = 1

    @property
    def mean(self) -> float:
        return float(np.average(self.lags, weights=self.weights))

    def quantile(self, share: float) -> float:
        """Least lag that `share` of the weight does not exceed."""
        cumulative = np.cumsum(self.weights)
        return float(self.lags[np.searchsorted(cumulative, share * cumulative[-1] * (1 - 1e-12))])

    def to_json(self) -> dict[str, Any]:
        """Return plain data. Median, p95 and max are of rows or decisions; null if a log of means lacks the column."""
        of_values = {"median": self.quantile(0.5), "p95": self.quantile(0.95), "max": float(self.lags.max())}
        keys = {"median": "p50", "p95": "p95", "max": "max"}
        of_columns = {name: s.value if (s := self.statistics.get(key)) else None for name, key in keys.items()}
        quantiles: Mapping[str, float | None] = of_columns if self.system.granularity == "step" else of_values
        return {
            **{name: getattr(self, name) for name in "file column unit over rows runs mean".split()},
            "system": self.system.name,
            "each": self.system.granularity,
            **quantiles,
            "step_means": of_values if self.system.granularity == "step" else None,
            "statistics": {name: s._asdict() for name, s in self.statistics.items()},
            "others": [{"column": o.column, "what": o.subject, "mean": o.mean} for o in self.others],
            "drift": None if self.drift is None else self.drift.to_json(),
            "note": self.note,
        }


def read_log(text: str, columns: str | None = None, unit: str | None = None, batch: float | None = None) -> LagLog:
    """Read the lags in a file. Raises `UserError`.

    `columns`: `lag=NAME`, with `count=NAME` in a histogram and `over=rows` or `over=decisions`; without it, the column
    names of known systems. `unit` of the lags; by default the system's, or versions. `batch`: samples of a version, for
    lags in samples.
    """
    log = read_unconverted(text, columns, unit)
    if batch is not None and not 0 < batch < np.inf:
        raise UserError(f"BATCH={batch:g} must be above 0")
    if log.unit == "samples" and batch is None:
        column = shorten(log.column)
        raise UserError(f"LOG={log.file}: {column!r} counts samples; give BATCH=N, the samples of a version")
    if log.unit != "samples" and batch is not None:
        raise UserError(f"BATCH is for lags in samples; those of LOG={log.file} are in {_words(log.unit)}")
    return log if batch is None else _in_versions(log, batch)


def read_unconverted(text: str, columns: str | None = None, unit: str | None = None, over: str | None = None) -> LagLog:
    """Read the lags in a file as `read_log` does, but leave lags in samples as they are. `over`: of a trace, what the
    lags are counted over (default: decisions)."""
    path = find_log(text)
    if unit is not None and unit not in UNITS:
        raise UserError(f"UNIT={unit!r} is not known; {nearest(unit, UNITS)}")
    if path.suffix.lower() == ".parquet":
        if columns is not None or unit not in (None, "versions"):
            raise UserError(f"LOG={path.name} is a trace: its lags are in versions, and COLUMNS has no meaning")
        return _trace(str(path), path.name, over or "decisions")
    names = log_columns(path)
    mapping = {} if columns is None else _read_columns(columns, names, path.name)
    if columns is None:
        name, system = lag_column(names, f"LOG={path.name}")
    else:
        name = mapping["lag"]
        system = system_of(name) or UNKNOWN
    counts = mapping.get("count") or count_column(name, names)
    log, runs = _read(path, name, counts, names, system), runs_of(path)
    drift = log.drift if runs == 1 else None  # a change from one run to the next would not be drift
    log = replace(log, unit=unit or system.unit, over=mapping.get("over", system.over), runs=runs, drift=drift)
    return replace(log, note=_note(log, columns is not None))


def _read(path: Path, name: str, counts: str | None, names: Sequence[str], system: System) -> LagLog:
    """Read the column of the lag, and those that the system logs alongside it."""
    histogram, meter = LagHistogram(), DriftMeter()
    is_mean = system.granularity == "step"
    values = _values(path, list(dict.fromkeys((name, counts or name))), is_mean)
    for rows in values.pieces():
        histogram.add(rows[:, 0], rows[:, -1] if counts else np.ones(len(rows)))
        meter.add(rows[:, 0])
    if not len(histogram.lags):
        raise UserError(f"LOG={path.name}: column {shorten(name)!r} has no value")
    are_whole = bool((histogram.weights == np.floor(histogram.weights)).all())  # a histogram of shares counts no rows
    statistics: dict[str, Statistic] = {}
    others: list[OtherLag] = []
    if is_mean:
        for key, column in statistic_columns(name, names).items():
            if (pair := _mean_and_max(path, column)) is not None:
                statistics[key] = Statistic(column, pair[key == "max"])
        for column, logged_lag in other_lags(name, system, names):
            if (pair := _mean_and_max(path, column)) is not None:
                others.append(OtherLag(column, logged_lag.subject, pair[0]))
    return _lag_log(
        path.name,
        name,
        histogram,
        "; ".join([*_on_missing(values, names), *values.notes]),
        rows=int(histogram.weights.sum()) if counts and are_whole else histogram.rows,
        system=system,
        statistics=statistics,
        others=tuple(others),
        drift=None if counts else meter.drift(),
    )


def _values(path: Path, columns: Sequence[str], is_mean: bool) -> LoggedValues:
    """Values of a column, with counts in a histogram, whose rows have no order."""
    steps = steps_of(path, columns[0]) if len(columns) == 1 else None
    return LoggedValues(path.name, lambda: log_rows(path, columns, steps is not None), steps, is_mean)


def _on_missing(values: LoggedValues, names: Sequence[str]) -> list[str]:
    """Say how many rows have no value."""
    if not values.missing:
        return []
    reason = "no value, or are of a phase that fills the buffer" if is_own_table(names) else "no value"
    return [f"{values.missing:,} of {values.rows:,} rows have {reason}"]


def _mean_and_max(path: Path, name: str) -> tuple[float, float] | None:
    """Read mean and maximum of a column of step means; None where it holds no value."""
    total, count, largest = 0.0, 0, 0.0
    for rows in _values(path, [name], is_mean=True).pieces():
        total, count = total + float(rows.sum()), count + len(rows)
        largest = max(largest, float(rows.max(initial=0.0)))
    return (total / count, largest) if count else None


def _in_versions(log: LagLog, batch: float) -> LagLog:
    """Convert a log in samples to versions of `batch` samples each."""
    note = log.note.replace("in samples", f"in versions of {batch:g} samples", 1)
    return replace(
        log,
        unit="versions",
        note=note,
        lags=log.lags / batch,
        statistics={key: s._replace(value=s.value / batch) for key, s in log.statistics.items()},
        others=tuple(other._replace(mean=other.mean / batch) for other in log.others),
        drift=None if log.drift is None else log.drift.times(1 / batch),
    )


def _note(log: LagLog, by_user: bool) -> str:
    """Say why the column counts as the lag, what a value is, and in which unit."""
    system = log.system
    note = f"read as that of {system.name}" if system.name else "taken as the lag because COLUMNS says so"
    note += " (named by COLUMNS)" if by_user and system.name else ""
    note += f": means over {system.subject}" if system.granularity == "step" else f": lags of {log.over}"
    note += f", in {_words(log.unit)}"
    note += f" ({system.source})" if system.source else ""
    note += f"; {log.note}" if log.note else ""
    return note + (f"; {log.runs} runs together" if log.runs > 1 else "")


def _words(unit: str) -> str:
    return unit.replace("_", " ")


def _lag_log(file: str, column: str, histogram: LagHistogram, note: str = "", **values: Any) -> LagLog:
    if histogram.error:
        bound = f"of its many distinct lags, quantiles are within {100 * histogram.error:.2g}% of their value"
        note = f"{note}; {bound}" if note else bound
    return LagLog(file, column, UNITS[0], histogram.lags, histogram.weights, note, **values)


def _read_columns(text: str, names: Sequence[str], file: str) -> dict[str, str]:
    """Parse COLUMNS to {key: name}; a name may contain spaces and commas."""
    mapping: dict[str, str] = {}
    for part in re.split(rf",(?=\s*(?:{'|'.join(KEYS)})\s*=)", text):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise UserError(f"COLUMNS: {shorten(part)!r} is not lag=NAME")
        if key not in KEYS:
            raise UserError(f"COLUMNS: {shorten(key)!r} is not known; {nearest(key, KEYS)}")
        if key in mapping:
            raise UserError(f"COLUMNS gives {key} more than once")
        if key == "over" and name not in OVER:
            raise UserError(f"COLUMNS: over={shorten(name)} is not known; {nearest(name, OVER)}")
        mapping[key] = name if key == "over" else find_column(name, names, f"LOG={file}")
    if "lag" not in mapping:
        raise UserError("COLUMNS does not say which column is the lag: give lag=NAME")
    return mapping


def _trace(path: str, file: str, over: str) -> LagLog:
    """Read the lags in a trace's trained rows: of all their decisions, or of the first decision of each row."""
    from ..trace import check_rules, stream_trace

    header, pieces = stream_trace(path)
    check_rules(header, file)
    histogram, meter, count = LagHistogram(), DriftMeter(), 0
    for rows in pieces:
        trained = rows[rows["phase"] >= 0]
        if len(trained):
            lags = [phase - v for phase, v in zip(trained["phase"], trained["versions"], strict=True)]
            decisions = [np.diff(ends, prepend=0) for ends in trained["ends"]]
            if over == "rows":
                of_row, weights = np.array([lag[0] for lag in lags], dtype=np.float64), np.ones(len(lags))
                histogram.add(of_row, weights)
            else:
                weights = np.array([n.sum() for n in decisions], dtype=np.float64)
                of_row = np.array([lag @ n for lag, n in zip(lags, decisions, strict=True)]) / weights
                histogram.add(np.concatenate(lags).astype(float), np.concatenate(decisions).astype(float))
            order = np.argsort(trained["phase"], kind="stable")
            meter.add(of_row[order], weights[order])
            count += len(trained)
    if not count:
        raise UserError(f"LOG={file}: no row of this trace was trained on")
    population = "decisions" if over == "decisions" else "first decisions"
    note = f"a trace ({header.get('source', 'of unknown source')}) of {plural(count, 'trained row')}: "
    note += f"lags of their {population}, in versions"
    return _lag_log(file, "versions", histogram, note, rows=count, over=over, drift=meter.drift())
