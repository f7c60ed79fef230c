"""CSV for data frames: `metrics.csv`, a line per run, phase and metric; `runs.csv`, a line per run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..base.files import atomic_write, check_replaceable, remove_temporaries, write_bytes
from ..base.table_formatting import rows_to_csv
from ..pages.report_tables import run_records
from ..store.run_grid import cell_of
from ..store.stored_run import StoredRun
from .exporter import EXPORTERS, HISTOGRAM, phases, settings

COLUMNS = ("run", "algorithm", "environment", "K", "seed", "phase", "steps", "metric", "value")


@EXPORTERS.register("csv", "{folder}/metrics.csv, {folder}/runs.csv")
def write(runs: Iterable[StoredRun], folder: Path) -> list[Path]:
    """Write both files. Lines are ordered by run, then by metric; a value that a phase lacks has no line. Raises
    `UserError` if other files have their names."""
    runs = list(runs)
    metrics, table = folder / "metrics.csv", folder / "runs.csv"
    check_replaceable(metrics, ",".join(COLUMNS), "an export")
    check_replaceable(table, ",".join(COLUMNS[:5]), "an export")
    remove_temporaries(folder, metrics.name, table.name)
    with atomic_write(metrics) as stream:
        stream.write(rows_to_csv((), COLUMNS).encode())
        for run in runs:
            stream.write(rows_to_csv(_lines(run), COLUMNS, header=False).encode())
    records = [_record(run) for run in runs]
    write_bytes(table, rows_to_csv(records, list(dict.fromkeys(k for r in records for k in r))).encode())
    return [metrics, table]


def _lines(run: StoredRun) -> Iterator[dict[str, Any]]:
    cell, data = cell_of(run), phases(run)
    of_run = {"run": run.id, "algorithm": cell.label, "environment": cell.env, "K": cell.capacity, "seed": run.seed}
    columns = dict(data.scalars)
    for lag in range(max(map(len, data.lags), default=0)):
        columns[f"{HISTOGRAM}/{lag}"] = np.array([h[lag] if lag < len(h) else 0 for h in data.lags], np.float64)
    for name, values in columns.items():
        rows = zip(data.phase.tolist(), data.steps.tolist(), values.tolist(), strict=True)
        for i, (phase, steps, value) in enumerate(rows):
            if value == value:  # not NaN
                yield {**of_run, "phase": phase, "steps": steps, "metric": data.name(name, i), "value": value}


def _record(run: StoredRun) -> dict[str, Any]:
    """Columns of the report's list of runs, `set.<setting>`, `made.<entry of the fingerprint>`, `mean.<metric>`."""
    (record,) = run_records([run], [])
    r = run.record
    return {
        "run": run.id,
        **{name: value for name, value in record.items() if name not in ("run", "status", "accuracy")},
        "date": r["date"],
        "code": run.code,
        **{f"set.{name}": value for name, value in settings(run).items()},
        **{f"made.{name}": value for name, value in sorted(r["fingerprint"].items())},
        **{f"mean.{name}": value for name, value in sorted(r["summary"].items())},
    }
