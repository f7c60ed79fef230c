"""Rename published runs whose plugin files were edited without a change of meaning; ids move, numbers do not.

    python tests/published/move_ids.py --why TEXT [bundle ...]     all of results/reference/ unless some are named

Run it after an edit of a plugin that test_published.py finds and whose golden traces do not move. It refuses where
they do, where `traces.json` itself was edited, and where a run was made under another `MATHS_VERSION`: such runs are
made anew. A line that no golden trace covers gets a case in tests/golden/cases.py first, its trace recorded before
the edit. Each manifest names the ids under `renamed`, with the reason.

Records are completed as they are moved: settings and options that were added `later` stand at `before`. The digest of
a run's own manifest (its seal) stays, for published pictures refer to it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from staleharness.base.files import atomic_write, digest, write_json
from staleharness.running.run_identity import read_stored, run_id
from staleharness.spec import MATHS_VERSION
from staleharness.store.bundle_reader import check_bundle, parts, trace_path
from staleharness.store.store import FORMAT, MARKER

TESTS = Path(__file__).resolve().parents[1]
REFERENCE = TESTS.parent / "results" / "reference"

sys.path.insert(0, str(TESTS / "golden"))

from cases import cases, spec_of  # noqa: E402
from traces import FILE, TOLERANCE, made_with, sketch_distance, trace, write_inputs  # noqa: E402


class RenamingError(Exception):
    """The runs cannot be renamed: their numbers may have changed."""


def moved_cases(algorithms: Iterable[str]) -> list[str]:
    """Return the golden cases of some algorithms whose traces differ from the recorded ones: in bits where the record
    holds those of such a machine, and otherwise by more than the tolerance."""
    recorded = json.loads(FILE.read_text())
    hashes = [maker["hashes"] for maker in recorded["makers"] if maker["made_with"] == made_with()]
    moved = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        for case in cases():
            if spec_of(case, Path(folder)).algorithm not in set(algorithms):
                continue
            now = trace(case, Path(folder))
            bits = all(maker.get(case, now["hashes"]) == now["hashes"] for maker in hashes)
            if not bits or sketch_distance(now["sketch"], recorded["sketches"][case]) > TOLERANCE:
                moved.append(case)
    return moved


def renamed_row(row: dict[str, str]) -> dict[str, str]:
    """Return a row of runs.parquet under the id that it has today. Raises `RenamingError`."""
    record, job = json.loads(row["record"]), json.loads(row["job"])
    if record["fingerprint"]["maths"] != MATHS_VERSION:
        raise RenamingError(f"{row['id']} was made under MATHS_VERSION {record['fingerprint']['maths']}; make it anew")
    spec, family = read_stored(record["spec"])
    new, plain = run_id(spec, family), json.loads(spec.to_json())
    record.pop("unit", None)  # part of `task` since format 2
    record |= {"id": new, "format": FORMAT, "spec": plain, "task": family.facts(record["scores"])}
    texts = {"record": record, "job": job | {"spec": plain}}
    return {**row, "id": new, **{name: json.dumps(content, sort_keys=True) for name, content in texts.items()}}


def by_run(table: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each run, in their order, without the column `run`."""
    places: dict[str, list[int]] = {}
    for place, run in enumerate(table["run"].to_pylist()):
        places.setdefault(run, []).append(place)
    return {run: table.take(rows).drop_columns("run") for run, rows in places.items()}


def renamed_table(table: pa.Table, ids: dict[str, str]) -> pa.Table:
    """Return the same rows under new ids, runs sorted by them."""
    parts = {ids[run]: rows for run, rows in by_run(table).items()}
    named = [parts[run].append_column("run", pa.array([run] * len(parts[run]))) for run in sorted(parts)]
    return pa.concat_tables(named).select(table.column_names).cast(table.schema)


def move(root: Path, why: str) -> dict[str, str]:
    """Rename the runs of one bundle; returns the ids that changed, earlier -> today's.

    A bundle whose ids all hold is not written. Raises `RenamingError` where a golden trace of a method has moved whose
    runs would be renamed, and `AssertionError` where a number would change.
    """
    check_bundle(root)
    rows = {files: pq.read_table(root / files[0]).to_pylist() for files in parts(root)}
    new_rows = {files: list(map(renamed_row, part)) for files, part in rows.items()}
    ids = {row["id"]: new["id"] for files in rows for row, new in zip(rows[files], new_rows[files], strict=True)}
    changed = {earlier: now for earlier, now in ids.items() if earlier != now}
    if not changed:
        return {}
    assert len(set(ids.values())) == sum(map(len, rows.values())), "two runs would have one id"
    specs = [json.loads(row["record"])["spec"] for part in rows.values() for row in part if row["id"] in changed]
    if cases := moved_cases({spec["algorithm"] for spec in specs}):
        raise RenamingError(f"the golden traces of {', '.join(cases)} have moved; make the runs of {root.name} anew")
    contents = {}
    for files, part in rows.items():
        if all(row["id"] not in changed for row in part):
            continue  # a part without a change is not written again
        runs = sorted(new_rows[files], key=lambda row: row["id"])
        contents[files[0]] = pa.Table.from_pylist(runs, schema=pq.read_schema(root / files[0]))
        for name in files[1:]:
            earlier = pq.read_table(root / name)
            contents[name] = now = renamed_table(earlier, ids)
            before, after = by_run(earlier), by_run(now)
            assert all(repr(before[run].to_pylist()) == repr(after[ids[run]].to_pylist()) for run in before), name
    manifest = json.loads((root / "manifest.json").read_text())
    for name, table in contents.items():
        with atomic_write(root / name) as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=19)
    files = dict(manifest["files"])
    for run in changed:
        if trace_path(run) in files:
            files[trace_path(ids[run])] = files.pop(trace_path(run))
            (root / trace_path(run)).rename(root / trace_path(ids[run]))
    write_json(root / MARKER, {"format": FORMAT, "holds": "packed staleharness results"})
    note = {"by": "tests/published/move_ids.py", "date": f"{datetime.date.today()}", "why": why, "ids": changed}
    files |= {name: digest(root / name) for name in contents}
    write_json(root / "manifest.json", {**manifest, "files": files, "renamed": [*manifest.get("renamed", []), note]})
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--why", required=True, help="what was edited, and why no number moves; kept in the manifests")
    parser.add_argument("bundles", nargs="*", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", FILE], cwd=TESTS, check=False).returncode:
        sys.exit(f"{FILE.name} differs from the last commit: traces written anew prove nothing")
    try:
        for root in given.bundles or sorted(path for path in REFERENCE.iterdir() if path.is_dir()):
            print(f"{root.name}: {len(move(root, given.why))} runs renamed")
    except RenamingError as error:
        sys.exit(f"refused: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
