"""`staleharness pack` and `unpack`: results as a bundle to publish, and as a folder that a sweep goes on from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..base.files import digest, user_path, whole, write_json
from ..errors import UserError
from .bundle import read_bundle
from .packed import FILES, RUNS, TABLES, is_packed, read_runs, read_table
from .store import FORMAT, MARKER, Store
from .stored_run import StoredRun
from .study import read_study


def pack(source: str, to: str, spec_file: str | None) -> str:
    """Write the runs of a results folder (of a study, those that it asks for) as a bundle; returns what was done.

    An earlier bundle at `to` is replaced, unless it holds runs that would be lost. Raises `UserError`.
    """
    store, target = Store(source), user_path(to)
    store.check_readable()
    asked = ""
    if spec_file is None:
        runs = store.read_all()
        command = ""
    else:
        study = read_study(user_path(spec_file))
        bundle = read_bundle(store.root, study, "small")
        assert bundle is not None
        runs = bundle.runs
        asked = f" of {len(bundle.expected)}"
        command = f"staleharness sweep --spec experiments/{user_path(spec_file).name}"
    if not runs:
        raise UserError(f"{source} holds no run to pack" + (" that the study asks for" if spec_file else ""))
    _check_target(store.root, target, {run.id for run in runs})
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / MARKER, {"format": FORMAT, "holds": "packed staleharness results"})
    _write_tables(runs, target)
    if spec_file is not None:
        (target / "study.toml").write_bytes(user_path(spec_file).read_bytes())
    fingerprints = {json.dumps(run.record["fingerprint"], sort_keys=True) for run in runs}
    write_json(target / "manifest.json", {
        "files": {name: digest(target / name) for name in FILES},
        "runs": len(runs),
        "command": command,
        "dates": sorted({run.record["date"][:10] for run in runs}),
        "fingerprints": [json.loads(text) for text in sorted(fingerprints)],
        "packed_by": __version__,
    })  # fmt: skip
    size = sum((target / name).stat().st_size for name in FILES)
    return f"packed {len(runs)}{asked} runs into {target}, {size / 1e6:.1f} MB"


def _check_target(source: Path, target: Path, runs: set[str]) -> None:
    if target.exists() and not target.is_dir():
        raise UserError(f"TO={target} is a file; give a folder")
    if target.is_dir() and any(target.iterdir()):
        if not is_packed(target) or source.resolve() == target.resolve():
            raise UserError(f"TO={target} holds something else than a bundle; give a new or empty folder")
        if lost := {run for run, *_ in read_runs(target)} - runs:
            raise UserError(
                f"TO={target} holds {len(lost)} runs that {source} lacks and that would be lost; "
                "unpack it first, or give another folder"
            )


def _write_tables(runs: Sequence[StoredRun], target: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{
        "id": run.id,
        "record": json.dumps(run.record, sort_keys=True),
        "job": json.dumps(run.job(), sort_keys=True),
        "seal": run.seal,
    } for run in runs]  # fmt: skip
    tables = {RUNS: pa.Table.from_pylist(rows)}
    for name in TABLES:
        parts = []
        for run in runs:
            frame = run.table(name)
            frame.insert(0, "run", run.id)
            parts.append(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata())
        joined = pa.concat_tables(parts, promote_options="permissive")
        tables[f"{name}.parquet"] = joined.select(sorted(joined.column_names))
    for file, table in tables.items():
        with whole(target / file) as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=19)


def unpack(source: str, to: str) -> str:
    """Write the runs of a bundle into a results folder, each under its id; what is there stays. Returns what was
    done. Raises `UserError`."""
    root, store = user_path(source), Store(to)
    if not is_packed(root):
        raise UserError(f"{source} is no bundle; `staleharness pack` makes one")
    counted = {run.id for run in Store(source).read_all()}
    runs = [run for run in read_runs(root) if run[0] in counted]
    store.open_for_writing()
    new = 0
    with store.locked():
        for run_id, record, job, _ in runs:
            if store.is_done(run_id):
                continue
            attempt = store.attempt_dir(run_id)
            if attempt.exists():
                raise UserError(
                    f"OUT={to}: run {run_id} is under way there; wait for it, or give another folder"
                )
            attempt.mkdir()
            for name in TABLES:
                read_table(root, name, run_id).to_parquet(attempt / f"{name}.parquet", index=False)
            write_json(attempt / "job.json", job)
            write_json(attempt / "run.json", record)
            store.publish(run_id)
            new += 1
    return f"unpacked {new} of {len(runs)} runs into {store.root}"
