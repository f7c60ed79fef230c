"""Give the published runs the ids that their specs have under today's rules; names move, numbers do not.

    python tests/published/move_ids.py [bundle ...]     all of results/reference/ unless some are named

Why it exists: until 2026-11-22 a run's id hashed the bytes of its plugin files, so that a comment or an import line
expired runs whose meaning had not moved. When the rule for ids changes (as it did that day) and the meaning of the
runs does not, this moves them once, and writes into each bundle's manifest, under `renamed`, that it did. It is never
the way to keep runs whose meaning has changed: those are made anew.

A record is completed as it is moved: settings and options that were added since it was written get their defaults,
and it says its kind of task. The digest of a run's own manifest (its seal) stays, for published pictures refer to it.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from staleharness.algorithm import ALGORITHMS
from staleharness.base.files import digest, whole, write_json
from staleharness.base.plugins import source_hash
from staleharness.lag import file_hash, identity
from staleharness.spec import RunSpec
from staleharness.store.bundle_reader import FILES, RUNS, TABLES, check_bundle
from staleharness.store.store import FORMAT, MARKER
from staleharness.task import Task, find_env

REFERENCE = Path(__file__).resolve().parents[2] / "results" / "reference"
WHY = (
    "an id is now a hash of what the plugin files say, without layout, comments, docstrings and import lines, and no "
    "longer of their bytes"
)
# Runs whose ids had expired before: what was compared, to see that their meaning has not moved.
SHOWN_AGAIN = (
    "the ids of these runs had expired already, by edits of plugin files and by fields added to the spec: before they "
    "were moved, the code of the commit that made them and that of this day were run on small versions of the same "
    "specs, every method of the bundle, and gave the same parameters, metrics and scores, bit for bit"
)
EXPIRED = {"ppo_hopper_cleanrl": SHOWN_AGAIN, "staleness_halfcheetah": SHOWN_AGAIN}


def completed(spec: dict[str, Any]) -> tuple[RunSpec, type[Task]]:
    """A recorded spec with what was added since at the value that means as before, and the family that it is of."""
    _, family = find_env(spec["env"])
    added = {f.name: f.metadata["before"] for f in dataclasses.fields(family.settings) if "before" in f.metadata}
    read = family.settings.from_dict({**added, **spec})
    algorithm = ALGORITHMS[read.algorithm](**read.hyper)
    hyper = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}
    return dataclasses.replace(read, hyper=hyper), family


def id_of(spec: RunSpec, family: type[Task]) -> str:
    hashes = source_hash(ALGORITHMS[spec.algorithm]), source_hash(family)
    return spec.run_id(*hashes, file_hash(spec.lag), identity(spec.lag))


def moved_run(row: dict[str, str]) -> dict[str, str]:
    """A row of runs.parquet under its id of today."""
    record, job = json.loads(row["record"]), json.loads(row["job"])
    spec, family = completed(record["spec"])
    run_id, plain = id_of(spec, family), json.loads(spec.to_json())
    record.pop("unit", None)  # it is among the facts
    record |= {"id": run_id, "format": FORMAT, "spec": plain, "task": family.facts(record["scores"])}
    job |= {"spec": plain}
    texts = {name: json.dumps(content, sort_keys=True) for name, content in (("record", record), ("job", job))}
    return {**row, "id": run_id, **texts}


def by_run(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of each run, in their order, without its name."""
    places: dict[str, list[int]] = {}
    for place, run in enumerate(table["run"].to_pylist()):
        places.setdefault(run, []).append(place)
    return {run: table.take(rows).drop_columns("run") for run, rows in places.items()}


def moved_table(table: pa.Table, ids: dict[str, str]) -> pa.Table:
    """The same rows under the ids of today, runs sorted by them."""
    parts = {ids[run]: rows for run, rows in by_run(table).items()}
    named = [parts[run].append_column("run", pa.array([run] * len(parts[run]))) for run in sorted(parts)]
    return pa.concat_tables(named).select(table.column_names).cast(table.schema)


def move(root: Path) -> dict[str, str]:
    """Move one bundle; returns its ids, earlier -> today's, none where all hold. Raises `AssertionError` where a
    number would change."""
    check_bundle(root)
    rows = pq.read_table(root / RUNS).to_pylist()
    moved = [moved_run(row) for row in rows]
    ids = {row["id"]: new["id"] for row, new in zip(rows, moved, strict=True)}
    assert len(set(ids.values())) == len(rows), "two runs would have one id"
    if moved == rows:
        return {}
    contents = {RUNS: pa.Table.from_pylist(sorted(moved, key=lambda row: row["id"]))}
    for name in TABLES:
        before = pq.read_table(root / f"{name}.parquet")
        contents[f"{name}.parquet"] = after = moved_table(before, ids)
        was, now = by_run(before), by_run(after)
        assert all(repr(was[run].to_pylist()) == repr(now[ids[run]].to_pylist()) for run in ids), name
    manifest = json.loads((root / "manifest.json").read_text())
    told = {"by": "tests/published/move_ids.py", "date": datetime.date.today().isoformat(), "why": WHY, "ids": ids}
    told |= {"expired": EXPIRED[root.name]} if root.name in EXPIRED else {}
    for name, table in contents.items():
        with whole(root / name) as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=19)
    write_json(root / MARKER, {"format": FORMAT, "holds": "packed staleharness results"})
    files = {**manifest["files"], **{name: digest(root / name) for name in FILES}}
    write_json(root / "manifest.json", {**manifest, "files": files, "renamed": [*manifest.get("renamed", []), told]})
    return ids


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(p for p in REFERENCE.iterdir() if p.is_dir()):
        print(f"{place.name}: {len(move(place))} runs moved")
