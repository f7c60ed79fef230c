"""A run under way, on disk: who may write to it, where it goes on, and the logs and checkpoints it leaves."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import atomic_write, check_not_link, digest, fsync, read_json, try_lock
from ..base.logger import LOGGER
from ..errors import Diverged, UserError, lacks_memory, shorten
from ..simulator import checkpoint
from ..simulator.loop import Simulation
from ..store.unfinished_runs import ASIDE, FINGERPRINT
from .hardware import fingerprint_differences

PATIENCE = 60.0  # seconds to wait for a worker that a killed sweep left behind
LOGS = ("metrics.jsonl", "timing.jsonl")


@contextlib.contextmanager
def only_writer(attempt: Path) -> Iterator[None]:
    """One process writes to an attempt; a worker left over from a killed sweep lets go within a phase or two."""
    deadline = time.monotonic() + PATIENCE
    while (handle := lock(attempt)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"another process is still writing to {attempt}; end it and try again")
        time.sleep(0.1)
    _held.add(handle)
    try:
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


_held: set[int] = set()


def _let_go() -> None:
    """A process that a plugin forks writes no results: living on, it must not keep the lock of one that died."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


def lock(attempt: Path) -> int | None:
    """A handle that holds the attempt's lock, or None while another process has it.

    The directory may be published, that is renamed, by its holder while we wait; then what we have locked is no
    longer the attempt, which is made anew.
    """
    attempt.mkdir(parents=True, exist_ok=True)
    path = attempt / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        if try_lock(handle) and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except FileNotFoundError:
        pass
    except UserError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def resume(
    attempt: Path,
    run_id: str,
    make: Callable[[], Simulation[Any]],
    fingerprint: dict[str, Any],
    restart: bool = False,
    say: Callable[[str], None] = LOGGER.warning,
) -> Simulation[Any]:
    """A simulation that continues from the newest checkpoint that can be used here, its logs cut back to it; a new one
    where the run has none.

    make: builds the simulation. fingerprint: of this process, which a checkpoint must have been made with.
    restart: start over where all checkpoints are of no use here. say: called with a line for the user.

    A checkpoint that matches its digest is never deleted: where an earlier one or a new start takes its place, it is
    set aside with its logs, and a process that it fits continues from there. Raises `UserError` where there are
    checkpoints, none of them fits and `restart` is not given.
    """
    unusable: list[str] = []
    for folder in (attempt, *folders_set_aside(attempt)):
        for path in checkpoint.newest_first(folder):
            try:
                simulation, lengths = _restored(path, run_id, make, fingerprint)
            except checkpoint.Damaged:
                checkpoint.remove_damaged(path, say)
            except checkpoint.Unusable as problem:
                if folder == attempt:
                    unusable.append(f"{path.name} {problem}")
            else:
                newer = checkpoint.newest_first(attempt)
                if folder == attempt:
                    newer = [other for other in newer if other > path]
                if newer:
                    place = set_aside(attempt, newer)
                    say(f"{unusable[0]}; it stays in {place}, and the run goes on from phase {simulation.phase}")
                if folder != attempt:
                    _bring_back(path, attempt)
                _cut_logs(attempt, lengths)
                LOGGER.info("resumed after phase %d of %d", simulation.phase, simulation.spec.phases)
                return simulation
    if unusable and not restart:
        raise UserError(
            f"{unusable[0]}; nothing was deleted: run it where it fits, or start over beside it with --restart "
            f"(make: RESTART=1), which keeps it in {attempt}"
        )
    if unusable:
        place = set_aside(attempt, checkpoint.newest_first(attempt))
        say(f"{unusable[0]}; it stays in {place}, and the run starts over")
    elif _size(attempt / LOGS[0]):
        LOGGER.info("starting over")
    simulation = make()
    _cut_logs(attempt, dict.fromkeys(LOGS, 0))
    return simulation


def _restored(
    path: Path, run_id: str, make: Callable[[], Simulation[Any]], fingerprint: dict[str, Any]
) -> tuple[Simulation[Any], dict[str, int]]:
    """The simulation of a checkpoint, and the length of each log [bytes] that it counts on. Raises `Damaged` and
    `Unusable`."""
    state = checkpoint.load(path)
    try:
        lengths = _check(state, path, run_id, fingerprint)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise checkpoint.Unusable("was not made by this version") from error
    simulation = make()
    try:
        simulation.load_state_dict(state["simulation"])
    except BaseException as error:
        simulation.close()
        if not isinstance(error, Exception) or isinstance(error, OSError) or lacks_memory(error):
            raise
        raise checkpoint.Unusable(f"cannot be restored ({type(error).__name__}: {shorten(str(error))})") from error
    return simulation, lengths


def _check(state: dict[str, Any], path: Path, run_id: str, fingerprint: dict[str, Any]) -> dict[str, int]:
    """Lengths of the logs that a checkpoint counts on [bytes]. Raises `Unusable` unless it is of this run, made with
    the same fingerprint, and name, phase and logs agree."""
    if state["run"] != run_id:
        raise checkpoint.Unusable(f"belongs to run {shorten(str(state['run']))}")
    if changes := fingerprint_differences(json.loads(state["fingerprint"]), fingerprint):
        raise checkpoint.Unusable(f"was made with something else: {'; '.join(changes)}")
    phase = state["simulation"]["phase"]
    logged = phase if json.loads(state["simulation"]["trained"]) is None else phase - 1  # the last not yet evaluated
    if phase != checkpoint.phase_of(path):
        raise checkpoint.Unusable(f"holds another phase, {shorten(str(phase))}")
    lengths = {}
    for name in LOGS:
        length, sha = state["logs"][name]
        if _size(path.parent / name) < length:
            raise checkpoint.Unusable(f"needs more than is left: {name} lost lines")
        with open(path.parent / name, "rb") as log:
            content = log.read(length)
        if hashlib.sha256(content).hexdigest() != sha:
            raise checkpoint.Unusable(f"does not match the logs: {name} was changed")
        if content.count(b"\n") != logged:
            raise checkpoint.Unusable(f"holds phase {phase}, and {name} another")
        lengths[name] = length
    return lengths


def fingerprint_changes(attempt: Path, fingerprint: dict[str, Any]) -> list[str]:
    """Changes from the fingerprint of an attempt's checkpoints to this one, as lines `name: there -> here`; none where
    a checkpoint fits, where there is none, or where only loading them would tell. Reads no tensors."""
    first: list[str] = []
    for folder in (attempt, *folders_set_aside(attempt)):
        if not checkpoint.newest_first(folder):
            if folder == attempt:
                return []  # the run has started over already
            continue
        try:
            changes = fingerprint_differences(read_json(folder / FINGERPRINT), fingerprint)
        except (OSError, ValueError, TypeError, AttributeError):
            return []
        if not changes:
            return []
        first = first or changes
    return first


def _cut_logs(attempt: Path, lengths: Mapping[str, int]) -> None:
    for name, length in lengths.items():
        with open(attempt / name, "ab") as log:
            log.truncate(length)


def folders_set_aside(attempt: Path) -> list[Path]:
    """Folders of an attempt with checkpoints that did not fit, each with their logs; that of the latest phase first."""
    found = [path for path in attempt.glob(ASIDE) if path.is_dir() and not path.is_symlink()]
    return sorted(found, key=lambda path: [p.name for p in checkpoint.newest_first(path)], reverse=True)


def set_aside(attempt: Path, checkpoints: Sequence[Path]) -> Path:
    """Move checkpoints to a folder in the attempt, with copies of the logs that they count on; returns the folder.

    Logs first: where this is cut off, checkpoints have them on either side.
    """
    with open(checkpoints[0], "rb") as newest:
        folder = attempt / ASIDE.replace("*", newest.read(4).hex())
    check_not_link(folder)
    folder.mkdir(exist_ok=True)
    _copy_logs(attempt, folder)
    for path in checkpoints:
        path.rename(folder / path.name)
    fsync(folder)
    fsync(attempt)
    return folder


def _bring_back(newest: Path, attempt: Path) -> None:
    """Undo `set_aside`, up to a checkpoint."""
    folder = newest.parent
    _copy_logs(folder, attempt)
    for path in checkpoint.newest_first(folder):
        if path <= newest:
            path.rename(attempt / path.name)
    fsync(attempt)
    if not checkpoint.newest_first(folder):
        shutil.rmtree(folder)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (*LOGS, FINGERPRINT):
        if (source / name).is_file():
            with open(source / name, "rb") as log, atomic_write(target / name) as copy:
                shutil.copyfileobj(log, copy)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def opened(attempt: Path, run_id: str) -> Iterator[Logs]:
    """The attempt's logs, to be added to from where `resume` has cut them. In the end they are what was written to
    them, or a `RuntimeError` says so, and the next call goes on from before that."""
    metrics, timing = (attempt / name for name in LOGS)
    with open(metrics, "ab") as first, open(timing, "ab") as second:
        files: dict[str, BinaryIO] = {metrics.name: first, timing.name: second}
        logs = Logs(attempt, run_id, files, {name: hashlib.sha256((attempt / name).read_bytes()) for name in LOGS})
        yield logs
    for name, written in logs.digests.items():
        if digest(attempt / name) != written.hexdigest():
            raise RuntimeError(f"{name} is not what was written to it; the same command resumes from before that")


@dataclass(frozen=True)
class Logs:
    """One line per phase each, and the checkpoints that count on them."""

    attempt: Path
    run_id: str
    files: dict[str, BinaryIO]
    digests: dict[str, Any]  # sha256 of each, as far as it is written

    def write(self, metrics: Mapping[str, Any], seconds: Mapping[str, Any]) -> None:
        """Write a phase down. Raises `Diverged` where a number of it is not finite."""
        for (name, file), content in zip(self.files.items(), (metrics, seconds), strict=True):
            line = json_line(content)
            file.write(line)
            file.flush()
            self.digests[name].update(line)

    def checkpoint(self, simulation: Simulation[Any], made_with: dict[str, Any]) -> None:
        """Save the simulation as it stands, once all lines that it counts on are on the disk."""
        state = {
            "run": self.run_id,
            "simulation": simulation.state_dict(),
            "logs": {name: (_on_disk(file), self.digests[name].hexdigest()) for name, file in self.files.items()},
            "fingerprint": json.dumps(made_with),
        }
        checkpoint.save(self.attempt, simulation.phase, state)


def _on_disk(log: BinaryIO) -> int:
    """Length of the log in bytes, all of them on the disk before a checkpoint counts on them."""
    os.fsync(log.fileno())
    return log.tell()


def json_line(content: Mapping[str, Any]) -> bytes:
    """A phase as a line of a log. Raises `Diverged` where a number of it is not finite."""
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"{key} is {value} in phase {content.get('phase')}")
    return (json.dumps(content, sort_keys=True, allow_nan=False) + "\n").encode()
