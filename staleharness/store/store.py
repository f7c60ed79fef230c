"""Results folder: a run is a folder in it that is complete or absent. No torch, no simulator, no plugin here.

<root>/staleharness.json      marks the folder as ours
<root>/runs/<id>/             one finished run; appears by one rename and never changes again
    run.json                  resolved spec, method, warnings, fingerprint, scores, staleness summary, seconds
    metrics.parquet           one row per phase; deterministic columns only
    timing.parquet            seconds per phase (collect, learn, evaluate), resident memory: not deterministic
    policy.safetensors        the policy, for kinds of task that keep it
    job.json, log.txt         label and spec, and the output of the process
    manifest.json             sha256 of each file above except the log
<root>/attempts/<id>/         an unfinished or failed run: its logs, checkpoints, failure.json; if machines share the
                              folder it is called <id>.<holder>, and each worker of the run has its own
<root>/reports/<name>/        index.html, figures, tables

Published results are bundles (`bundle_reader.py`): the same runs in few files, read-only.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..base.console_log import LOGGER
from ..base.files import fsync, move_into, read_json, read_json_object, remove_temporaries, temporary_folder, write_json
from ..base.parsing import user_path
from ..errors import UserError, shorten
from . import results_folder_checks
from .attempt_folders import (
    ASIDE,
    CHECKPOINTS,
    RUN_FILES,
    WORK_FILES,
    attempts_in,
    has_plain_files,
    holder_name,
    shorten_log,
)
from .bundle_reader import is_packed, read_runs
from .locks_and_leases import MARKER, FolderLock, Lease, hold_folder
from .record_schema import FORMAT, is_id, warn_damaged
from .stored_run import StoredRun, read_run, write_manifest

__all__ = ["FORMAT", "MARKER", "Store", "StoredRun"]


class Store:
    """Results folder. Only `open_for_writing` creates it."""

    def __init__(self, root: Path | str, holder: str = "") -> None:
        """holder: name of this worker (`next_holder`), if workers on other machines may work on the same runs."""
        if not str(root):
            raise UserError("OUT is empty; give a folder for results")
        self.root = user_path(str(root))
        self.holder = holder

    def run_dir(self, run_id: str) -> Path:
        return self._place("runs", run_id)

    def attempt_dir(self, run_id: str) -> Path:
        """Return the folder of this worker for an unfinished run."""
        path = self._place("attempts", run_id)
        return path.with_name(f"{run_id}.{self.holder}") if self.holder else path

    def attempts(self, run_id: str) -> list[Path]:
        """Return the folders of all workers of an unfinished run, the latest last."""
        return [path for _, path in sorted(attempts_in(self.root / "attempts", run_id))]

    def latest_attempt(self, run_id: str) -> Path:
        """Return the folder of the latest worker of an unfinished run."""
        return next(reversed(self.attempts(run_id)), self.attempt_dir(run_id))

    def clear_attempts(self, run_ids: Collection[str]) -> None:
        """Remove the folders of workers of finished runs. A worker that still runs finds its folder gone."""
        for attempt, path in attempts_in(self.root / "attempts"):
            if attempt.run_id in run_ids:
                shutil.rmtree(path, ignore_errors=True)

    def next_holder(self, run_id: str) -> str:
        """Return a unique name for the next worker of the run, which sorts after all before it."""
        numbers = [attempt.number for attempt, _ in attempts_in(self.root / "attempts", run_id)]
        return holder_name(1 + max(numbers, default=0))

    def _place(self, folder: str, run_id: str) -> Path:
        if not is_id(run_id):
            raise UserError(f"{shorten(run_id)!r} is not a run id: 12 digits from 0-9 and a-f")
        return self.root / folder / run_id

    def check(self) -> None:
        """Raise `UserError` if results cannot be written here. Writes nothing."""
        results_folder_checks.check_writable(self.root)

    def check_readable(self, name: str = "") -> None:
        """Raise `UserError` unless this is a folder of results; `name`: as the user typed it, by default as OUT."""
        results_folder_checks.check_readable(self.root, name or f"OUT={self.root}")

    def open_for_writing(self) -> None:
        """Create the folder and its marker."""
        self.check()
        try:
            self.root.resolve().mkdir(parents=True, exist_ok=True)
            if not (self.root / MARKER).exists():  # first: a folder without it is not ours
                write_json(self.root / MARKER, {"format": FORMAT, "holds": "staleharness results"})
            (self.root / "runs").mkdir(exist_ok=True)
            (self.root / "attempts").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"OUT={self.root} cannot be written: {error.strerror}") from error

    def hold(self, multi_machine: bool = False) -> AbstractContextManager[Lease | FolderLock]:
        """Reserve the folder for one sweep. The kernel releases the lock however the holder dies.

        multi_machine: other machines may want the folder too; then a lease is held as well, and a file system without
        locks will do. The lease ends with its holder, or seconds later.
        """
        return hold_folder(self.root, multi_machine)

    def is_done(self, run_id: str) -> bool:
        """Return whether there is a valid finished run."""
        return self.read(run_id) is not None

    def read(self, run_id: str) -> StoredRun | None:
        """Read a finished run, or return None. A damaged one, and one of another format, is logged and left out."""
        return next(iter(self.read_all([run_id])), None)

    def put_damaged_aside(self, run_id: str) -> bool:
        """Move a damaged run to `damaged/<id>`, so that it can run again; return False if there is none. Raises
        `UserError` if a file of it may not be read: it may be valid."""
        path = self.run_dir(run_id)
        if not os.path.lexists(path) or self.is_done(run_id):
            return False
        try:
            for file in path.iterdir() if path.is_dir() and not path.is_symlink() else ():
                if file.is_file():
                    file.read_bytes()
        except OSError as error:
            problem = f"{error.filename or path} cannot be read ({error.strerror})"
            raise UserError(f"{problem}, so it may be a good run; make it readable, or move {path} away") from error
        move_into(path, self.root / "damaged")
        return True

    def open_attempt(self, run_id: str, path: Path | None = None) -> Path:
        """Create the folder of an unfinished run, this worker's or `path`, if it is absent. A folder in which one of
        our files is no regular file is moved to `damaged`: nothing is written through a link."""
        attempt = path or self.attempt_dir(run_id)
        if os.path.lexists(attempt) and not has_plain_files(attempt):
            move_into(attempt, self.root / "damaged")
        attempt.mkdir(parents=True, exist_ok=True)
        return attempt

    def read_all(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """Read finished runs, sorted by id: those in `run_ids`, or all."""
        if is_packed(self.root):
            ids = None if run_ids is None else set(run_ids)
            return self._in_our_format(
                StoredRun(self.run_dir(run_id).absolute(), record, seal)
                for run_id, record, _, seal in read_runs(self.root)
                if ids is None or run_id in ids
            )
        runs = self.root / "runs"
        if run_ids is None:
            run_ids = [p.name for p in runs.iterdir() if not p.name.startswith(".")] if runs.is_dir() else []
        names = sorted(set(run_ids))
        return self._in_our_format(run for run_id in names if (run := self._intact(run_id)) is not None)

    def _intact(self, run_id: str) -> StoredRun | None:
        path = (self.root / "runs" / run_id).absolute()  # a notebook may change its working folder later
        if not os.path.lexists(path):
            return None
        run = read_run(path) if is_id(run_id) else "its name is not a run id"
        if isinstance(run, str):
            warn_damaged(run_id, run)
            return None
        return run

    def _in_our_format(self, runs: Iterable[StoredRun]) -> list[StoredRun]:
        """Return the runs of this version's format; log in one line that there are others."""
        runs = list(runs)
        readable = [run for run in runs if run.record.get("format") == FORMAT]
        if others := len(runs) - len(readable):
            subject = "1 run is" if others == 1 else f"{others} runs are"
            text = "in %s, %s of another format than %d (written by another version) and not counted"
            LOGGER.warning(text, self.root, subject, FORMAT)
        return readable

    def adopt(self, other: Store, labels: Mapping[str, str]) -> int:
        """Copy finished runs that this folder lacks from another one; `labels`: id -> label. Return their number.

        A run is a function of its spec, and its id the spec's hash, so it does not matter who executed it.
        """
        count = 0
        for run in other.read_all(run_id for run_id in labels if not os.path.lexists(self.run_dir(run_id))):
            if run.record["label"] == labels[run.id]:
                self.add(run.id, functools.partial(shutil.copytree, run.path))
                count += 1
        return count

    def failure(self, run_id: str) -> dict[str, Any] | None:
        """Read `failure.json` of an unfinished run: {class, message, log_tail}, or None."""
        path = self.latest_attempt(run_id) / "failure.json"
        if not path.is_file():
            return None
        unreadable = {"class": "Unreadable", "message": "failure.json is damaged", "log_tail": ""}
        return {**unreadable, **read_json_object(path)}

    def is_sealed(self, run_id: str) -> bool:
        """Return whether this worker's folder is a finished run, which only has to be published."""
        return isinstance(read_run(self.attempt_dir(run_id), run_id), StoredRun)

    def add(self, run_id: str, fill: Callable[[Path], None]) -> None:
        """Add a finished run from elsewhere: `fill` writes its files into a folder. It is added whole or not at all; an
        existing run stays."""
        temporary = self.root / f".{run_id}.taken"
        with temporary_folder(temporary):
            fill(temporary)
            for path in temporary.iterdir():
                fsync(path)
            if isinstance(problem := read_run(temporary, run_id), str):
                raise UserError(f"run {run_id} was not added: {problem}")
            temporary.rename(self.run_dir(run_id))
        fsync(self.root / "runs")

    def publish(self, run_id: str) -> Path:
        """Turn this worker's folder into a finished run: manifest, then one rename. A second one never counts twice.

        Once the manifest is written, an interrupted call only has to be repeated. Raises `RuntimeError` if the run
        exists already with other metrics.
        """
        attempt, final = self.attempt_dir(run_id), self.run_dir(run_id)
        if not self.is_sealed(run_id):
            shorten_log(attempt / "log.txt")
            write_manifest(attempt)
        # other files are a plugin's, whose working folder this is
        remove_temporaries(attempt, *RUN_FILES, CHECKPOINTS, age=0.0)
        leftovers = (*attempt.glob(CHECKPOINTS), *(attempt / name for name in WORK_FILES))
        for leftover in filter(Path.is_file, leftovers):
            leftover.unlink()
        for folder in attempt.glob(ASIDE):  # the finished run is newer than any checkpoint of it
            shutil.rmtree(folder)
        try:
            attempt.rename(final)
        except OSError:
            if not os.path.lexists(final):
                raise
            if (first := self.read(run_id)) is None:
                self.put_damaged_aside(run_id)
                attempt.rename(final)
            else:
                self._drop_second(attempt, first)
        fsync(final.parent)
        fsync(attempt.parent)
        return final

    def _drop_second(self, attempt: Path, first: StoredRun) -> None:
        """Remove a run that was executed twice with the same metrics; put it aside and raise if they differ."""
        if read_json(attempt / "run.json")["metrics_sha256"] == first.record["metrics_sha256"]:
            shutil.rmtree(attempt)
            return
        aside = move_into(attempt, self.root / "damaged")
        raise RuntimeError(f"run {first.id} finished twice with different metrics: {first.path} counts, not {aside}")
