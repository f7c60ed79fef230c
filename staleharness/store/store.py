"""Results on disk: a run is a directory that is complete or absent. No torch, no simulator, no plugin here.

<root>/staleharness.json      marks the folder as ours
<root>/runs/<id>/             one finished run; appears by one rename and never changes again
    run.json                  resolved spec, method, warnings, fingerprint, scores, staleness summary, seconds
    metrics.parquet           one row per phase; deterministic columns only
    timing.parquet            seconds per phase (collect, learn, evaluate), resident memory: not deterministic
    job.json, log.txt         what was asked, and what the run printed
    manifest.json             sha256 of each file above but the log
<root>/attempts/<id>/         a run under way, or failed: its logs, checkpoints, failure.json; where machines share the
                              folder it is called <id>.<holder>, and each that works on the run has its own
<root>/reports/<name>/        index.html, figures, tables

Published results are packed (`packed.py`): the same runs in few files, to be read and not added to.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..base.files import put_aside, read_json, scratch, sync, user_path, write_json
from ..base.notes import NOTES
from ..errors import UserError, shortened
from . import folder
from .attempts import ASIDE, FINGERPRINT, attempts_in, holder_name, plain
from .exclusive import MARKER, sole_sweep
from .lease import Lease
from .log import log_tail, shorten_log
from .packed import is_packed, read_runs
from .record import FORMAT, is_id, note_damaged
from .stored_run import StoredRun, read_intact, seal

__all__ = ["FORMAT", "MARKER", "Store", "StoredRun", "log_tail", "shorten_log"]


class Store:
    """The results folder. Creating it is the only thing `open_for_writing` writes."""

    def __init__(self, root: Path | str, holder: str = "") -> None:
        """holder: who works on runs here, of `next_holder`, where other machines may work on the same ones."""
        if not str(root):
            raise UserError("OUT is empty; give a folder for results")
        self.root = user_path(str(root))
        self.holder = holder

    def run_dir(self, run_id: str) -> Path:
        return self._place("runs", run_id)

    def attempt_dir(self, run_id: str) -> Path:
        """Where whoever works on the run writes."""
        plain = self._place("attempts", run_id)
        return plain.with_name(f"{run_id}.{self.holder}") if self.holder else plain

    def attempts(self, run_id: str) -> list[Path]:
        """The folders of all who have worked on the run, the latest last."""
        return [path for _, path in sorted(attempts_in(self.root / "attempts", run_id))]

    def latest_attempt(self, run_id: str) -> Path:
        """The folder in which the end of an unfinished run can be read."""
        return next(reversed(self.attempts(run_id)), self.attempt_dir(run_id))

    def clear_attempts(self, run_ids: Collection[str]) -> None:
        """Remove what others have left of runs that are finished. Who still works on one finds that it is over."""
        for attempt, path in attempts_in(self.root / "attempts"):
            if attempt.run_id in run_ids:
                shutil.rmtree(path, ignore_errors=True)

    def next_holder(self, run_id: str) -> str:
        """A name for whoever works on the run next: later than all before it, and nobody else's."""
        numbers = [attempt.number for attempt, _ in attempts_in(self.root / "attempts", run_id)]
        return holder_name(1 + max(numbers, default=0))

    def _place(self, folder: str, run_id: str) -> Path:
        if not is_id(run_id):
            raise UserError(f"{shortened(run_id)!r} is not a run id: 12 digits from 0-9 and a-f")
        return self.root / folder / run_id

    def check(self) -> None:
        """Raise `UserError` where results cannot go, without writing anything."""
        folder.check(self.root)

    def check_readable(self, typed: str = "") -> None:
        """Raise `UserError` unless this is a folder of results; `typed` is how it was named, by default as OUT."""
        folder.check_readable(self.root, typed or f"OUT={self.root}")

    def open_for_writing(self) -> None:
        """Create the folder and its marker."""
        self.check()
        try:
            self.root.resolve().mkdir(parents=True, exist_ok=True)
            if not (self.root / MARKER).exists():  # first of all: a folder without it is not ours
                write_json(self.root / MARKER, {"format": FORMAT, "holds": "staleharness results"})
            (self.root / "runs").mkdir(exist_ok=True)
            (self.root / "attempts").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"OUT={self.root} cannot be written: {error.strerror}") from error

    def locked(self, shared: bool = False) -> AbstractContextManager[Lease | None]:
        """Hold the folder for one sweep. The kernel releases the lock however the holder dies.

        shared: other machines may want the folder, too; then a lease is held as well, and a file system without locks
        is no trouble. It ends with its holder, or seconds later.
        """
        return sole_sweep(self.root, shared)

    def is_done(self, run_id: str) -> bool:
        """Whether there is a finished run that counts."""
        return self.read(run_id) is not None

    def read(self, run_id: str) -> StoredRun | None:
        """The finished run, or None. A damaged one, and one of another format, is logged and counts as absent."""
        return next(iter(self.read_all([run_id])), None)

    def put_damaged_aside(self, run_id: str) -> bool:
        """Make room for running it again: whatever is in its place and does not count goes to `damaged/<id>`. False
        where there is no such thing. Raises `UserError` where a file is there and may not be read: nobody knows then
        whether it counts."""
        path = self.run_dir(run_id)
        if not os.path.lexists(path) or self.is_done(run_id):
            return False
        try:
            for file in path.iterdir() if path.is_dir() and not path.is_symlink() else ():
                if file.is_file():
                    file.read_bytes()
        except OSError as error:
            why = f"{error.filename or path} cannot be read ({error.strerror})"
            raise UserError(f"{why}, so it may be a good run; make it readable, or move {path} away") from error
        put_aside(path, self.root / "damaged")
        return True

    def open_attempt(self, run_id: str, path: Path | None = None) -> Path:
        """The folder of an attempt, this holder's or the one given, made where it is absent. Where something in it, or
        in its place, is no plain file or folder, all of it goes to `damaged`: nothing is written through a link."""
        attempt = path or self.attempt_dir(run_id)
        if os.path.lexists(attempt) and not plain(attempt):
            put_aside(attempt, self.root / "damaged")
        attempt.mkdir(parents=True, exist_ok=True)
        return attempt

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
        found = [p.name for p in runs.iterdir() if not p.name.startswith(".")] if runs.is_dir() else []
        wanted = sorted(set(found if run_ids is None else run_ids))
        return self._in_our_format(run for run_id in wanted if (run := self._intact(run_id)) is not None)

    def _intact(self, run_id: str) -> StoredRun | None:
        path = self.root / "runs" / run_id
        if not os.path.lexists(path):
            return None
        found = read_intact(path) if is_id(run_id) else "its name is not a run id"
        if isinstance(found, str):
            note_damaged(run_id, found)
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
        count = 0
        for run in other.read_all(run_id for run_id in labels if not os.path.lexists(self.run_dir(run_id))):
            if run.record["label"] == labels[run.id]:
                self.take(run.id, functools.partial(shutil.copytree, run.path))
                count += 1
        return count

    def failure(self, run_id: str) -> dict[str, Any] | None:
        """`failure.json` of an attempt: {class, message, log_tail}, or None."""
        path = self.latest_attempt(run_id) / "failure.json"
        try:
            said = read_json(path) if path.is_file() else None
        except (OSError, ValueError):
            said = {}
        if said is None:
            return None
        if not isinstance(said, dict):
            said = {}
        return {"class": "Unreadable", "message": "failure.json is damaged", "log_tail": "", **said}

    def sealed(self, run_id: str) -> bool:
        """Whether the attempt is a finished run, which has only to be published."""
        return isinstance(read_intact(self.attempt_dir(run_id), run_id), StoredRun)

    def take(self, run_id: str, fill: Callable[[Path], None]) -> None:
        """Add a finished run that is not made here: `fill` writes its files into a folder. It is there whole or not
        at all; what is in its place already stays."""
        held = self.root / f".{run_id}.taken"
        with scratch(held):
            fill(held)
            for path in held.iterdir():
                sync(path)
            if isinstance(wrong := read_intact(held, run_id), str):
                raise UserError(f"run {run_id} was not added: {wrong}")
            held.rename(self.run_dir(run_id))
        sync(self.root / "runs")

    def publish(self, run_id: str) -> Path:
        """Make a finished attempt a run: manifest, then one rename. A second finisher never counts twice.

        Sealed, it is a run in all but its place: where this is cut off, or fails, it has only to be called again.
        Raises `RuntimeError` where the run is there already, with other metrics.
        """
        attempt, final = self.attempt_dir(run_id), self.run_dir(run_id)
        if not self.sealed(run_id):
            shorten_log(attempt / "log.txt")
            seal(attempt)
        for pattern in (
            "checkpoint*",
            ".*",
            "failure.json",
            "lease.json",
            FINGERPRINT,
            "*.jsonl",
        ):  # the logs live on as tables
            for leftover in filter(Path.is_file, attempt.glob(pattern)):
                leftover.unlink()
        for place in attempt.glob(ASIDE):  # the finished run is newer than any checkpoint of it
            shutil.rmtree(place)
        try:
            attempt.rename(final)
        except OSError:
            if not os.path.lexists(final):
                raise
            if (theirs := self.read(run_id)) is None:
                self.put_damaged_aside(run_id)
                attempt.rename(final)
            else:
                self._drop_second(attempt, theirs)
        sync(final.parent)
        sync(attempt.parent)
        return final

    def _drop_second(self, attempt: Path, first: StoredRun) -> None:
        """Let go of a run that was made twice, if it came to the same."""
        mine = read_json(attempt / "run.json")
        if mine["metrics_sha256"] == first.record["metrics_sha256"]:
            shutil.rmtree(attempt)
            return
        aside = put_aside(attempt, self.root / "damaged")
        raise RuntimeError(f"run {first.id} finished twice with different metrics: {first.path} counts, not {aside}")
