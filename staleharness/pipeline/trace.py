"""A trace: which rows were made, by whom, with which versions, and when; one Parquet file, which says what it is.

The columns are in `COLUMNS`; the header is JSON under the key `staleharness.trace` of the file's metadata.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd

from ..base.files import user_path
from ..errors import UserError, nearest, shortened
from .lag import TRAINED
from .log import FATES, Record

KEY = b"staleharness.trace"
FORMAT = 1
COLUMNS = {
    "row": "number of the row, in the order in which rows began",
    "group": "rows of one group are trained together",
    "actor": "slot that made it",
    "nth": "how many rows this actor had begun before",
    "fate": "one of " + ", ".join(FATES),
    "phase": "version at which it was trained, that is the step that trained it; -1: none did",
    "versions": "list: the version of each stretch, not decreasing",
    "ends": "list: decisions of the row made when the stretch ended",
    "began_at": "seconds, first decision",
    "made_at": "seconds, last decision; empty: not made",
    "queued_at": "seconds, its group entered the queue; empty: it did not",
    "trained_at": "seconds, its step began; empty: it was not trained",
}


def trace_of(record: Record) -> pd.DataFrame:
    """One line per row that began, in order."""
    n = len(record.slot)
    first = np.searchsorted(record.stretch_row, np.arange(n))
    trained_at = np.full(n, np.nan)
    trained = record.fate == TRAINED
    trained_at[trained] = record.step_began[record.step[trained]]
    table = pd.DataFrame({
        "row": np.arange(n), "group": np.arange(n) // record.pipeline.group, "actor": record.slot,
        "fate": np.array(FATES)[record.fate], "phase": record.step,
        "versions": np.split(record.stretch_version, first[1:]),
        "ends": np.split(record.stretch_end, first[1:]),
        "began_at": record.began, "made_at": record.made, "queued_at": record.queued, "trained_at": trained_at,
    })  # fmt: skip
    table.insert(3, "nth", table.groupby("actor").cumcount())
    return table


def header(record: Record) -> dict[str, Any]:
    """What the file says of itself."""
    return {
        "format": FORMAT, "source": "pipeline", "seed": record.seed, "warm_up": record.warm, "columns": COLUMNS,
        "pipeline": record.pipeline.to_json(),
    }  # fmt: skip


def to_parquet(record: Record) -> bytes:
    """The trace as the content of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(trace_of(record), preserve_index=False)
    table = table.replace_schema_metadata({KEY: json.dumps(header(record)).encode()})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def read_trace(path: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """(header, rows) of a trace, checked. Raises `UserError` for a file that is none, has holes, or versions from the
    future."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(user_path(path))
        found = json.loads((table.schema.metadata or {})[KEY])
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{shortened(path)} is not a trace: {' '.join(str(error).split())[:100]}") from error
    rows = table.to_pandas()
    for name in COLUMNS:
        if name not in rows:
            raise UserError(f"trace {path} has no column {name}; {nearest(name, map(str, rows.columns))}")
    check(rows, path)
    return found, rows


def check(rows: pd.DataFrame, path: str) -> None:
    """Raise `UserError` for the first thing in a trace that cannot be."""
    trained = rows[rows["phase"] >= 0]
    phases = np.unique(trained["phase"])
    holes = np.setdiff1d(np.arange(phases.max() + 1), phases) if len(phases) else np.zeros(1, np.int64)
    if len(holes):
        raise UserError(f"trace {path} has a hole: no row was trained in phase {holes[0]}")
    for row, phase, versions, ends in zip(
        *(rows[c] for c in ("row", "phase", "versions", "ends")), strict=True
    ):
        if len(versions) == 0 or len(versions) != len(ends):
            raise UserError(f"trace {path}, row {row}: {len(versions)} versions and {len(ends)} ends")
        if np.any(np.diff(versions) < 0) or np.any(np.diff(ends) <= 0) or versions[0] < 0:
            raise UserError(f"trace {path}, row {row}: versions decrease, or a stretch is empty")
        if 0 <= phase < versions[-1]:
            raise UserError(
                f"trace {path}, row {row}: trained in phase {phase} with a version from the future, {versions[-1]}"
            )
