"""A run under way, on disk: who may write to it, where it goes on, and the logs and checkpoints it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..base.notes import NOTES
from ..errors import Diverged, UserError
from ..simulator.loop import Simulation
from . import checkpoint
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
    try:
        yield
    finally:
        os.close(handle)


def lock(attempt: Path) -> int | None:
    """A handle that holds the attempt's lock, or None while another process has it.

    The directory may be published, that is renamed, by its holder while we wait; then what we have locked is no
    longer the attempt, which is made anew.
    """
    attempt.mkdir(parents=True, exist_ok=True)
    path = attempt / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def resume(attempt: Path, simulation: Simulation[Any], made_with: dict[str, Any]) -> None:
    """Restore the newest checkpoint and cut the logs back to it."""
    lengths = dict.fromkeys(LOGS, 0)
    state = checkpoint.load_newest(attempt)
    if state is not None:
        short = [name for name, length in state["lengths"].items() if _size(attempt / name) < length]
        if changed := same_bits(json.loads(state["fingerprint"]), made_with):
            _start_over(attempt, f"the checkpoint was made with something else: {'; '.join(changed)}")
        elif short:
            _start_over(attempt, f"{' and '.join(short)} lost lines that the checkpoint counts on")
        else:
            simulation.load_state_dict(state["simulation"])
            lengths = state["lengths"]
            NOTES.info("resumed after phase %d of %d", simulation.phase, simulation.spec.phases)
    for name, length in lengths.items():
        with open(attempt / name, "ab") as log:
            log.truncate(length)


def _start_over(attempt: Path, why: str) -> None:
    NOTES.warning("starting over, %s", why)
    checkpoint.clear(attempt)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def opened(attempt: Path) -> Iterator[Logs]:
    """The attempt's logs, to be added to from where `resume` has cut them."""
    metrics, timing = (attempt / name for name in LOGS)
    with open(metrics, "ab") as first, open(timing, "ab") as second:
        yield Logs(attempt, {metrics.name: first, timing.name: second})


@dataclass(frozen=True)
class Logs:
    """One line per phase each, and the checkpoints that count on them."""

    attempt: Path
    files: dict[str, BinaryIO]

    def write(self, metrics: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
        """Write a phase down. Raises `Diverged` where a number of it is not finite."""
        for file, line in zip(self.files.values(), (metrics, seconds), strict=True):
            file.write(json_line(line))
            file.flush()

    def checkpoint(self, simulation: Simulation[Any], made_with: dict[str, Any]) -> None:
        """Save the simulation as it stands, once all lines that it counts on are on the disk."""
        state = {
            "simulation": simulation.state_dict(),
            "lengths": {name: _on_disk(file) for name, file in self.files.items()},
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
