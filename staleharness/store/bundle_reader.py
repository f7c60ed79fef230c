"""Reader of a bundle: published results, the runs of many folders in three tables. No torch, simulator or plugin.

<root>/staleharness.json   marks the folder as ours
<root>/manifest.json       sha256 of the tables; command, study, fingerprints
<root>/runs.parquet        a row per run: id, run.json and job.json unchanged, digest of its own manifest
<root>/metrics.parquet     a row per run and phase: the metrics.parquet of all runs, in full precision
<root>/timing.parquet      the timing.parquet of all runs
<root>/traces/             traces of runs with real actors, unchanged: `traces/<id>.parquet`

Runs that were added later are in further parts: `runs-1.parquet`, `metrics-1.parquet`, `timing-1.parquet` and so on.
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
from .record_schema import FORMAT, is_id, parse_record, record_problem, warn_damaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TABLES = ("metrics", "timing")  # with a column `run`
RUNS = "runs.parquet"
CONTENT = "packed staleharness results"  # of a bundle, by its marker
FILES = (RUNS, *(f"{name}.parquet" for name in TABLES))
TRACES = "traces"
NAME = re.compile(rf"{TRACES}/([0-9a-f]{{12}}|[0-9a-f]{{16}})\.parquet")  # of a run here, or of a run elsewhere


def is_packed(root: Path) -> bool:
    return (root / RUNS).is_file()


def part_files(number: int) -> tuple[str, ...]:
    """Return the names of the tables of a part of a bundle; those of part 0 are `FILES`."""
    return tuple(name.replace(".", f"-{number}." if number else ".") for name in FILES)


def parts(root: Path) -> list[tuple[str, ...]]:
    """List the tables of each part of a bundle."""
    return list(itertools.takewhile(lambda files: (root / files[0]).is_file(), map(part_files, itertools.count())))


def check_bundle(root: Path) -> None:
    """Raise `UserError` if a file does not match the manifest."""
    try:
        digests = read_json(root / "manifest.json")["files"]
        tables = list(itertools.chain(FILES, *parts(root)[1:]))
        wrong = [name for name in tables if not (root / name).is_file() or digests.get(name) != digest(root / name)]
        wrong = wrong or _wrong_traces(root, digests.keys() - set(tables), digests)
    except PermissionError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the packed results in {root} are damaged: manifest.json: {type(error).__name__}") from None
    if wrong:
        raise UserError(
            f"the packed results in {root} are damaged: {wrong[0]} differs from the manifest; get them again"
        )


def trace_path(name: str) -> str:
    """Return the path of a trace in a bundle."""
    return f"{TRACES}/{name}.parquet"


def _wrong_traces(root: Path, others: set[str], digests: Mapping[str, str]) -> list[str]:
    """List traces that do not match the manifest. The author of a forged bundle also writes its manifest, so a name
    becomes a path only if it has the form of a trace's name, and no link is followed."""
    folder, names = root / TRACES, sorted(others)
    if folder.is_symlink() or any(not NAME.fullmatch(name) for name in names):
        return [next((name[:60] for name in names if not NAME.fullmatch(name)), TRACES)]
    files = [f"{TRACES}/{path.name}" for path in sorted(folder.iterdir())] if folder.is_dir() else []
    wrong = [name for name in files if name not in digests or (root / name).is_symlink()]
    return wrong or [name for name in names if name not in files or digest(root / name) != digests[name]]


def arrow_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Read a Parquet file as a pyarrow table, restricted to the columns in `columns` that it has. Reads on this thread:
    pyarrow's own threads sometimes outlive `main`, which ends the process with SIGABRT."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read(columns=columns, use_threads=False)


def numeric_columns(table: Any) -> dict[str, NDArray[np.float64]]:
    """Convert the columns of a pyarrow table that hold a number, NaN for missing ones. They share one array: thousands
    of runs are in memory at once, and pyarrow takes several times the memory."""
    import numpy as np
    from pyarrow import types

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numeric = types.is_floating(column.type) or types.is_integer(column.type) or types.is_boolean(column.type)
        if numeric and column.null_count < len(column):
            values = np.concatenate([_floats(chunk) for chunk in column.chunks])
            if not np.isnan(values).all():
                columns[name] = values
    together = np.array(list(columns.values()))
    return dict(zip(map(sys.intern, columns), together, strict=True))


def _floats(array: Any) -> NDArray[np.float64]:
    """Convert a pyarrow array of numbers or booleans, NaN for nulls. Its own conversion loads pandas, 40 MB."""
    import numpy as np
    from pyarrow import types

    valid, data = array.buffers()
    part = slice(array.offset, array.offset + len(array))
    if types.is_boolean(array.type):
        values = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[part].astype(np.float64)
    else:
        values = np.frombuffer(data, array.type.to_pandas_dtype())[part].astype(np.float64)
    if array.null_count:
        present = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[part]
        values[present == 0] = np.nan
    return values


def read_runs(root: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """Yield (id, run.json, job.json, digest of its own manifest) of each valid run, sorted by id. A damaged run is
    logged in one line and left out. Raises `UserError` if the bundle as a whole cannot be read."""
    check_bundle(root)
    try:
        rows, places = [], dict[str, dict[str, tuple[int, int]]]()
        for runs_file, *tables in parts(root):
            rows += arrow_table(root / runs_file, ["id", "record", "job", "seal"]).to_pylist()
            for name, file in zip(TABLES, tables, strict=True):
                places.setdefault(f"{name}.parquet", {}).update(_places(arrow_table(root / file, ["run"])))
        rows.sort(key=_id_of)
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
            warn_damaged(run_id, wrong)


def _id_of(row: Mapping[str, Any]) -> str:
    return str(row["id"])


def _read_row(run_id: str, row: Mapping[str, Any]) -> tuple[Any, Any, str | None]:
    """Parse record and job in a row of the table of runs; the third value is the problem, or None."""
    # The author of a forged bundle also writes its digests: a name becomes a path only if it is a run id.
    if not is_id(run_id):
        return {}, {}, "its name is not a run id"
    try:
        record, job = parse_record(row["record"]), parse_record(row["job"])
    except (ValueError, TypeError) as error:
        return {}, {}, f"{type(error).__name__}: {error}"
    return record, job, record_problem(record, run_id, job)


def read_ids(root: Path) -> set[str]:
    """Return the ids of all runs in a bundle, damaged ones included. Raises `UserError`."""
    check_bundle(root)
    return unchecked_ids(root)


def unchecked_ids(root: Path) -> set[str]:
    """Return the ids of all runs in a bundle, without checking its digests."""
    return {
        str(run) for runs_file, *_ in parts(root) for run in arrow_table(root / runs_file, ["id"])["id"].to_pylist()
    }


def read_job(root: Path, run_id: str) -> dict[str, Any]:
    """Return the job of a valid run."""
    paths = (root / runs_file for runs_file, *_ in parts(root))
    jobs = (_jobs(path, path.stat().st_mtime_ns) for path in paths)
    return dict(parse_record(next(part[run_id] for part in jobs if run_id in part)))


@functools.lru_cache(maxsize=4)
def _jobs(path: Path, _: int) -> dict[str, str]:
    """Map run ids to job.json."""
    rows = arrow_table(path, ["id", "job"])
    return dict(zip(map(str, rows["id"].to_pylist()), rows["job"].to_pylist(), strict=True))


def read_arrow(root: Path, name: str, run_id: str, columns: Sequence[str] | None = None) -> Any:
    """Read the rows of one run in one of `TABLES` as pyarrow: with the columns of all runs, or those in `columns`."""
    for files in parts(root):
        path = root / files[1 + TABLES.index(name)]
        table, places = _by_run(path, path.stat().st_mtime_ns)
        if run_id in places:
            part = table if columns is None else table.select([c for c in columns if c in table.column_names])
            return part.slice(*places[run_id])
    raise UserError(f"the packed results in {root} are damaged: {name}.parquet has nothing of run {run_id}")


@functools.lru_cache(maxsize=8)
def _by_run(path: Path, _: int) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Read a table and the position of each run's rows in it: (first, number)."""
    table = arrow_table(path).combine_chunks()
    return table, _places(table)


def _places(table: Any) -> dict[str, tuple[int, int]]:
    """Map run ids to (first, number) of their rows in a table with a column `run`; (0, 0) if not contiguous."""
    from pyarrow import compute

    stretches = compute.run_end_encode(table["run"].combine_chunks())
    places: dict[str, tuple[int, int]] = {}
    start = 0
    for run, end in zip(map(str, stretches.values.to_pylist()), stretches.run_ends.to_pylist(), strict=True):
        places[run] = (0, 0) if run in places else (start, end - start)
        start = end
    return places
