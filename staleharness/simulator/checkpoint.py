"""Checkpoints: tensors and primitives only, each file whole and self-checking, the newest two kept."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import whole
from ..base.notes import NOTES

KEEP = 2
MOST = KEEP + 1  # there at a time: the next is whole before the oldest goes
SHARE = 0.05  # of a run's time at most
DIGEST = hashlib.sha256().digest_size
BLOCK = 1 << 20  # small parts are written together


def save(folder: Path, phase: int, state: dict[str, Any]) -> None:
    """Write the state before `phase` as `checkpoint-<phase>.pt`, then drop all but the newest two.

    The file is a SHA-256 and what it is of, written as it comes: a state can be of many gigabytes, and is not there
    twice.
    """
    import torch

    with whole(folder / f"checkpoint-{phase:08d}.pt") as file:
        file.write(bytes(DIGEST))
        hashed = _Hashed(file)
        stream = io.BufferedWriter(hashed, BLOCK)
        torch.save(state, stream)
        stream.flush()
        digest = hashed.end()
        file.seek(0)
        file.write(digest)
    for path in sorted(folder.glob("checkpoint-*.pt"))[:-KEEP]:
        path.unlink()


def load_newest(
    folder: Path, refused: Callable[[dict[str, Any]], str | None] = lambda state: None
) -> dict[str, Any] | None:
    """The newest checkpoint that is intact and not refused, or None. Any other is named, with what is wrong with it,
    and removed, or it would count as one of the newest two.

    `refused` says what is wrong with a checkpoint's content, or None.
    """
    for path in sorted(folder.glob("checkpoint-*.pt"), reverse=True):
        state, wrong = _read(path)
        if wrong is None:
            wrong = refused(state)
        if wrong is None:
            return state
        NOTES.warning("%s %s; going back to the one before it", path.name, wrong)
        path.unlink()
    return None


def _read(path: Path) -> tuple[dict[str, Any], str | None]:
    """(content, None), or what is wrong."""
    with open(path, "rb") as file:
        said = file.read(DIGEST)
        if hashlib.file_digest(file, "sha256").digest() != said:
            return {}, "is damaged"
        return _loaded(file)


def _loaded(file: BinaryIO) -> tuple[dict[str, Any], str | None]:
    import torch

    try:
        state = torch.load(io.BufferedReader(_Behind(file)), weights_only=True)
    except pickle.UnpicklingError:
        return {}, "holds more than tensors and numbers, and such a file is never loaded"
    except Exception as error:  # whatever a file that somebody made up can bring about in torch
        return {}, f"cannot be read by torch ({type(error).__name__})"
    return (state, None) if isinstance(state, dict) else ({}, "holds no state")


def next_due(begun: float, done: float, every: float) -> float:
    """When to save again, on the clock [s] on which saving began and was done: `every` seconds later, or as much later
    as it takes for saving to be no more than `SHARE` of the time. 0: after the next phase, whatever that costs."""
    return done + max(every, (done - begun) * (1.0 / SHARE - 1.0)) if every else done


def size(folder: Path) -> int:
    """Bytes of the largest checkpoint there, 0 without one."""
    return max((path.stat().st_size for path in folder.glob("checkpoint-*.pt")), default=0)


def clear(folder: Path) -> None:
    """Remove all checkpoints, for a run that starts over: later phases would outlive its own."""
    for path in folder.glob("checkpoint-*.pt"):
        path.unlink()


class _Hashed(io.RawIOBase):
    """Writes to a file, and takes the SHA-256 of what it writes.

    torch turns an error in the middle of an archive into another one, so the first is kept for `end`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha = file, hashlib.sha256()
        self.error: BaseException | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self.file.write(data)
                self.sha.update(data)
            except BaseException as error:
                self.error = error
        return len(data)

    def end(self) -> bytes:
        """The digest. Raises what writing raised."""
        if self.error is not None:
            raise self.error
        return self.sha.digest()


class _Behind(io.RawIOBase):
    """What lies behind the digest in a file, as a file of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.file.seek(offset + DIGEST if whence == io.SEEK_SET else offset, whence) - DIGEST

    def tell(self) -> int:
        return self.file.tell() - DIGEST

    def readinto(self, buffer: Any) -> int:
        return self.file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]
