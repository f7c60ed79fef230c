"""Results on disk: a run is a directory that is complete or absent. No torch, no simulator, no plugin here.

<root>/staleharness.json      marks the folder as ours
<root>/runs/<id>/             one finished run; appears by one rename and never changes again
    run.json                  resolved spec, method, warnings, fingerprint, scores, staleness summary, seconds
    metrics.parquet           one row per phase; deterministic columns only
    timing.parquet            seconds per phase (collect, learn, evaluate): not deterministic
    job.json, log.txt         what was asked, and what the run printed
    manifest.json             sha256 of each file above but the log
<root>/attempts/<id>/         a run under way, or failed: its logs, checkpoints, failure.json
<root>/reports/<name>/        index.html, figures, tables

Published results are packed (`packed.py`): the same runs in few files, to be read and not added to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.files import digest, sync_directory, user_path, write_json
from ..base.notes import NOTES
from ..errors import UserError
from .packed import is_packed, read_runs
from .stored_run import RESULTS, TRACE, StoredRun, read_intact

__all__ = ["FORMAT", "MARKER", "Store", "StoredRun", "log_tail"]

FORMAT = 2
MARKER = "staleharness.json"


class Store:
    """The results folder. Creating it is the only thing `open_for_writing` writes."""

    def __init__(self, root: Path | str) -> None:
        if not str(root):
            raise UserError("OUT is empty; give a folder for results")
        self.root = user_path(str(root))

    def run_dir(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def attempt_dir(self, run_id: str) -> Path:
        return self.root / "attempts" / run_id

    def check(self) -> None:
        """Raise `UserError` where results cannot go, without writing anything."""
        try:
            self._check()
        except OSError as error:
            raise UserError(f"OUT={self.root} cannot be used: {error.strerror}") from error

    def check_readable(self) -> None:
        """Raise `UserError` unless this is a folder of results."""
        if not (self.root / MARKER).is_file():
            raise UserError(f"OUT={self.root} holds no results yet; `staleharness sweep` makes some")

    def _check(self) -> None:
        root = self.root
        if root.exists() and not root.is_dir():
            raise UserError(f"OUT={root} is a file; give a folder for results")
        if is_packed(root):
            raise UserError(
                f"OUT={root} holds packed results, which nothing is added to; "
                f"`staleharness unpack {root} FOLDER` makes a folder that a sweep goes on from"
            )
        if (
            root.is_dir()
            and any(root.iterdir())
            and not (root / MARKER).is_file()
            and not _only_reference(root)
        ):
            raise UserError(
                f"OUT={root} holds something else than staleharness results; give a new or empty folder"
            )
        existing = next(p for p in (root, *root.absolute().parents) if p.exists())
        if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
            raise UserError(f"OUT={root} cannot be written: no permission in {existing}")

    def open_for_writing(self) -> None:
        """Create the folder and its marker."""
        self.check()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not (self.root / MARKER).exists():  # first of all: a folder without it is not ours
                write_json(self.root / MARKER, {"format": FORMAT, "holds": "staleharness results"})
            (self.root / "runs").mkdir(exist_ok=True)
            (self.root / "attempts").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"OUT={self.root} cannot be written: {error.strerror}") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one sweep. The kernel releases the lock however the holder dies."""
        import fcntl

        path = self.root / ".lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.read(handle, 64).decode(errors="replace").strip() or "unknown"
                raise UserError(
                    f"another sweep (process {holder}) is writing to OUT={self.root}; wait for it or give another OUT"
                ) from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def is_done(self, run_id: str) -> bool:
        return (self.run_dir(run_id) / "run.json").is_file()

    def read(self, run_id: str) -> StoredRun | None:
        """The finished run, or None. A damaged one, and one of another format, is logged and counts as absent."""
        return next(iter(self.read_all([run_id])), None)

    def put_damaged_aside(self, run_id: str) -> bool:
        """Make room for running it again: a run that does not count goes to `damaged/<id>`. False where there is
        none."""
        path = self.run_dir(run_id)
        if not path.is_dir() or self.read(run_id) is not None:
            return False
        aside = self.root / "damaged" / run_id
        aside.parent.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        sync_directory(path.parent)
        return True

    def read_all(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """Finished runs, sorted by id: those asked for, or all there are."""
        if is_packed(self.root):
            kept = None if run_ids is None else set(run_ids)
            return self._in_our_format(
                StoredRun(self.run_dir(run_id), record, seal)
                for run_id, record, _, seal in read_runs(self.root)
                if kept is None or run_id in kept
            )
        runs = self.root / "runs"
        found = sorted(p.name for p in runs.iterdir() if p.is_dir()) if runs.is_dir() else []
        wanted = sorted(set(run_ids)) if run_ids is not None else found
        return self._in_our_format(run for run_id in wanted if (run := self._intact(run_id)) is not None)

    def _intact(self, run_id: str) -> StoredRun | None:
        path = self.run_dir(run_id)
        if not path.is_dir():
            return None
        found = read_intact(path)
        if isinstance(found, str):
            NOTES.warning("run %s is damaged and does not count (%s)", run_id, found)
            return None
        return found

    def _in_our_format(self, runs: Iterable[StoredRun]) -> list[StoredRun]:
        """Those whose record says what this version reads from it; one line says that there are others."""
        runs = list(runs)
        ours = [run for run in runs if run.record.get("format") == FORMAT]
        if others := len(runs) - len(ours):
            who = "1 run is" if others == 1 else f"{others} runs are"
            text = "in %s %s of another format than %d, written by another version, and not counted"
            NOTES.warning(text, self.root, who, FORMAT)
        return ours

    def adopt(self, other: Store, labels: Mapping[str, str]) -> int:
        """Copy finished runs of another folder that this one lacks: those wanted, id -> label. Returns how many.

        A run is a function of its spec, and its id the spec's hash: whoever made it, it is the run that was asked for.
        """
        held = self.root / ".adopted"
        shutil.rmtree(held, ignore_errors=True)  # of a call that was interrupted
        count = 0
        for run in other.read_all(run_id for run_id in labels if not self.run_dir(run_id).exists()):
            if run.record["label"] == labels[run.id]:
                shutil.copytree(run.path, held)
                held.rename(self.run_dir(run.id))
                count += 1
        return count

    def failure(self, run_id: str) -> dict[str, Any] | None:
        """`failure.json` of an attempt: {class, message, log_tail, phase}, or None."""
        path = self.attempt_dir(run_id) / "failure.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def publish(self, run_id: str) -> Path:
        """Make a finished attempt a run: manifest, then one rename. A second finisher never counts twice."""
        attempt, final = self.attempt_dir(run_id), self.run_dir(run_id)
        files = {name: digest(attempt / name) for name in (*RESULTS, TRACE) if (attempt / name).exists()}
        write_json(attempt / "manifest.json", files)
        for pattern in ("checkpoint*", ".*", "failure.json", "*.jsonl"):  # the logs live on as tables
            for leftover in filter(Path.is_file, attempt.glob(pattern)):
                leftover.unlink()  # after the last thing that takes time: a run killed here starts over
        try:
            attempt.rename(final)
        except OSError:
            if not final.is_dir():
                raise
            mine, theirs = (json.loads((d / "run.json").read_text()) for d in (attempt, final))
            if mine["metrics_sha256"] != theirs["metrics_sha256"]:
                raise RuntimeError(
                    f"run {run_id} finished twice with different metrics: {attempt} and {final}"
                ) from None
            shutil.rmtree(attempt)
        sync_directory(final.parent)
        return final


def log_tail(attempt: Path, lines: int = 25) -> str:
    """The last lines of an attempt's log, or nothing where there is none."""
    log = attempt / "log.txt"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.is_file() else ""


def _only_reference(root: Path) -> bool:
    """Whether nothing in the folder is anybody else's. A fresh checkout's `results/` holds the published bundles,
    what `reproduce` made and its README, and is ours all the same."""
    torn = {p.name for p in root.glob(f".{MARKER}.*")}  # of a sweep that was killed as it wrote the marker
    return {p.name for p in root.iterdir()} <= {"reference", "reproduced", "README.md", ".gitkeep"} | torn
