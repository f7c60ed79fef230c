"""States of all runs in a results folder, read from its files (`staleharness status`)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from ..base.console_log import LOGGER
from ..base.files import read_json, try_lock
from ..base.text_formatting import printable
from ..errors import shorten
from .attempt_folders import LEASE, attempts_in, log_tail
from .locks_and_leases import seems_alive
from .store import Store

PLACE = ("label", "env", "capacity", "seed", "phase")
MAX_TEXT = 100  # characters of a running run's last log line


def run_states(store: Store) -> dict[str, Any]:
    """Return {"runs": [{id, label, env, capacity, seed, state, phase, phases, ...}], "counts": {...}}.

    state: done | running (a process holds its lock, or its lease) | stopped (resumes from its checkpoint) | failed.
    log: last line of the log, for a running run before its first phase.
    """
    rows = [row for row, _ in _rows_and_specs(store)]
    counts = {state: sum(row["state"] == state for row in rows) for state in ("done", "running", "stopped", "failed")}
    return {"runs": rows, "counts": counts}


def _rows_and_specs(store: Store) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    rows = []
    for run in store.read_all():
        spec, phases = run.spec, run.record["phases"]
        row = _row(run.id, run.record["label"], spec, "done", phases, phases)
        rows.append(({**row, "seconds": run.record["seconds"]["total"]}, spec))
    done = {row["id"] for row, _ in rows}  # an attempt may be left beside a run that came from elsewhere
    attempts = sorted(attempts_in(store.root / "attempts"))
    latest = {attempt.run_id: path for attempt, path in attempts if attempt.run_id not in done}
    for run_id, path in sorted(latest.items()):
        try:
            rows.append(_attempt(store, run_id, path))
        except (OSError, ValueError, TypeError, KeyError) as error:
            if path.is_dir() and (path / "job.json").exists():  # otherwise it is being published, or started, right now
                LOGGER.warning("%s cannot be read (%s); the next sweep starts it over", path, type(error).__name__)
    return rows


def failed_runs(store: Store) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the runs of a results folder that failed and have no result: place, `problem` (class of the failure) and
    content of the failure, each with the run's spec."""
    return [
        ({**row["failure"], **{key: row[key] for key in PLACE}, "problem": row["failure"]["class"]}, spec)
        for row, spec in _rows_and_specs(store)
        if row["state"] == "failed"
    ]


def _row(run_id: str, label: str, spec: dict[str, Any], state: str, phase: int, phases: int) -> dict[str, Any]:
    cell = {key: spec[key] for key in ("env", "capacity", "seed")}
    return {"id": run_id, "label": label, **cell, "state": state, "phase": phase, "phases": phases}


def _attempt(store: Store, run_id: str, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    job = read_json(path / "job.json")
    spec = job["spec"]
    log = path / "metrics.jsonl"
    phase = log.read_bytes().count(b"\n") if log.is_file() else 0
    failure = store.failure(run_id)
    is_running = _is_locked(path / ".lock") or seems_alive(path / LEASE)
    state = "running" if is_running else "failed" if failure else "stopped"
    row = _row(run_id, str(job["label"]), spec, state, phase, int(job.get("phases", 0)))
    if state == "running" and not phase:
        row["log"] = shorten(log_tail(path, 1), MAX_TEXT)  # its preparations
    return ({**row, "failure": failure} if state == "failed" else row), spec


def _is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock."""
    if not path.exists():
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        return not try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def as_text(content: dict[str, Any]) -> str:
    lines = [", ".join(f"{count} {state}" for state, count in content["counts"].items())]
    for row in content["runs"]:
        name = f"{row['label']} {row['env']} K={row['capacity']} seed {row['seed']}"
        line = f"{row['id']}  {row['state']:8} {row['phase']:>5}/{row['phases']:<5} {name}"
        if "failure" in row:
            line += f": {row['failure']['class']}: {row['failure']['message']}"
        elif row.get("log"):
            line += f": {row['log']}"
        lines.append(printable(line))
    return "\n".join(lines)
