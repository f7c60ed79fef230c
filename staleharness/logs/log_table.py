"""Log files as rows of numbers, piece by piece: CSV, JSON, an event file of TensorBoard; a column per metric or a long
table of metrics and values."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..base.files import stamp
from ..base.parsing import user_path
from ..errors import UserError, one_line, shorten
from .framework_lag_metrics import step_column
from .json_and_event_readers import Scalar, json_objects, scalars
from .log_cells import pieces

EVENTS = "events.out.tfevents"
JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
GZIP = ".gz"  # after one of those
# Names of the columns of a long table, in lower case.
METRIC_WORDS = ("metric", "key", "metric_name", "metric key", "tag", "name")
RUN_WORDS = ("run", "run_id", "run_uuid", "run id", "trial_id", "seed")
NAN_FLAG = "is_nan"  # in MLflow's table of metrics, where the value of a NaN is 0
TRUE = ("true", "t", "1")  # cells of that column, in lower case
# Columns of tables of staleharness, with a column per metric and with a line per value.
STALEHARNESS = {"phase", "steps", "lags/trained"}, {"algorithm", "K", "phase", "steps", "metric", "value"}
LONGEST = 2**22  # characters of a line
MAX_COLUMNS = 100_000


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
            return _distinct(scalar.tag for scalar in scalars(stream))
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


def steps_of(path: Path, name: str) -> str | None:
    """Return where the values of a column have their steps; None where they have none. Raises `UserError`."""
    with _readable(path):
        return "the step of an event" if EVENTS in path.name else step_column(name, _column_names(path))


def log_rows(path: Path, names: Sequence[str], with_steps: bool = False) -> Iterator[NDArray[np.float64]]:
    """Iterate over the rows of some columns of a file: pieces [at most `PIECE`, columns], NaN where a cell is missing.
    `with_steps`: two more columns, the step and the number of the run. Raises `UserError` for a file that cannot be
    read, and for a cell that is not a lag."""
    with _readable(path):
        columns = [] if EVENTS in path.name else _column_names(path)
        long_table = long_columns(columns)
        rows: Iterable[Sequence[Any]]
        flags: dict[str, Sequence[str]] = {}
        of_step = [step_column(names[0], columns) or "", _run_column(columns) or ""] if with_steps else []
        if is_own_table(columns):
            flags["steps"] = ("0", "0.0")  # phases that fill the buffer
        if long_table is None or set(names) <= set(columns):
            rows = _valid_cells(path, names, of_step, flags)
        elif len(names) > 1:
            raise ValueError("a table with a line per value has no counts: give lag=NAME alone")
        else:
            flags |= {name: TRUE for name in columns if name.strip().lower() == NAN_FLAG}
            metric, value, _ = long_table
            lines = _valid_cells(path, [value], [metric, *of_step], flags)
            rows = ([value, *rest] for value, metric, *rest in lines if metric == names[0])
        yield from pieces(rows, names, path.name, _delimiter(path) != ",", with_steps)


def is_own_table(columns: Sequence[str]) -> bool:
    """Return whether staleharness wrote a table with these columns."""
    return any(header <= set(columns) for header in STALEHARNESS)


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
    """Iterate over the cells of some columns, as they are in the file; None where one is missing, or has no name."""
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
                yield [cells.get(name) if name else None for name in names]


def _valid_cells(
    path: Path, names: Sequence[str], others: Sequence[str], flags: Mapping[str, Sequence[str]]
) -> Iterator[Sequence[Any]]:
    """Iterate over the cells of columns, those of `names` None in a row where a column of `flags` has one of its
    cells."""
    width = len(names) + len(others)
    for row in _cells(path, [*names, *others, *flags]):
        marks = zip(row[width:], flags.values(), strict=True)
        has_flag = any(str(mark).strip().lower() in cells for mark, cells in marks)
        yield [None] * len(names) + list(row[len(names) : width]) if has_flag else row[:width]


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
    """Return the suffix that gives the format, before any `.gz`, in lower case."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix == GZIP else name.suffix


def _text(path: Path) -> TextIO:
    if path.suffix.lower() == GZIP:
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


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
    """Iterate over the cells of some columns; a last line that is cut off, as of a run in progress, has no values."""
    line = ""

    def lines() -> Iterator[str]:
        nonlocal line
        for text in _lines(stream):
            line = text
            yield text

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    header = _header(rows)
    places = [header.index(name) if name else None for name in names]
    empty = True
    while True:
        start = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            if rows.line_num == start and not empty and not line.endswith("\n"):
                yield [None] * len(places)
                return
            raise ValueError(f"line {start}: {error}") from error
        if row:
            if len(row) < len(header) and not empty and not line.endswith("\n"):
                yield [None] * len(places)
                return
            if len(row) != len(header):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells and the header {len(header)}")
            yield [None if place is None else row[place].strip() or None for place in places]
            empty = False
    if empty:
        raise ValueError("it has no row below its header")


def _events(stream: Any, names: Sequence[str]) -> Iterator[list[Any]]:
    """Join the n-th values of some tags into rows. Columns without a name, after the tags, hold the step of the first
    tag's value, and nothing."""
    tags = [name for name in names if name]
    waiting: dict[str, deque[Scalar]] = {tag: deque() for tag in tags}
    for scalar in scalars(stream, tags):
        waiting[scalar.tag].append(scalar)
        if all(waiting.values()):
            row = [waiting[tag].popleft() for tag in tags]
            yield [*(value.number for value in row), row[0].step, None][: len(names)]
    for tag, values in waiting.items():
        if values:
            raise ValueError(f"{shorten(tag)!r} has {len(values)} values more than the others")


def _flat(row: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over cells by name; the names of nested objects are joined by `/`."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value
