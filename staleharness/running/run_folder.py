"""Folder of a run in progress: the right to write in it, its logs and checkpoints, and its publication."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import digest, remove_temporaries, try_lock, write_json
from ..base.system_info import resident_memory
from ..errors import Interrupted, UserError
from ..spec import RunSpec
from ..store.attempt_folders import CHECKPOINTS, FINGERPRINT, LEASE, RUN_FILES
from ..store.locks_and_leases import FolderLock, Lease, hold_lease
from ..store.store import Store
from ..store.stored_run import MEMORY
from ..training import checkpoint
from ..training.loop import Simulation
from ..training.phase_record import PhaseRecord
from .checkpoint_recovery import LOGS, resume
from .memory_leak_warning import in_megabytes
from .run_record import fingerprint, json_line
from .runner_interface import Job
from .takeover import TAKEN_OVER, take_over

LOCK = ".lock"
NOT_OURS = "was moved, removed or replaced"
PATIENCE = 60.0  # seconds to wait for a worker that a killed sweep left behind


class RunFolder:
    """Folder of a run in progress, held by this process from `open` on.

    `resume` gives the simulation, `write` stores a phase, `checkpoint` its state, `finish_logs` closes the logs, and
    `publish` moves the folder, once its results are complete, to its place among the finished runs.
    """

    def __init__(self, store: Store, path: Path, job: Job, spec: RunSpec, hold: Lease | FolderLock) -> None:
        self.store, self.path, self.job, self.hold = store, path, job, hold
        self.phases = spec.phases
        self.fingerprint = fingerprint(spec)
        self.next_checkpoint = 0.0  # on the monotonic clock
        self._closing = contextlib.ExitStack()
        self._logs: dict[str, BinaryIO] = {}
        self._hashes: dict[str, Any] = {}  # sha256 of each log, up to the last line

    @classmethod
    @contextlib.contextmanager
    def open(cls, job: Job, spec: RunSpec) -> Iterator[RunFolder]:
        """Hold the folder by a lock, or by a lease if machines share it; take over what earlier workers have left.

        Raises `UserError` if another process does not let go, and `Interrupted` if another worker takes the run over.
        """
        store = Store(job.root, job.holder)
        path = store.attempt_dir(job.run_id)
        with hold_by_lease(path) if job.holder else hold_by_lock(path) as hold:
            remove_temporaries(path, *RUN_FILES, CHECKPOINTS, age=0.0)
            take_over(path, store.root / "damaged")
            run = cls(store, path, job, spec, hold)
            with run._closing:
                yield run

    @property
    def is_lost(self) -> bool:
        """True if another worker has taken the run over, or its folder was moved, removed or replaced."""
        return self.hold.lost

    def check_hold(self) -> None:
        """Raise `Interrupted` if the folder is no longer this worker's: nothing is written into another's."""
        if self.is_lost:
            raise Interrupted(TAKEN_OVER if isinstance(self.hold, Lease) else f"{self.path} {NOT_OURS}")

    def publish_if_finished(self) -> Path | None:
        """Return the finished run if nothing is left to simulate, otherwise None."""
        if self.store.is_done(self.job.run_id):  # finished by a worker of a killed sweep, while we waited for it
            shutil.rmtree(self.path)
            return self.store.run_dir(self.job.run_id)
        return self.publish() if self.store.is_sealed(self.job.run_id) else None

    def resume(self, make: Callable[[], Simulation[Any]], say: Callable[[str], None]) -> Simulation[Any]:
        """Return the simulation, built by `make`, from the newest usable checkpoint or from the start.

        `say` is called with lines for the user. Raises `UserError` if there are checkpoints, none is usable and the job
        does not ask to start over.
        """
        for name in ("failure.json", "manifest.json"):
            (self.path / name).unlink(missing_ok=True)
        content = {"label": self.job.label, "phases": self.phases, "spec": self.job.spec}
        write_json(self.path / "job.json", content)
        simulation = resume(self.path, self.job.run_id, make, self.fingerprint, self.job.restart, say)
        try:
            write_json(self.path / FINGERPRINT, self.fingerprint)
            for name in LOGS:
                self._logs[name] = self._closing.enter_context((self.path / name).open("ab"))
                self._hashes[name] = hashlib.sha256((self.path / name).read_bytes())
            self.next_checkpoint = time.monotonic() + self.job.checkpoint_seconds
        except BaseException:
            simulation.close()
            raise
        return simulation

    def write(self, record: PhaseRecord) -> None:
        """Append a phase to the logs. Raises `Diverged` if a number of it is not finite."""
        seconds = {**record.seconds, MEMORY: in_megabytes(resident_memory())}
        for name, content in zip(LOGS, (record.metrics, seconds), strict=True):
            line = json_line(content)
            self._logs[name].write(line)
            self._logs[name].flush()
            self._hashes[name].update(line)

    def checkpoint(self, simulation: Simulation[Any]) -> None:
        """Save the state of the simulation, once all lines of the logs before it are on the disk. Raises `Interrupted`
        if the folder is no longer this worker's."""
        self.check_hold()
        state = {
            "run": self.job.run_id,
            "simulation": simulation.state_dict(),
            "logs": {name: (_fsync_length(log), self._hashes[name].hexdigest()) for name, log in self._logs.items()},
            "fingerprint": json.dumps(self.fingerprint),
        }
        checkpoint.save(self.path, simulation.phase, state)

    def checkpoint_if_due(self, simulation: Simulation[Any]) -> None:
        """Save the state once the job's interval has passed, or a longer one if saving takes long."""
        if (start := time.monotonic()) > self.next_checkpoint:
            self.checkpoint(simulation)
            interval = self.job.checkpoint_seconds
            self.next_checkpoint = checkpoint.next_due(start, time.monotonic(), interval)

    def finish_logs(self) -> None:
        """Close the logs. Raises `RuntimeError` if they differ from what was written to them; the next call then
        resumes from an earlier checkpoint."""
        self.check_hold()
        self._closing.close()
        for name, sha in self._hashes.items():
            if digest(self.path / name) != sha.hexdigest():
                raise RuntimeError(
                    f"{name} no longer holds what the run wrote to it; the same command resumes from an earlier "
                    "checkpoint"
                )

    def publish(self) -> Path:
        """Make this a finished run, by one rename; return its folder."""
        self.check_hold()
        return self.store.publish(self.job.run_id)


def _fsync_length(log: BinaryIO) -> int:
    """Flush a log to the disk; return its length in bytes."""
    os.fsync(log.fileno())
    return log.tell()


@contextlib.contextmanager
def hold_by_lease(path: Path) -> Iterator[Lease]:
    """Hold the lease of a folder. Raises `Interrupted` if a file is missing because the folder was taken over."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        with hold_lease(path / LEASE) as lease:
            yield lease
    except OSError as error:
        if path.is_dir():
            raise
        raise Interrupted(TAKEN_OVER) from error


@contextlib.contextmanager
def hold_by_lock(path: Path) -> Iterator[FolderLock]:
    """Hold the lock of a folder; wait for a worker left over from a killed sweep, which ends within a phase or two.

    Raises `UserError` if another process does not let go, and `Interrupted` if a file is missing because the folder is
    no longer this worker's.
    """
    deadline = time.monotonic() + PATIENCE
    while (handle := lock(path)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"another process is still writing to {path}; end it and try again")
        time.sleep(0.1)
    _locks.add(handle)
    hold = FolderLock(handle, path / LOCK)
    try:
        yield hold
    except OSError as error:
        if not hold.lost:
            raise
        raise Interrupted(f"{path} {NOT_OURS}") from error
    finally:
        _locks.discard(handle)
        os.close(handle)


_locks: set[int] = set()


def _close_locks() -> None:
    """Close locks in a process that a plugin forks: it writes no results, and may outlive this one."""
    for handle in _locks:
        os.close(handle)
    _locks.clear()


os.register_at_fork(after_in_child=_close_locks)


def lock(path: Path) -> int | None:
    """Return a handle that holds the folder's lock, or None while another process has it.

    Its holder may publish, that is rename, the folder while we wait; then the lock is on another folder, and this one
    is created again.
    """
    path.mkdir(parents=True, exist_ok=True)
    file = path / LOCK
    handle = os.open(file, os.O_RDWR | os.O_CREAT)
    with contextlib.ExitStack() as closing, contextlib.suppress(FileNotFoundError):
        closing.callback(os.close, handle)
        if try_lock(handle) and os.path.samestat(os.fstat(handle), file.stat()):
            closing.pop_all()
            return handle
    return None
