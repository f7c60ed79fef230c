"""Checkpoints: tensors and primitives only, each file whole and self-checking, the newest two kept."""

from __future__ import annotations

import errno
import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ..base.console_log import LOGGER
from ..base.files import atomic_write
from ..errors import lacks_memory
from ..store.attempt_folders import CHECKPOINTS

KEEP = 2
MAX_FILES = KEEP + 1  # at a time: the next is complete before the oldest is removed, unless the disk has no room
SHARE = 0.05  # of a run's time at most
DIGEST = hashlib.sha256().digest_size
BLOCK = 1 << 20  # small parts are written together


def save(folder: Path, phase: int, state: dict[str, Any]) -> None:
    """Write the state before `phase` as `checkpoint-<phase>.pt`, then drop all but the newest two.

    Where the disk is full, the older of two is removed first, if the newer is intact; otherwise raises `OSError`.
    """
    path = folder / f"checkpoint-{phase:08d}.pt"
    try:
        _write(path, state)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _make_room(folder):
            raise
        _write(path, state)
    for earlier in newest_first(folder)[KEEP:]:
        earlier.unlink()


def _write(path: Path, state: dict[str, Any]) -> None:
    """Write a state, preceded by its SHA-256, as a stream, so that a state of many gigabytes is not held twice."""
    import torch

    with atomic_write(path) as file:
        file.write(bytes(DIGEST))
        hashing_file = _HashingFile(file)
        stream = io.BufferedWriter(hashing_file, BLOCK)
        torch.save(state, stream)
        stream.flush()
        digest = hashing_file.end()
        file.seek(0)
        file.write(digest)


def _make_room(folder: Path) -> bool:
    """Remove all checkpoints but the newest, if that one is intact; return whether that made room."""
    paths = newest_first(folder)
    if len(paths) < 2 or not is_intact(paths[0]):
        return False
    for path in paths[1:]:
        path.unlink()
    LOGGER.info(
        "the disk has no room for %d checkpoints; only %s is kept while the next is written", MAX_FILES, paths[0].name
    )
    return True


class DamagedCheckpoint(Exception):
    """A checkpoint's content does not match its digest: nothing can be read from it, now or later."""


class Unusable(Exception):
    """A checkpoint that matches its digest cannot be used here and now; the message says why. It is never deleted."""


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the latest phase first."""
    return sorted(folder.glob(CHECKPOINTS), reverse=True)


def phase_of(path: Path) -> int:
    """The phase that a checkpoint's name gives."""
    return int(path.stem.removeprefix("checkpoint-"))


def load(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, all tensors on the CPU, to be copied into tensors that exist already.

    Raises `DamagedCheckpoint` and `Unusable`. `OSError` and lack of memory (`lacks_memory`) pass unchanged: they say
    nothing about the file.
    """
    with open(path, "rb") as file:
        if not _matches(file):
            raise DamagedCheckpoint(f"{path.name} is damaged")
        return _content(file)


def is_intact(path: Path) -> bool:
    """Return whether a checkpoint matches its digest, without loading it."""
    with open(path, "rb") as file:
        return _matches(file)


def _matches(file: io.BufferedReader) -> bool:
    digest = file.read(DIGEST)
    return hashlib.file_digest(file, "sha256").digest() == digest


def _content(file: BinaryIO) -> dict[str, Any]:
    import torch

    try:
        state = torch.load(io.BufferedReader(_FileBehindDigest(file)), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise Unusable("holds more than tensors and numbers, and such a file is never loaded") from error
    except Exception as error:  # torch may raise anything for a forged file
        if isinstance(error, OSError) or lacks_memory(error):
            raise
        raise Unusable(f"cannot be read by torch ({type(error).__name__})") from error
    if not isinstance(state, dict):
        raise Unusable("holds no state")
    return state


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Content of the newest intact checkpoint, or None; damaged ones are removed. Raises what `load` does."""
    for path in newest_first(folder):
        try:
            return load(path)
        except DamagedCheckpoint:
            remove_damaged(path)
    return None


def remove_damaged(path: Path, say: Callable[[str], None] = LOGGER.warning) -> None:
    """Remove a checkpoint that does not match its digest, which would count as one of the newest two."""
    say(f"{path.name} is damaged; going back to the one before it")
    path.unlink()


def next_due(start: float, done: float, interval: float) -> float:
    """Return the time of the next checkpoint, on the clock [s] on which saving began and was done: `interval` seconds
    later, or as much later as it takes for saving to be no more than `SHARE` of the time. 0: after the next phase,
    whatever that costs."""
    return done + max(interval, (done - start) * (1.0 / SHARE - 1.0)) if interval else done


def size(folder: Path) -> int:
    """Bytes of the largest checkpoint there, 0 without one."""
    return max((path.stat().st_size for path in folder.glob(CHECKPOINTS)), default=0)


class _HashingFile(io.RawIOBase):
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


class _FileBehindDigest(io.RawIOBase):
    """Content behind the digest in a file, as a file of its own."""

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
