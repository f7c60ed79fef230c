"""Log files as rows of numbers, piece by piece: CSV, JSON, an event file of TensorBoard; a column per metric or a long
table of metrics and values."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import math
import re
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..base.files import stamp
from ..base.parsing import user_path
from ..errors import UserError, one_line, shorten
from .json_and_event_readers import json_objects, scalars

EVENTS = "events.out.tfevents"
JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
GZIP = ".gz"  # after one of those
# Names of the columns of a long table, in lower case.
METRIC_WORDS = ("metric", "key", "metric_name", "metric key", "tag", "name")
RUN_WORDS = ("run", "run_id", "run_uuid", "run id")
NAN_FLAG = "is_nan"  # in MLflow's table of metrics, where the value of a NaN is 0
TRUE = ("true", "t", "1")  # cells of that column, in lower case
# Columns of tables of staleharness, with a column per metric and with a line per value.
STALEHARNESS = {"phase", "steps", "lags/trained"}, {"algorithm", "K", "phase", "steps", "metric", "value"}
MISSING = ("", "nan", "null", "none", "na", "n/a")  # cells without a value, in lower case
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)
PIECE = 2**17  # rows of a piece
LONGEST = 2**22  # characters of a line
MAX_COLUMNS = 100_000
LARGEST = 1e15  # lag or count, so that their sums stay finite


def find_log(text: str) -> Path:
    """Find the file, or the one event file of a folder. Raises `UserError`."""
    if not text.strip():
        raise UserError("LOG is empty; give a file")
    path = user_path(text)
    if path.is_dir():
        events = sorted(path.rglob(f"*{EVENTS}*"))
        if len(events) != 1:
            problem = "no event file" if not events else f"{len(events)} event files, e.g. {events[0]}"
            raise UserError(f"LOG={shorten(text)} has {problem}: give one file")
        path = events[0]
    if not path.is_file():
        raise UserError(f"LOG={shorten(text)} is not a file")
    return path


def log_columns(path: Path) -> list[str]:
    """Read the names of a file's columns, in the order of their first appearance; of a long table, one line per value,
    its metrics follow. Raises `UserError`."""
    with _readable(path):
        names = _column_names(path)
        if (long_table := long_columns(names)) is None:
            return names
        metrics = _distinct(str(name) for name, _ in _cells(path, long_table[:2]) if name is not None)
        return [*names, *(name for name in metrics if name not in names)]


def _column_names(path: Path) -> list[str]:
    return list(_names_once(path, stamp(path)))


@functools.lru_cache(maxsize=4)
def _names_once(path: Path, content: tuple[str, int, int, int]) -> Sequence[str]:
    """Read the names of the columns once; `content` is the file's stamp, so that a changed file is read again."""
    if EVENTS in path.name:
        with path.open("rb") as stream:
            return _distinct(tag for tag, _ in scalars(stream))
    if _suffix(path) in TABLES:
        with _text(path) as text:
            return _header(csv.reader(_lines(text), delimiter=_delimiter(path)))
    if _suffix(path) in JSON:
        with _text(path) as text:
            return _distinct(name for row in json_objects(text) for name, _ in _flat(row, ""))
    raise UserError(f"LOG={path.name}: give a .csv, a .jsonl, a trace (.parquet) or an event file ({EVENTS}...)")


def long_columns(names: Sequence[str]) -> tuple[str, str, str | None] | None:
    """Return the columns of a long table with the metric's name, its value and the run, as MLflow and `staleharness
    export csv` write them; None for a table with a column per metric."""
    by_word = {name.strip().lower(): name for name in names}
    value = by_word.get("value")
    metric = next((by_word[word] for word in METRIC_WORDS if word in by_word), None)
    if value is None or metric is None:
        return None
    return metric, value, _run_column(names)


def log_rows(path: Path, names: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Iterate over the rows of some columns of a file: pieces [at most `PIECE`, columns], NaN where a cell is missing.
    Raises `UserError` for a file that cannot be read, and for a cell that is not a lag."""
    with _readable(path):
        columns = [] if EVENTS in path.name else _column_names(path)
        long_table = long_columns(columns)
        rows: Iterable[Sequence[Any]]
        flags: dict[str, Sequence[str]] = {}
        if any(header <= set(columns) for header in STALEHARNESS):
            flags["steps"] = ("0", "0.0")  # phases that fill the buffer
        if long_table is None or set(names) <= set(columns):
            rows = _valid_cells(path, names, flags)
        elif len(names) > 1:
            raise ValueError("a table with a line per value has no counts: give lag=NAME alone")
        else:
            flags |= {name: TRUE for name in columns if name.strip().lower() == NAN_FLAG}
            rows = ([value] for name, value in _valid_cells(path, long_table[:2], flags) if name == names[0])
        yield from _pieces(rows, names, path.name, _delimiter(path) != ",")


def runs_of(path: Path) -> int:
    """Return how many runs a table holds by its column of runs; 1 without one. Raises `UserError`."""
    with _readable(path):
        column = None if EVENTS in path.name else _run_column(_column_names(path))
        if column is None:
            return 1
        return max(1, len(_distinct(str(run) for (run,) in _cells(path, [column]) if run is not None)))


def _run_column(names: Sequence[str]) -> str | None:
    by_word = {name.strip().lower(): name for name in names}
    return next((by_word[word] for word in RUN_WORDS if word in by_word), None)


def _cells(path: Path, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    """Iterate over the cells of some columns, as they are in the file; None where one is missing."""
    if EVENTS in path.name:
        with path.open("rb") as stream:
            yield from _events(stream, names)
    elif _suffix(path) in TABLES:
        with _text(path) as text:
            yield from _csv(text, names, _delimiter(path))
    else:
        with _text(path) as text:
            for row in json_objects(text):
                cells = dict(_flat(row, ""))
                yield [cells.get(name) for name in names]


def _valid_cells(path: Path, names: Sequence[str], flags: Mapping[str, Sequence[str]]) -> Iterator[Sequence[Any]]:
    """Iterate over the cells of some columns, all None in a row where a column of `flags` has one of its cells."""
    for row in _cells(path, [*names, *flags]):
        marks = zip(row[len(names) :], flags.values(), strict=True)
        has_flag = any(str(mark).strip().lower() in cells for mark, cells in marks)
        yield [None] * len(names) if has_flag else row[: len(names)]


def _delimiter(path: Path) -> str:
    """Return the delimiter: comma, semicolon or tab, whichever is most frequent in the header; comma if equal."""
    if _suffix(path) not in TABLES:
        return ","
    with _text(path) as text:
        header = next(filter(str.strip, _lines(text)), "")
    return max(",;\t", key=header.count)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of reading a file inside the block into a `UserError`."""
    try:
        yield
    except (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else one_line(error)[:120]
        raise UserError(f"LOG={path.name} cannot be read: {reason}") from error


def _suffix(path: Path) -> str:
    """Return the suffix that gives the format, before any `.gz`."""
    return Path(path.stem).suffix if path.suffix == GZIP else path.suffix


def _text(path: Path) -> TextIO:
    if path.suffix == GZIP:
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def _pieces(
    rows: Iterable[Sequence[Any]], names: Sequence[str], file: str, decimal_commas: bool
) -> Iterator[NDArray[np.float64]]:
    cells = array("d")
    for i, row in enumerate(rows, 1):
        for name, cell in zip(names, row, strict=True):
            cells.append(_number(cell, f"LOG={file}", i, name, decimal_commas))
        if len(cells) >= PIECE * len(names):
            yield np.array(cells).reshape(-1, len(names))
            cells = array("d")
    if cells:
        yield np.array(cells).reshape(-1, len(names))


def _number(cell: Any, where: str, row: int, name: str, decimal_commas: bool = False) -> float:
    """Return the number in a cell, NaN where it is missing. Raises `UserError` for anything else."""
    if isinstance(cell, str):
        if cell.strip().lower() in MISSING:
            return math.nan
        if decimal_commas and DECIMAL_COMMA.fullmatch(cell.strip()):
            cell = cell.replace(",", ".")
    try:
        number = math.nan if cell is None else -1.0 if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if number < 0 or number > LARGEST:
        raise UserError(
            f"{where}: {shorten(str(cell))!r} in row {row} of {shorten(name)!r} is not a lag (a number from 0 to 1e15)"
        )
    return number


def _distinct(names: Iterable[str]) -> list[str]:
    """Remove repeated names. Raises `ValueError` for more than `MAX_COLUMNS`."""
    distinct: dict[str, None] = {}
    for name in names:
        distinct[name] = None
        if len(distinct) > MAX_COLUMNS:
            raise ValueError(f"it has more than {MAX_COLUMNS:,} columns")
    return list(distinct)


def _lines(stream: TextIO) -> Iterator[str]:
    for count, line in enumerate(iter(functools.partial(stream.readline, LONGEST), ""), 1):
        if len(line) == LONGEST:
            raise ValueError(f"line {count} has {LONGEST:,} characters or more")
        yield line


def _header(rows: Iterator[list[str]]) -> list[str]:
    names = next((row for row in rows if any(map(str.strip, row))), [])  # without blank lines before it
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have the same name")
    return names


def _csv(stream: TextIO, names: Sequence[str], delimiter: str) -> Iterator[list[str | None]]:
    """Iterate over the cells of some columns; a last line that is cut off, as of a run in progress, is left out."""
    line = ""

    def lines() -> Iterator[str]:
        nonlocal line
        for text in _lines(stream):
            line = text
            yield text

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    header = _header(rows)
    places = [header.index(name) for name in names]
    empty = True
    while True:
        start = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            if rows.line_num == start and not empty and not line.endswith("\n"):
                return
            raise ValueError(f"line {start}: {error}") from error
        if row:
            if len(row) < len(header) and not empty and not line.endswith("\n"):
                return
            if len(row) != len(header):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells and the header {len(header)}")
            yield [row[place].strip() or None for place in places]
            empty = False
    if empty:
        raise ValueError("it has no row below its header")


def _events(stream: Any, names: Sequence[str]) -> Iterator[list[float]]:
    """Join the n-th values of some tags into rows."""
    waiting: dict[str, deque[float]] = {name: deque() for name in names}
    for tag, number in scalars(stream):
        if tag in waiting:
            waiting[tag].append(number)
            if all(waiting.values()):
                yield [waiting[name].popleft() for name in names]
    for name, values in waiting.items():
        if values:
            raise ValueError(f"{shorten(name)!r} has {len(values)} values more than the others")


def _flat(row: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over cells by name; the names of nested objects are joined by `/`."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value
