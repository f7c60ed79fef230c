"""Published results in few files: the runs of many directories as three tables. No torch, no simulator, no plugin.

<root>/staleharness.json   marks the folder as ours
<root>/manifest.json       sha256 of the tables; command, study and what the runs were made with
<root>/runs.parquet        a row per run: id, run.json and job.json as they were, digest of its own manifest
<root>/metrics.parquet     a row per run and phase: what the runs' metrics.parquet held, no digit lost
<root>/timing.parquet      likewise the seconds
<root>/traces/             of runs with real actors, as they were: `traces/<id>.parquet`
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import digest, read_json
from ..errors import UserError
from .record import FORMAT, is_id, note_damaged, parsed, wrong_with

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

TABLES = ("metrics", "timing")  # with a column `run`
RUNS = "runs.parquet"
FILES = (RUNS, *(f"{name}.parquet" for name in TABLES))
TRACES = "traces"
NAME = re.compile(rf"{TRACES}/([0-9a-f]{{12}}|[0-9a-f]{{16}})\.parquet")  # of a run, or of what no run here left


def is_packed(root: Path) -> bool:
    return (root / RUNS).is_file()


def check(root: Path) -> None:
    """Raise `UserError` where a file is not the one that the manifest vouches for."""
    try:
        held = read_json(root / "manifest.json")["files"]
        wrong = [name for name in FILES if held.get(name) != digest(root / name)] or _wrong_traces(root, held)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the packed results in {root} are damaged: manifest.json: {type(error).__name__}") from None
    if wrong:
        raise UserError(
            f"the packed results in {root} are damaged: {wrong[0]} differs from the manifest; get them again"
        )


def trace_in(name: str) -> str:
    """The place of a trace in a bundle."""
    return f"{TRACES}/{name}.parquet"


def _wrong_traces(root: Path, held: Mapping[str, str]) -> list[str]:
    """Those that are not what the manifest vouches for. Whoever wrote the bundle wrote the manifest, too: a name
    becomes a path only where it is one of ours, and no link is followed."""
    folder, named = root / TRACES, sorted(set(held) - set(FILES))
    if folder.is_symlink() or any(not NAME.fullmatch(name) for name in named):
        return [next((name[:60] for name in named if not NAME.fullmatch(name)), TRACES)]
    there = [f"{TRACES}/{path.name}" for path in sorted(folder.iterdir())] if folder.is_dir() else []
    wrong = [name for name in there if name not in held or (root / name).is_symlink()]
    return wrong or [name for name in named if name not in there or digest(root / name) != held[name]]


def arrow_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file, or those of these columns that it has, as pyarrow has it. Read on this thread: tables are small,
    and pyarrow's own threads now and then outlive `main`, which ends a process by SIGABRT."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read(columns=columns, use_threads=False)


def frame_of(path: Path) -> pd.DataFrame:
    """A Parquet file as a data frame."""
    frame: pd.DataFrame = arrow_table(path).to_pandas(use_threads=False)
    return frame


def numbers(table: Any) -> dict[str, NDArray[np.float64]]:
    """The columns of a table of pyarrow's that have a number, as numbers, NaN where there is none. They lie side by
    side in one array: thousands of runs are held at once, and pyarrow takes several times the room."""
    import numpy as np
    from pyarrow import types

    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numeric = types.is_floating(column.type) or types.is_integer(column.type) or types.is_boolean(column.type)
        if numeric and column.null_count < len(column):
            values = np.concatenate([_floats(chunk) for chunk in column.chunks])
            if not np.isnan(values).all():
                found[name] = values
    together = np.array(list(found.values()))
    return dict(zip(map(sys.intern, found), together, strict=True))


def _floats(array: Any) -> NDArray[np.float64]:
    """A pyarrow array of numbers or truth values, NaN where it has none. Its own conversion loads pandas, 40 MB."""
    import numpy as np
    from pyarrow import types

    valid, data = array.buffers()
    part = slice(array.offset, array.offset + len(array))
    if types.is_boolean(array.type):
        values = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[part].astype(np.float64)
    else:
        values = np.frombuffer(data, array.type.to_pandas_dtype())[part].astype(np.float64)
    if array.null_count:
        there = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[part]
        values[there == 0] = np.nan
    return values


def read_runs(root: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """Yield (id, run.json, job.json, digest of its own manifest) of each run that counts, sorted by id. A damaged run
    is named in one line and left out. Raises `UserError` where the bundle as a whole cannot be read."""
    check(root)
    try:
        rows = arrow_table(root / RUNS, ["id", "record", "job", "seal"]).to_pylist()
        rows.sort(key=_id_of)
        places = {file: _places(arrow_table(root / file, ["run"])) for file in FILES if file != RUNS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the packed results in {root} are damaged: {RUNS}: {type(error).__name__}") from None
    for run_id, (row, *others) in itertools.groupby(rows, _id_of):
        record, job, wrong = ({}, {}, "it is there twice") if others else _read_row(run_id, row)
        for file, place in () if wrong or record.get("format") != FORMAT else places.items():
            if place.get(run_id, (0, 0))[1] != record["phases"]:
                wrong = wrong or f"{file} does not hold its {record['phases']} phases in one piece"
        if wrong is None:
            yield run_id, record, job, str(row["seal"])
        else:
            note_damaged(run_id, wrong)


def _id_of(row: Mapping[str, Any]) -> str:
    return str(row["id"])


def _read_row(run_id: str, row: Mapping[str, Any]) -> tuple[Any, Any, str | None]:
    """Record and job in a row of the table of runs, and what is wrong with them."""
    # Whoever wrote the bundle wrote the digests, too: a name becomes a path only where it is one of ours.
    if not is_id(run_id):
        return {}, {}, "its name is not a run id"
    try:
        record, job = parsed(row["record"]), parsed(row["job"])
    except (ValueError, TypeError) as error:
        return {}, {}, f"{type(error).__name__}: {error}"
    return record, job, wrong_with(record, run_id, job)


def read_ids(root: Path) -> set[str]:
    """The names of all runs in a bundle, of damaged ones, too. Raises `UserError`."""
    check(root)
    return set(map(str, arrow_table(root / RUNS, ["id"])["id"].to_pylist()))


def read_job(root: Path, run_id: str) -> dict[str, Any]:
    """The job of a run that counts."""
    path = root / RUNS
    return dict(parsed(_jobs(path, path.stat().st_mtime_ns)[run_id]))


@functools.lru_cache(maxsize=1)
def _jobs(path: Path, _: int) -> dict[str, str]:
    """Run id -> job.json."""
    rows = arrow_table(path, ["id", "job"])
    return dict(zip(map(str, rows["id"].to_pylist()), rows["job"].to_pylist(), strict=True))


def read_table(root: Path, name: str, run_id: str) -> pd.DataFrame:
    """One of `TABLES` for one run, as its own file held it but for columns without any value."""
    # By way of an Arrow slice: integers stay integers where other runs lack the column.
    frame: pd.DataFrame = read_arrow(root, name, run_id).to_pandas()
    return frame.drop(columns="run").dropna(axis=1, how="all")


def read_arrow(root: Path, name: str, run_id: str, columns: Sequence[str] | None = None) -> Any:
    """The rows of one run in one of `TABLES`, as pyarrow has them: with the columns of all runs, or those of these
    columns that it has."""
    path = root / f"{name}.parquet"
    whole, places = _by_run(path, path.stat().st_mtime_ns)
    if run_id not in places:
        raise UserError(f"the packed results in {root} are damaged: {path.name} has nothing of run {run_id}")
    held = whole if columns is None else whole.select([c for c in columns if c in whole.column_names])
    return held.slice(*places[run_id])


@functools.lru_cache(maxsize=8)
def _by_run(path: Path, _: int) -> tuple[Any, dict[str, tuple[int, int]]]:
    """A table, and where each run's rows are in it: (first, number)."""
    whole = arrow_table(path).combine_chunks()
    return whole, _places(whole)


def _places(table: Any) -> dict[str, tuple[int, int]]:
    """Run id -> (first, number) of its rows in a table with a column `run`; (0, 0) where they are not in one piece."""
    from pyarrow import compute

    stretches = compute.run_end_encode(table["run"].combine_chunks())
    places: dict[str, tuple[int, int]] = {}
    start = 0
    for run, end in zip(map(str, stretches.values.to_pylist()), stretches.run_ends.to_pylist(), strict=True):
        places[run] = (0, 0) if run in places else (start, end - start)
        start = end
    return places
