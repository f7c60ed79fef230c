"""A log as columns: CSV, JSON lines, an event file of TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.files import parse_json, user_path
from ..errors import UserError, shortened
from .event_file import scalars

Columns = dict[str, list[Any]]  # name -> cells; a cell that is missing is None
EVENTS = "events.out.tfevents"


def find(text: str) -> Path:
    """The file, or the one event file of a folder. Raises `UserError`."""
    if not text.strip():
        raise UserError("LOG is empty; give a file")
    path = user_path(text)
    if path.is_dir():
        events = sorted(path.rglob(f"*{EVENTS}*"))
        if len(events) != 1:
            there = "no event file" if not events else f"{len(events)} event files, e.g. {events[0]}"
            raise UserError(f"LOG={shortened(text)} has {there}: give one file")
        path = events[0]
    if not path.is_file():
        raise UserError(f"LOG={shortened(text)} is not a file")
    return path


def columns(path: Path) -> Columns:
    """The columns of a file, whose name says what it is. Raises `UserError`."""
    try:
        if EVENTS in path.name:
            return {tag: list(values) for tag, values in scalars(path.read_bytes()).items()}
        if path.suffix == ".csv":
            return _csv(path.read_text(encoding="utf-8-sig"))
        if path.suffix in (".jsonl", ".ndjson", ".json"):
            return _rows(_json(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"LOG={path.name} cannot be read: {' '.join(str(error).split())[:120]}") from error
    raise UserError(
        f"LOG={path.name}: give a .csv, a .jsonl, a trace (.parquet) or an event file ({EVENTS}...)"
    )


def _json(text: str) -> list[Any]:
    """What lines of JSON say, one by one; or one text over several lines, as it is where people are to read it."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return [parse_json(line) for line in lines]
    except ValueError as error:
        try:
            return [parse_json(text)]
        except ValueError:
            raise error from None


def _csv(text: str) -> Columns:
    rows = list(csv.reader(io.StringIO(text)))
    if len(rows) < 2:
        raise ValueError("it has no row below its header")
    names = rows[0]
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have one name")
    for i, row in enumerate(rows[1:], 2):
        if row and len(row) != len(names):
            raise ValueError(f"line {i} has {len(row)} cells and the header {len(names)}")
    held = [row for row in rows[1:] if row]
    return {name: [row[i] if row[i].strip() else None for row in held] for i, name in enumerate(names)}


def _rows(rows: Iterable[Any]) -> Columns:
    """A list of objects, or objects; the names of nested ones are joined by `/`."""
    listed: list[dict[str, Any]] = []
    for row in rows:
        for one in row if isinstance(row, list) else [row]:
            if not isinstance(one, Mapping):
                raise ValueError("a line is not a JSON object")
            listed.append(dict(_flat(one, "")))
    names = dict.fromkeys(name for row in listed for name in row)
    return {name: [row.get(name) for row in listed] for name in names}


def _flat(row: Mapping[str, Any], path: str) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value
