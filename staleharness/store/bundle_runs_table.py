"""Plain columns of a bundle's table of runs, for readers that know pandas or SQL and not staleharness.

All bundles have the same columns with the same types, so that their tables concatenate. Every value is derived from the
run's record and its evaluations, which are stored beside them unchanged; staleharness itself reads only those.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .bundle_reader import arrow_table, parts
from .results_folder_checks import folders_of_results
from .stored_run import StoredRun

LICENCE = "MIT"
COLUMNS = {  # name -> (type in pyarrow, content)
    "bundle": ("string", "folder of the bundle that holds this row"),
    "id": ("string", "id of the run: hash of its resolved spec and of the code of its plugins"),
    "canonical": (
        "bool",
        "false for a copy of a run whose newest copy is in another bundle; filter by it across bundles, not within one",
    ),
    "protocol": ("string", "digest of the benchmark protocol that the run belongs to; empty outside a benchmark"),
    "task": ("string", "kind of task: control, language or chain"),
    "env": ("string", "environment"),
    "method": ("string", "name of the algorithm"),
    "label": ("string", "the algorithm as tables name it: its name with the options that differ from the defaults"),
    "K": ("int64", "capacity of the policy buffer; data are up to K - 1 phases old, 1 is synchronous training"),
    "N": ("int64", "forward lag: minibatches per generation round; null where the kind of task has none"),
    "lag": ("string", "lag model"),
    "lag_mean": ("double", "mean lag of the decisions trained on, in phases: mean over the phases of the budget"),
    "seed": ("int64", "seed"),
    "measure": ("string", "evaluation that `score` and `area` are of: sampled or deterministic actions"),
    "score": ("double", "mean return or accuracy of the final policy"),
    "area": ("double", "mean height of the evaluation curve over steps, by trapezoids; null with one evaluation"),
    "steps": ("int64", "length of training in the unit of the task: environment steps, or gradient steps on tokens"),
    "phases": ("int64", "training phases, with those that fill the buffer before the budget"),
    "learning_rate": ("double", "initial learning rate"),
    "seconds": ("double", "wall-clock time"),
    "date": ("string", "day on which the run ended, YYYY-MM-DD"),
    "cpu": ("string", "kind of CPU; bits agree within a kind, between kinds only means over seeds"),
    "version": ("string", "version of staleharness that made the run"),
    "seal": ("string", "sha256 of the manifest of the run's own folder"),
    "record": ("string", "everything known of the run, as JSON: resolved spec, scores of every episode, versions"),
    "job": ("string", "what was asked for, as JSON"),
}


def flat_row(run: StoredRun, bundle: str, canonical: bool, protocol: str = "") -> dict[str, Any]:
    """Return the plain columns of a run, except `seal`, `record` and `job`."""
    record, spec = run.record, run.record["spec"]
    task = record["task"]
    forward, measure = task["axes"].get("N"), task["score"]
    return {
        "bundle": bundle,
        "id": run.id,
        "canonical": canonical,
        "protocol": protocol,
        "task": task["kind"],
        "env": spec["env"],
        "method": spec["algorithm"],
        "label": run.label,
        "K": spec["capacity"],
        "N": spec.get(forward),
        "lag": spec.get("lag"),
        "lag_mean": record["summary"].get("lag_mean"),
        "seed": run.seed,
        "measure": measure,
        "score": float(record["scores"][measure]["mean"]),
        "area": curve_area(run, measure),
        "steps": record["steps"],
        "phases": record["phases"],
        "learning_rate": spec.get("learning_rate"),
        "seconds": float(record["seconds"]["total"]),
        "date": str(record["date"]),
        "cpu": str(record["fingerprint"].get("cpu", "")),
        "version": str(record["fingerprint"].get("staleharness", "")),
    }


def curve_area(run: StoredRun, measure: str) -> float | None:
    """Mean height of the evaluation curve (trapezoid rule over steps); None with fewer than two evaluations."""
    steps, returns = run.curves.get(measure, (np.empty(0), np.empty(0)))
    if len(steps) < 2:
        return None
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def runs_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Make the table of runs in pyarrow, each column with its meaning in the metadata."""
    import pyarrow as pa

    fields = [
        pa.field(name, pa.type_for_alias(kind), metadata={"description": text})
        for name, (kind, text) in COLUMNS.items()
    ]
    about = {"title": "Runs of staleharness", "license": LICENCE, "card": "results/reference/README.md"}
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields, metadata=about))


def lacks_columns(table: Path) -> bool:
    """Return whether a table of runs was written before it had plain columns, or with different ones."""
    import pyarrow.parquet as pq

    return list(pq.read_schema(table).names) != list(COLUMNS)


def is_canonical(date: str, bundle: str, copies: Sequence[tuple[str, str]]) -> bool:
    """Return whether a run is newer than its copies in other bundles, (date, bundle) each; among those of the same day,
    which are equal, the first by name is canonical."""
    return all((date, other) > (other_date, bundle) for other_date, other in copies)


def copies_elsewhere(bundle: Path) -> dict[str, list[tuple[str, str]]]:
    """Map run ids to the (date, bundle) of each copy in another bundle of the same folder. A bundle that cannot be read
    holds none."""
    copies: dict[str, list[tuple[str, str]]] = {}
    for root in folders_of_results(bundle.parent):
        with contextlib.suppress(OSError, ValueError):  # pyarrow's errors are ValueErrors
            for runs_file, *_ in parts(root) if root.name != bundle.name else ():
                columns = ["id", "record"] if lacks_columns(root / runs_file) else ["id", "date"]
                for row in arrow_table(root / runs_file, columns).to_pylist():
                    date = row["date"] if "date" in row else json.loads(row["record"])["date"]
                    copies.setdefault(row["id"], []).append((date, root.name))
    return copies
