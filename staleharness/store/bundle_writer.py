"""Writer of bundles (`staleharness pack`), and their conversion to a results folder (`unpack`).

A bundle grows by parts: the tables of runs that it already has and that did not change are never rewritten, except that
a table of runs is given the columns that it lacks (`bundle_runs_table`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from ..base import __version__
from ..base.console_log import LOGGER
from ..base.files import (
    atomic_write,
    backup_path,
    digest,
    read_json,
    remove_folder,
    replace_folder,
    temporary_folder,
    write_bytes,
    write_json,
)
from ..base.parsing import user_path
from ..base.plugins import builtin_folder
from ..base.text_formatting import listing, plural
from ..errors import UserError, nearest
from ..study import SweepRequest, read_study
from ..trace import read_trace
from .bundle_reader import CONTENT, FILES, TABLES, TRACES, arrow_table, is_packed, part_files, parts, read_ids
from .bundle_runs_table import copies_elsewhere, flat_row, is_canonical, lacks_columns, runs_table
from .bundle_trace_paths import BundleTraces, find_traces
from .numpy_policy import POLICY
from .results_folder_checks import check_apart, check_readable, is_empty
from .store import FORMAT, MARKER, Store
from .stored_run import MODEL, TRACE, StoredRun, write_manifest
from .study_runs import read_study_runs, reused_bundles, without_copies

STUDY = "study.toml"  # in a bundle: the study that asks for its runs


def pack(
    source: str,
    to: str,
    spec_file: str | None,
    command: str = "",
    study: SweepRequest | None = None,
    protocol_of: Callable[[StoredRun], str] = lambda run: "",
    command_of: Callable[[Sequence[StoredRun]], str] = lambda runs: "",
    code: str | None = None,
) -> str:
    """Write the runs of a results folder as a bundle, or those that a study asks for, or those of the method's file
    with the digest `code`; return a summary.

    A bundle packed onto itself gets the columns that it lacks. `command`, or `command_of` its runs: the command that
    makes them. `study`: content of the spec file with labels as in stored runs. `protocol_of`: digest of a benchmark's
    protocol, or "". A bundle at `to` gets a part with the runs that it lacks, or is rewritten; its study stays unless
    another is given. Raises `UserError`, also where runs would be lost.
    """
    if not to.strip():
        raise UserError(f"TO={to!r} names no folder; give one for the bundle")
    store, target = Store(source), user_path(to).resolve()
    if not target.name:
        raise UserError(f"TO={to} is not a place for a bundle; give a new or empty folder")
    new = target.with_name(f".{target.name}.packing")
    if backup_path(new).is_dir():  # a call was killed in its last steps
        remove_folder(backup_path(new)) if target.exists() else backup_path(new).rename(target)
    if target.is_dir() and not os.access(target, os.W_OK):
        raise UserError(f"TO={to} is read-only; make it writable (chmod u+w), or give another folder")
    store.check_readable()
    if is_packed(target) and store.root.resolve() == target:
        return _update_columns(target, new, protocol_of)
    total = ""
    if spec_file is None:
        runs = store.read_all()
    else:
        request = study or read_study(user_path(spec_file))
        selection = read_study_runs(store.root, dataclasses.replace(request, reuse=()), "small")
        assert selection is not None
        runs = without_copies(selection.runs, reused_bundles(target.parent, request))
        total = f" of {len(selection.requests)}"
        command = f"staleharness sweep --spec {quote(_study_path(user_path(spec_file)))}"
    if code is not None:
        codes = sorted({run.code for run in runs if run.code})  # early records have none
        runs = [run for run in runs if run.code == code]
        if not runs:
            raise UserError(f"--code={code}: {source} holds no run of it; {nearest(code, codes)}")
    if not runs:
        raise UserError(f"{source} holds no run to pack" + (" that the study asks for" if spec_file else ""))
    _check_target(store, target, _checksums(runs))
    target.parent.mkdir(parents=True, exist_ok=True)
    traces = find_traces(runs, target)
    same_runs = _same_runs(target, rows := _rows(runs, traces, target, protocol_of))
    with temporary_folder(new):
        if target.is_dir():  # other files in the folder stay
            tables = () if same_runs else itertools.chain(FILES, *parts(target))
            # of this folder alone: one inside may have files of these names
            replaceable = {str(target): {*tables, TRACES, MARKER, "manifest.json"}}
            if spec_file is not None:
                replaceable[str(target)].add(STUDY)
            shutil.copytree(target, new, symlinks=True, ignore=lambda folder, _: replaceable.get(folder, ()))
        else:
            new.mkdir()
        write_json(new / MARKER, {"format": FORMAT, "holds": CONTENT})
        if traces.files:
            (new / TRACES).mkdir()
        for name, path in traces.files.items():
            write_bytes(new / name, path.read_bytes())
        if new_runs := [run for run in runs if run.id not in same_runs]:
            _write_part(new_runs, [rows[run.id] for run in new_runs], new, part_files(len(parts(new))))
        _add_columns(new, rows)
        if spec_file is not None:
            write_bytes(new / STUDY, user_path(spec_file).read_bytes())
        elif (new / STUDY).is_file():  # which stays, and its command too
            command = command or read_json(target / "manifest.json").get("command", "")
        _write_bundle_manifest(new, target, runs, traces.files, command or command_of(runs))
        replace_folder(new, target)
    tables = itertools.chain(*parts(target))
    size, trace_size = (sum((target / name).stat().st_size for name in names) for names in (tables, traces.files))
    also = f", and {len(traces.files)} traces, {trace_size / 1e6:.1f} MB" if traces.files else ""
    policies = sum((run.path / POLICY).is_file() or (run.path / MODEL).is_dir() for run in runs)
    also += f"; policies are left out ({policies} runs have one)" if policies else ""
    return f"packed {len(runs)}{total} runs into {target}, {size / 1e6:.1f} MB{also}"


def _study_path(path: Path) -> str:
    """Path of a study as typed, or below `experiments/` if it is a study of ours."""
    folder = builtin_folder("experiments").resolve()
    inside = path.resolve().is_relative_to(folder)
    return str("experiments" / path.resolve().relative_to(folder) if inside else path)


def _check_target(source: Store, target: Path, checksums: Mapping[str, str]) -> None:
    existing = next(path for path in (target, *target.resolve().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"TO={target} cannot be created: {existing} is a file; give a folder")
    check_apart(target, f"TO={target}")
    if target.is_dir() and not is_empty(target):
        if not is_packed(target) or source.root.resolve() == target.resolve():
            raise UserError(f"TO={target} holds something other than a bundle; give a new or empty folder")
        check_readable(target, f"TO={target}")  # of another version: it may say more than this one can write
        if lost := read_ids(target) - set(checksums):
            if lost <= {run.id for run in source.read_all()}:
                reason, remedy = "the study does not ask for", "give another folder"
            else:
                reason, remedy = f"{source.root} lacks", "unpack it first, or give another folder"
            runs = plural(len(lost), "run")
            raise UserError(f"TO={target} holds {runs} that {reason} and that would be lost; {remedy}")
        if changed := _different(checksums, _checksums(Store(target).read_all())):
            raise UserError(f"TO={target} holds other numbers of {changed}, which would be lost; give another folder")


def _write_bundle_manifest(
    new: Path, target: Path, runs: Sequence[StoredRun], traces: Mapping[str, Path], command: str
) -> None:
    fingerprints = {json.dumps(run.record["fingerprint"], sort_keys=True) for run in runs}
    previous = target / "manifest.json"
    old_names = read_json(previous).get("renamed") if previous.exists() else None
    write_json(
        new / "manifest.json",
        {
            "files": {name: digest(new / name) for name in itertools.chain(*parts(new), traces)},
            "runs": len(runs),
            "command": command,
            "dates": sorted({run.record["date"][:10] for run in runs}),
            "fingerprints": [json.loads(text) for text in sorted(fingerprints)],
            "packed_by": __version__,
            **({"renamed": old_names} if old_names else {}),  # earlier ids of its runs
        },
    )


def _rows(
    runs: Sequence[StoredRun], traces: BundleTraces, target: Path, protocol_of: Callable[[StoredRun], str]
) -> dict[str, dict[str, Any]]:
    """Return the rows of the table of runs, by id."""
    copies = copies_elsewhere(target)

    def row(run: StoredRun) -> dict[str, Any]:
        record, job = (
            {**content, "spec": traces.bundle_spec(run.id, content["spec"], target.name)}
            for content in (run.record, run.job())
        )
        canonical = is_canonical(str(record["date"]), target.name, copies.get(run.id, ()))
        plain = flat_row(dataclasses.replace(run, record=record), target.name, canonical, protocol_of(run))
        texts = {name: json.dumps(content, sort_keys=True) for name, content in (("record", record), ("job", job))}
        return {**plain, "seal": run.seal, **texts}

    return {run.id: row(run) for run in runs}


def _update_columns(target: Path, new: Path, protocol_of: Callable[[StoredRun], str]) -> str:
    """Add the columns that a bundle's table of runs lacks; return a summary. Raises `UserError`."""
    runs = Store(target).read_all()
    if lost := sorted(read_ids(target) - {run.id for run in runs}):
        raise UserError(f"TO={target} holds a damaged run, {lost[0]}; its columns cannot be derived")
    rows = _rows(runs, find_traces(runs, target), target, protocol_of)
    with temporary_folder(new):
        shutil.copytree(target, new, symlinks=True)
        names = _add_columns(new, rows)
        manifest = read_json(new / "manifest.json")
        files = manifest["files"] | {name: digest(new / name) for name in names}
        write_json(new / "manifest.json", {**manifest, "files": files})
        replace_folder(new, target)
    return f"{target}: {', '.join(names)} written with all columns" if names else f"{target} has all columns"


def _add_columns(root: Path, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Rewrite the tables of runs that lack columns or whose canonical copies or protocols changed; return names."""
    names = []
    for runs_file, *_ in parts(root):
        table = arrow_table(root / runs_file).to_pylist()
        if lacks_columns(root / runs_file) or any(
            row[name] != rows[row["id"]][name] for row in table for name in ("canonical", "protocol")
        ):
            names.append(runs_file)
            _write_table(root / runs_file, runs_table([{**rows[row["id"]], "seal": row["seal"]} for row in table]))
    return names


def _same_runs(target: Path, rows: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the ids of a bundle's runs if all have these rows, and none if the record of one changed. The digest of a
    run's own manifest does not count: it changes when a run is unpacked."""
    bundle_rows = [row for runs_file, *_ in parts(target) for row in arrow_table(target / runs_file).to_pylist()]
    equal = all(row[name] == rows[row["id"]][name] for row in bundle_rows for name in ("record", "job"))
    return {row["id"] for row in bundle_rows} if equal else set()


def _write_part(
    runs: Sequence[StoredRun], rows: Sequence[Mapping[str, Any]], target: Path, files: Sequence[str]
) -> None:
    import pyarrow as pa

    tables = {files[0]: runs_table(rows)}
    for name, file in zip(TABLES, files[1:], strict=True):
        frames = (run.table(name).assign(run=run.id) for run in runs)
        tables_of_runs = [pa.Table.from_pandas(f, preserve_index=False).replace_schema_metadata() for f in frames]
        table = pa.concat_tables(tables_of_runs, promote_options="permissive")
        tables[file] = table.select(sorted(table.column_names))
    for file, table in tables.items():
        _write_table(target / file, table)


def _write_table(path: Path, table: Any) -> None:
    import pyarrow.parquet as pq

    with atomic_write(path) as stream:
        pq.write_table(table, stream, compression="zstd", compression_level=19)


def unpack(source: str, to: str) -> str:
    """Write the runs of a bundle into a results folder, each under its id; existing runs stay. Return a summary. Raises
    `UserError`."""
    root, store = user_path(source), Store(to)
    if not is_packed(root):
        raise UserError(f"{source} is not a bundle; `staleharness pack` makes one")
    check_readable(root, f"BUNDLE={source}")
    runs = Store(source).read_all()
    store.open_for_writing()
    with store.hold():
        present = _checksums(store.read_all(run.id for run in runs))
        new = [run for run in runs if run.id not in present]
        for run in new:
            store.put_damaged_aside(run.id)
            store.add(run.id, functools.partial(_write_run, run))
    if others := _different(present, _checksums(runs)):
        LOGGER.warning("%s keeps its own numbers of %s; those of %s differ", store.root, others, root)
    return f"unpacked {len(new)} of {len(runs)} runs into {store.root}"


def _checksums(runs: Sequence[StoredRun]) -> dict[str, str]:
    return {run.id: str(run.record["metrics_sha256"]) for run in runs}


def _different(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """List the runs that have other checksums in the two; empty if there are none."""
    return listing(sorted(run_id for run_id in a.keys() & b.keys() if a[run_id] != b[run_id]), 4)


def _write_run(run: StoredRun, folder: Path) -> None:
    """Write the files of a packed run into a new folder. Raises `UserError` if the bundle's trace of it is no trace."""
    folder.mkdir()
    for name in TABLES:
        with atomic_write(folder / f"{name}.parquet") as stream:
            run.table(name).to_parquet(stream, index=False)
    if (trace := run.trace) is not None:
        read_trace(str(trace))
        write_bytes(folder / TRACE, trace.read_bytes())
    write_json(folder / "job.json", run.job())
    write_json(folder / "run.json", run.record)
    write_manifest(folder)
