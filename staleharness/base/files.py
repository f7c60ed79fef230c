"""Files that are there whole or not at all, and paths as people type them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError, shortened


def digest(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_digest(*folders: Path) -> str:
    """sha256 of the names and contents of all files below some folders, compiled Python left out."""
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    named = [[path.name, digest(path)] for path in files if "__pycache__" not in path.parts]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with whole(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file when all went well (temporary, fsync, rename)."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Canonical JSON (sorted keys, no NaN), written whole or not at all."""
    write_bytes(path, (json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode())


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def user_path(text: str) -> Path:
    """A path as typed, `~` expanded. Raises `UserError` where it cannot be one."""
    if any(unicodedata.category(c) == "Cc" for c in text):
        what = "a NUL" if "\0" in text else "a line break or another control character"
        raise UserError(f"{shortened(text)!r} is not a path: it has {what} in it")
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{shortened(text)!r} is not a path: {getattr(error, 'strerror', error)}") from error
    return path
