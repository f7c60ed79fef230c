"""A run under way, on disk: who may write to it, where it goes on, and the logs and checkpoints it leaves."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import digest, try_lock
from ..base.notes import NOTES
from ..errors import Diverged, UserError
from ..simulator import checkpoint
from ..simulator.loop import Simulation
from .fingerprint import same_bits

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


def resume(attempt: Path, run_id: str, simulation: Simulation[Any], made_with: dict[str, Any]) -> None:
    """Restore the newest checkpoint of this run whose logs are what it counts on, and cut the logs back to it."""

    def refused(state: dict[str, Any]) -> str | None:
        try:
            return _refused(state, attempt, run_id, made_with)
        except (KeyError, TypeError, ValueError, AttributeError):
            return "was not made by this version"

    state = checkpoint.load_newest(attempt, refused)
    lengths = dict.fromkeys(LOGS, 0)
    if state is not None:
        try:
            simulation.load_state_dict(state["simulation"])
        except Exception:
            checkpoint.clear(attempt)  # half restored, this process is lost; the next call starts over
            raise
        lengths |= {name: length for name, (length, _) in state["logs"].items()}
        NOTES.info("resumed after phase %d of %d", simulation.phase, simulation.spec.phases)
    elif _size(attempt / LOGS[0]):
        NOTES.info("starting over")
    for name, length in lengths.items():
        with open(attempt / name, "ab") as log:
            log.truncate(length)


def _refused(state: dict[str, Any], attempt: Path, run_id: str, made_with: dict[str, Any]) -> str | None:
    """What is wrong with going on from a checkpoint, or None."""
    if state["run"] != run_id:
        return f"belongs to run {str(state['run'])[:60]}"
    if changed := same_bits(json.loads(state["fingerprint"]), made_with):
        return f"was made with something else: {'; '.join(changed)}"
    for name in LOGS:
        length, digest = state["logs"][name]
        if _size(attempt / name) < length:
            return f"needs more than is left: {name} lost lines"
        with open(attempt / name, "rb") as log:
            if hashlib.sha256(log.read(length)).hexdigest() != digest:
                return f"does not match the logs: {name} was changed"
    return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def opened(attempt: Path, run_id: str) -> Iterator[Logs]:
    """The attempt's logs, to be added to from where `resume` has cut them. In the end they are what was written to
    them, or a `RuntimeError` says so, and the next call goes on from before that."""
    metrics, timing = (attempt / name for name in LOGS)
    with open(metrics, "ab") as first, open(timing, "ab") as second:
        files: dict[str, BinaryIO] = {metrics.name: first, timing.name: second}
        logs = Logs(
            attempt, run_id, files, {name: hashlib.sha256((attempt / name).read_bytes()) for name in LOGS}
        )
        yield logs
    for name, written in logs.digests.items():
        if digest(attempt / name) != written.hexdigest():
            raise RuntimeError(
                f"{name} is not what was written to it; the same command resumes from before that"
            )


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
            "logs": {
                name: (_on_disk(file), self.digests[name].hexdigest()) for name, file in self.files.items()
            },
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
