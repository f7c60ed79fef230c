"""A trace: which actor generated each row, with which versions, and when; one Parquet file with a header.

Simulated pipelines and runs with real actors write one. The columns are in `COLUMNS`; the header is JSON
under the key `staleharness.trace` of the file's metadata.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .base.files import parse_json
from .base.parsing import user_path
from .errors import UserError, nearest, shorten
from .rollout_schedule import LOST, NEVER

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

KEY = b"staleharness.trace"
FORMAT = 3
FATES = ("in_flight", "queued", "trained", "dropped_full", "dropped_stale", "lost")
COLUMNS = {
    "row": "number of the row, in the order in which rows began",
    "group": "rows of one group are trained together",
    "actor": "who made its group: a process, or in a simulated pipeline the first actor that was free",
    "nth": "how many groups this actor had begun before",
    "fate": "one of " + ", ".join(FATES),
    "phase": "version at which it was trained, that is the step that trained it; -1: none did",
    "place": "of its group among those that the step trained; -1: none did",
    "versions": "list: the version of each segment, not decreasing",
    "ends": "list: decisions of the row made when the segment ended",
    "began_at": "seconds, first decision",
    "made_at": "seconds, last decision; empty: not made",
    "queued_at": "seconds, its group entered the queue; empty: it did not",
    "trained_at": "seconds, its step began; empty: it was not trained",
    "finished_in": "the phase whose step was the first to begin once its group was made; -1: none",
    "left_in": "the phase at whose step its group had left the queue, trained or dropped, or was lost; -1: it had not",
}
LATER = ("finished_in", "left_in")  # traces of format 2 lack these columns, which follow from the times


def trace_bytes(rows: pd.DataFrame, header: Mapping[str, Any]) -> bytes:
    """Return a trace as the content of a Parquet file. Absent columns of `LATER` are derived from the times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not set(LATER) <= set(rows):
        rows = rows.assign(**_by_times(rows))
    table = pa.Table.from_pandas(rows[list(COLUMNS)], preserve_index=False)
    metadata = {"format": FORMAT, "columns": COLUMNS, **header}
    table = table.replace_schema_metadata({KEY: json.dumps(metadata).encode()})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def read_trace(path: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Read and check a trace: (header, rows). Raises `UserError` for a file that is not a trace, has holes, or versions
    from the future."""
    file, header = _open(path)
    with _readable(path):
        table = file.read(use_threads=False)
        table.validate(full=True)
    _check_columns(table, header, path)
    rows = table.to_pandas(use_threads=False)
    if header.get("format") == 2:
        rows = rows.assign(**_by_times(rows))
    check(rows, path)
    return header, rows


def stream_trace(path: str, size: int = 2**14) -> tuple[dict[str, Any], Iterator[pd.DataFrame]]:
    """Read a trace in pieces: (header, rows in pieces of `size`), each checked as in `read_trace` when it is read.
    Traces of format 2 lack the columns `LATER`."""
    file, header = _open(path)
    return header, _pieces(file, header, path, size)


def _pieces(file: pq.ParquetFile, header: Mapping[str, Any], path: str, size: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    phases = np.empty(0, int)
    batches = file.iter_batches(size, use_threads=False)
    _check_columns(file.schema_arrow.empty_table(), header, path)
    while True:
        with _readable(path):
            if (batch := next(batches, None)) is None:
                break
            batch.validate(full=True)
        table = pa.Table.from_batches([batch])
        _check_columns(table, header, path)
        rows = table.to_pandas(use_threads=False)
        _check_rows(rows, path)
        phases = np.union1d(phases, rows["phase"])
        yield rows
    _check_phases(phases, path)


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn errors of reading a file inside the block into a `UserError`: it is no trace."""
    import pyarrow as pa

    try:
        yield
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{shorten(path)} is not a trace: {_read_failure(path, error)}") from error


def _open(path: str) -> tuple[pq.ParquetFile, dict[str, Any]]:
    import pyarrow.parquet as pq

    with _readable(path):
        file = pq.ParquetFile(user_path(path), buffer_size=2**20)
        header = parse_json((file.schema_arrow.metadata or {})[KEY])
    if not isinstance(header, dict):
        raise UserError(f"{shorten(path)} is not a trace: its header is no record")
    return file, header


def _check_columns(table: pa.Table, header: Mapping[str, Any], path: str) -> None:
    """Raise `UserError` for columns that are absent, of another type, or have holes; and for the header."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in COLUMNS:
        if header.get("format") == 2 and name in LATER:
            continue
        if name not in table.column_names:
            raise UserError(f"trace {path} has no column {name}; {nearest(name, table.column_names)}")
        column = table[name]
        absent = column.null_count
        if pa.types.is_list(column.type):
            absent += pc.list_flatten(column).null_count
        if fault := _column_fault(name, column.type, absent):
            raise UserError(f"trace {path}, column {name}: {fault}")
    counts = [header.get(name) for name in ("decisions", "fetch")]
    are_counts = all(count is None or (type(count) is int and count >= 0) for count in counts)
    if not are_counts or not isinstance(header.get("source"), str):
        raise UserError(
            f"trace {path} has a damaged header: source must be a string, decisions and fetch whole numbers of at "
            "least 0"
        )


def read_replay(path: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Read a trace for a schedule: (header, rows) as in `read_trace`, but `left_in` of rows that were lost is
    LOST − phase. Raises `UserError` where `check_rules` does, too."""
    check_rules(_open(path)[1], path)
    header, rows = read_trace(path)
    lost = (rows["fate"] == "lost") & (rows["left_in"] != NEVER)
    return header, rows.assign(left_in=rows["left_in"].where(~lost, LOST - rows["left_in"]))


def check_rules(header: Mapping[str, Any], path: str) -> None:
    """Raise `UserError` for a pipeline that trains on parts of rows, or on a row again: a trace does not say which."""
    pipeline = header.get("pipeline")
    if not isinstance(pipeline, dict):
        return
    bound, stale, uses = (pipeline.get(name) for name in ("max_lag", "stale", "uses"))
    is_masked = bound is not None and stale in ("mask", "drop_row")
    if is_masked or uses not in (None, 1):
        rule, lack = (f"stale={stale}", "left out of the loss") if is_masked else (f"uses={uses}", "trained on again")
        raise UserError(f"trace {shorten(path)} is of a pipeline with {rule}, but does not say what is {lack}")


def fit_rows(
    header: Mapping[str, Any], rows: pd.DataFrame, length: int, mode: str
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the trace with rows of at most `length` decisions: `mode` is "cut", or "scale" for rows of exactly that
    many, whose segments keep their shares of the row. Rows that were not finished are cut. A segment that is left with
    no decision is dropped.
    """
    versions, ends = [], []
    for row_versions, row_ends, is_whole in zip(rows["versions"], rows["ends"], rows["made_at"].notna(), strict=True):
        fit_ends = np.asarray(row_ends, dtype=np.int64)
        if mode == "scale" and is_whole and fit_ends[-1] > 0:
            fit_ends = -(-fit_ends * length // fit_ends[-1])  # rounded up
        fit_ends = np.minimum(fit_ends, length)
        remains = np.diff(fit_ends, prepend=0) > 0
        remains[0] |= not remains.any()
        versions.append(np.asarray(row_versions)[remains])
        ends.append(fit_ends[remains])
    return {**header, "decisions": None}, rows.assign(versions=versions, ends=ends)


def _read_failure(path: str, error: Exception) -> str:
    """Return the reason for a failure to read a file, in few words."""
    if isinstance(error, KeyError):
        return "a Parquet file, but not one that staleharness wrote as a trace"
    file = user_path(path)
    if not file.is_file():
        return "a folder" if file.is_dir() else "there is no such file"
    if not os.access(file, os.R_OK):
        return "it may not be read"
    with file.open("rb") as content:
        signature = content.read(4)
    return "the file is damaged, or cut off" if signature == b"PAR1" else "not a Parquet file"


def _by_times(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the columns that are `LATER`. A dropped group is taken to have left as soon as it was made."""
    step_starts = rows[rows["phase"] >= 0].groupby("phase")["trained_at"].first().to_numpy()
    completion_times = rows.groupby("group")["made_at"].transform("max").to_numpy()
    phases = np.searchsorted(step_starts, completion_times)
    finish_phases = np.where(phases < len(step_starts), phases, -1)
    dropped = rows["fate"].str.startswith("dropped")
    return {"finished_in": finish_phases, "left_in": np.where(dropped, finish_phases, rows["phase"])}


def _column_fault(name: str, kind: Any, absent: int) -> str | None:
    """Return the fault of a column, in words; None: it has none."""
    import pyarrow.types as types

    if name.endswith("_at"):
        return None if types.is_floating(kind) or types.is_null(kind) else f"{kind} in place of seconds"
    lists = name in ("versions", "ends")
    inner = kind.value_type if lists and types.is_list(kind) else kind
    has_type = types.is_string(inner) or types.is_large_string(inner) if name == "fate" else types.is_integer(inner)
    if not has_type or lists != types.is_list(kind):
        return f"{kind} in place of {'text' if name == 'fate' else 'whole numbers'}"
    return f"{absent} rows without it" if absent else None


def check(rows: pd.DataFrame, path: str) -> None:
    """Raise `UserError` for the first contradiction in a trace."""
    _check_phases(np.unique(rows["phase"]), path)
    _check_rows(rows, path)


def _check_phases(phases: NDArray[np.int_], path: str) -> None:
    """Raise `UserError` where a phase between others trained no row; `phases` ascend."""
    phases = phases[phases >= 0]
    hole = next((i for i, phase in enumerate(phases) if phase != i), None if len(phases) else 0)
    if hole is not None:
        raise UserError(f"trace {path} has a hole: no row was trained in phase {hole}")


def _check_rows(rows: pd.DataFrame, path: str) -> None:
    for fate in set(rows["fate"]) - set(FATES):
        raise UserError(f"trace {path}: fate {shorten(fate)!r} is not one of {', '.join(FATES)}")
    for row, phase, versions, ends in zip(*(rows[c] for c in ("row", "phase", "versions", "ends")), strict=True):
        if len(versions) == 0 or len(versions) != len(ends):
            raise UserError(f"trace {path}, row {row}: {len(versions)} versions and {len(ends)} ends")
        least = 0 if phase < 0 else 1  # a row that is not trained on may have no decision yet
        if np.any(np.diff(versions) < 0) or np.any(np.diff(ends) <= 0) or versions[0] < 0 or ends[0] < least:
            raise UserError(f"trace {path}, row {row}: versions decrease, or a segment is empty")
        if 0 <= phase < versions[-1]:
            raise UserError(
                f"trace {path}, row {row}: trained in phase {phase} with a version from the future, {versions[-1]}"
            )
