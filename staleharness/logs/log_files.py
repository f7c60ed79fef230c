"""Log files as rows of numbers, piece by piece: CSV, JSON (lines, lists, or indented), an event file of TensorBoard."""

from __future__ import annotations

import csv
import json
import math
import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..base.files import user_path
from ..errors import UserError, shorten
from .event_file import scalars

EVENTS = "events.out.tfevents"
JSON = (".jsonl", ".ndjson", ".json")
PIECE = 2**17  # rows of a piece
CHARACTERS = 2**20  # of JSON that are read at once
LONGEST = 2**22  # characters of one object or line
BLANK = re.compile(r"\s*")
MOST_COLUMNS = 100_000
LARGEST = 1e15  # lag or count, so that sums of them are numbers


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
    """Read the names of a file's columns, in the order of their first appearance. Raises `UserError`."""
    try:
        if EVENTS in path.name:
            with path.open("rb") as stream:
                return _distinct(tag for tag, _ in scalars(stream))
        if path.suffix == ".csv":
            with _text(path) as text:
                return _header(csv.reader(_lines(text)))
        if path.suffix in JSON:
            with _text(path) as text:
                return _distinct(name for row in json_objects(text) for name, _ in _flat(row, ""))
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, error) from error
    raise UserError(f"LOG={path.name}: give a .csv, a .jsonl, a trace (.parquet) or an event file ({EVENTS}...)")


def log_rows(path: Path, names: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Iterate over the rows of some columns of a file: pieces [at most `PIECE`, columns], NaN where a cell is missing.
    Raises `UserError` for a file that cannot be read, and for a cell that is no lag."""
    try:
        if EVENTS in path.name:
            with path.open("rb") as stream:
                yield from _pieces(_events(stream, names), names, path.name)
        elif path.suffix == ".csv":
            with _text(path) as text:
                yield from _pieces(_csv(text, names), names, path.name)
        else:
            with _text(path) as text:
                rows = (dict(_flat(row, "")) for row in json_objects(text))
                yield from _pieces(([row.get(n) for n in names] for row in rows), names, path.name)
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"LOG={path.name} cannot be read: {' '.join(str(error).split())[:120]}")


def _text(path: Path) -> TextIO:
    return path.open(encoding="utf-8-sig")


def _pieces(rows: Iterable[Sequence[Any]], names: Sequence[str], file: str) -> Iterator[NDArray[np.float64]]:
    cells = array("d")
    for i, row in enumerate(rows, 1):
        for name, cell in zip(names, row, strict=True):
            cells.append(_number(cell, f"LOG={file}", i, name))
        if len(cells) >= PIECE * len(names):
            yield np.array(cells).reshape(-1, len(names))
            cells = array("d")
    if cells:
        yield np.array(cells).reshape(-1, len(names))


def _number(cell: Any, where: str, row: int, name: str) -> float:
    try:
        number = math.nan if cell is None else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if number < 0 or number > LARGEST:
        raise UserError(
            f"{where}: {shorten(str(cell))!r} in row {row} of {shorten(name)!r} is no lag: a number from 0 to 1e15"
        )
    return number


def _distinct(names: Iterable[str]) -> list[str]:
    """Remove repeated names. Raises `ValueError` for more than `MOST_COLUMNS`."""
    distinct: dict[str, None] = {}
    for name in names:
        if name not in distinct:
            distinct[name] = None
            if len(distinct) > MOST_COLUMNS:
                raise ValueError(f"it has more than {MOST_COLUMNS:,} columns")
    return list(distinct)


def _lines(stream: TextIO) -> Iterator[str]:
    count = 0
    while line := stream.readline(LONGEST):
        count += 1
        if len(line) == LONGEST:
            raise ValueError(f"line {count} has {LONGEST:,} characters or more")
        yield line


def _header(rows: Iterator[list[str]]) -> list[str]:
    names = next(rows, [])
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have one name")
    return names


def _csv(stream: TextIO, names: Sequence[str]) -> Iterator[list[str | None]]:
    rows = csv.reader(_lines(stream))
    header = _header(rows)
    places = [header.index(name) for name in names]
    empty = True
    for row in rows:
        if row:
            if len(row) != len(header):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells and the header {len(header)}")
            yield [row[place].strip() or None for place in places]
            empty = False
    if empty:
        raise ValueError("it has no row below its header")


def _events(stream: Any, names: Sequence[str]) -> Iterator[list[float]]:
    """Join the n-th values of some tags to rows."""
    waiting: dict[str, deque[float]] = {name: deque() for name in names}
    for tag, number in scalars(stream):
        if tag in waiting:
            waiting[tag].append(number)
            if all(waiting.values()):
                yield [waiting[name].popleft() for name in names]
    for name, more in waiting.items():
        if more:
            raise ValueError(f"{shorten(name)!r} has {len(more)} values more than the others")


def _flat(row: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Iterate over cells by name; the names of nested objects are joined by `/`."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def json_objects(stream: TextIO) -> Iterator[Mapping[str, Any]]:
    """Iterate over the objects of a stream, and those of its lists. Raises `ValueError` with the line of anything
    else."""
    decode = json.JSONDecoder().raw_decode
    text, at, line = "", 0, 1  # `line` is where `text` begins
    in_list, state = False, "value"  # inside a list; "value", "value or ]" or ", or ]"
    while True:
        at = _after_blanks(text, at)
        if at == len(text):
            line += text.count("\n")
            text, at = stream.read(CHARACTERS), 0
            if text:
                continue
            if in_list:
                raise ValueError(f"line {line}: the list does not end")
            return
        letter = text[at]
        if letter == "[" and not in_list:
            in_list, state, at = True, "value or ]", at + 1
        elif letter == "]" and state in ("value or ]", ", or ]"):
            in_list, state, at = False, "value", at + 1
        elif state == ", or ]":
            if letter != ",":
                raise ValueError(f"line {line + text.count(chr(10), 0, at)}: no comma between two objects")
            state, at = "value", at + 1
        else:
            try:
                value, end = decode(text, at)
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(text) - at < LONGEST and (more := stream.read(CHARACTERS)):  # it may go on there
                    line += text.count("\n", 0, at)
                    text, at = text[at:] + more, 0
                    continue
                raise ValueError(f"line {line + text.count(chr(10), 0, error.pos)}: {error.msg}") from None
            if not isinstance(value, Mapping):
                raise ValueError(f"line {line + text.count(chr(10), 0, at)} is not a JSON object")
            yield value
            at, state = end, ", or ]" if in_list else "value"


def _after_blanks(text: str, at: int) -> int:
    match = BLANK.match(text, at)
    assert match is not None
    return match.end()
