"""`staleharness pack` and `unpack`: results as a bundle to publish, and as a folder that a sweep goes on from."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.files import digest, earlier, read_json, scratch, swap, user_path, whole, write_bytes, write_json
from ..base.version import __version__
from ..errors import UserError
from .bundle import read_bundle
from .packed import FILES, RUNS, TABLES, TRACES, is_packed, read_ids, read_table
from .store import FORMAT, MARKER, Store
from .stored_run import StoredRun, seal
from .study import Question, read_study
from .traces import renamed, traces_of, unpack_trace, write_traces

STUDY = "study.toml"  # in a bundle, what its runs were asked for with


def pack(source: str, to: str, spec_file: str | None, command: str = "", study: Question | None = None) -> str:
    """Write the runs of a results folder (of a study, those that it asks for) as a bundle; returns what was done.
    `command`: what makes them, where no study does. `study`: what the file asks for, named as stored runs are.

    An earlier bundle at `to` is replaced, unless it holds runs that would be lost. Raises `UserError`.
    """
    if not to.strip():
        raise UserError(f"TO={to!r} names no folder; give one for the bundle")
    store, target = Store(source), user_path(to).resolve()
    if not target.name:
        raise UserError(f"TO={to} is no place for a bundle; give a new or empty folder")
    new = target.with_name(f".{target.name}.packing")
    if earlier(new).is_dir():  # a call was cut off at its last steps
        shutil.rmtree(earlier(new)) if target.exists() else earlier(new).rename(target)
    store.check_readable()
    asked = ""
    if spec_file is None:
        runs = store.read_all()
    else:
        bundle = read_bundle(store.root, study or read_study(user_path(spec_file)), "small")
        assert bundle is not None
        runs = bundle.runs
        asked = f" of {len(bundle.expected)}"
        command = f"staleharness sweep --spec experiments/{user_path(spec_file).name}"
    if not runs:
        raise UserError(f"{source} holds no run to pack" + (" that the study asks for" if spec_file else ""))
    _check_target(store.root, target, {run.id for run in runs})
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch(new):
        if target.is_dir():  # what somebody has put beside the tables stays
            ours = shutil.ignore_patterns(*FILES, TRACES, MARKER, "manifest.json", STUDY)
            shutil.copytree(target, new, symlinks=True, ignore=ours)
        else:
            new.mkdir()
        write_json(new / MARKER, {"format": FORMAT, "holds": "packed staleharness results"})
        traces = traces_of(runs)
        write_traces(traces, new)
        _write_tables(runs, new, traces, target.name)
        if spec_file is not None:
            write_bytes(new / STUDY, user_path(spec_file).read_bytes())
        fingerprints = {json.dumps(run.record["fingerprint"], sort_keys=True) for run in runs}
        replaced = target / "manifest.json"
        told = read_json(replaced).get("renamed") if replaced.exists() else None
        write_json(
            new / "manifest.json",
            {
                "files": {name: digest(new / name) for name in (*FILES, *traces)},
                "runs": len(runs),
                "command": command,
                "dates": sorted({run.record["date"][:10] for run in runs}),
                "fingerprints": [json.loads(text) for text in sorted(fingerprints)],
                "packed_by": __version__,
                **({"renamed": told} if told else {}),  # what its runs were once called
            },
        )
        swap(new, target)
    size, of_traces = (sum((target / name).stat().st_size for name in names) for names in (FILES, traces))
    also = f", and {len(traces)} traces, {of_traces / 1e6:.1f} MB" if traces else ""
    return f"packed {len(runs)}{asked} runs into {target}, {size / 1e6:.1f} MB{also}"


def _check_target(source: Path, target: Path, runs: set[str]) -> None:
    if target.exists() and not target.is_dir():
        raise UserError(f"TO={target} is a file; give a folder")
    if target.is_dir() and any(target.iterdir()):
        if not is_packed(target) or source.resolve() == target.resolve():
            raise UserError(f"TO={target} holds something other than a bundle; give a new or empty folder")
        if lost := read_ids(target) - runs:
            raise UserError(
                f"TO={target} holds {len(lost)} runs that {source} lacks and that would be lost; "
                "unpack it first, or give another folder"
            )


def _write_tables(runs: Sequence[StoredRun], target: Path, traces: Mapping[str, Path], bundle: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {digest(path): name for name, path in traces.items()}

    def said(content: Mapping[str, Any]) -> str:
        return json.dumps({**content, "spec": renamed(content["spec"], names, bundle)}, sort_keys=True)

    rows = [{"id": run.id, "record": said(run.record), "job": said(run.job()), "seal": run.seal} for run in runs]
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
        raise UserError(f"{source} is not a bundle; `staleharness pack` makes one")
    runs = Store(source).read_all()
    store.open_for_writing()
    new = 0
    with store.locked():
        there = {run.id for run in store.read_all(run.id for run in runs)}
        for run in runs:
            if run.id in there:
                continue
            store.put_damaged_aside(run.id)
            store.take(run.id, functools.partial(_write_run, root, run.record, run.job()))
            new += 1
    return f"unpacked {new} of {len(runs)} runs into {store.root}"


def _write_run(root: Path, record: Mapping[str, Any], job: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir()
    for name in TABLES:
        with whole(folder / f"{name}.parquet") as stream:
            read_table(root, name, record["id"]).to_parquet(stream, index=False)
    unpack_trace(root, record["id"], folder)
    write_json(folder / "job.json", job)
    write_json(folder / "run.json", record)
    seal(folder)
