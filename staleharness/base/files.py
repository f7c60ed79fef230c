"""Files that are there whole or not at all, and paths as people type them."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError, shortened
from .parsing import canonical_json


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp(path: Path) -> tuple[str, int, int, int]:
    """What changes when a file does, without reading it: (name, bytes, ns of the last change, inode)."""
    found = path.stat()
    return path.name, found.st_size, found.st_mtime_ns, found.st_ino


def tree_digest(*folders: Path) -> str:
    """sha256 of the names and contents of all files below some folders, compiled Python left out."""
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    named = [[path.name, digest(path)] for path in files if "__pycache__" not in path.parts]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with whole(path) as stream:
        stream.write(data)


def check_creatable(path: Path, prefix: str = ".staleharness-") -> None:
    """Raise `OSError` where a folder that is not there cannot be made. Where the first folder on its way would be, a
    temporary one is made and removed: no question about permissions tells it of every file system."""
    path = path.resolve()
    if not path.exists():
        there = next(parent for parent in path.parents if parent.exists())
        os.rmdir(tempfile.mkdtemp(dir=there, prefix=prefix))


def check_replaceable(path: Path, head: str, kind: str) -> None:
    """Raise `UserError` where something is in the place of a file to be written and is not an earlier version of it:
    a file that begins with `head`. kind: of file, for the message."""
    if not os.path.lexists(path):
        return
    with path.open("rb") if path.is_file() else io.BytesIO() as stream:
        if stream.read(len(head.encode())) != head.encode():
            raise UserError(f"{path} is not {kind} and would be replaced; give another folder or move it away")


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
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:  # a write does not know of which file it is
            error.filename = str(path)
        raise
    sync(path.parent)


def parse_json(text: str | bytes, **options: Any) -> Any:
    """What a text of JSON says. Raises `ValueError` also where it is nested more deeply than Python reads."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """What a file of JSON says. Raises `OSError`, and `ValueError` where it is none."""
    return parse_json(path.read_bytes())


def write_json(path: Path, content: Any) -> None:
    """Canonical JSON (sorted keys, no NaN), written whole or not at all."""
    write_bytes(path, (json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode())


def forget_torn(folder: Path, *names: str, age: float = 0.0) -> None:
    """Remove the temporary files that `whole` leaves in a folder when its process is killed, of files called like one
    of `names` (patterns of `fnmatch`); other hidden files are somebody's.

    age: seconds since the last write to them; above 0 where another process may be writing, for lack of a lock.
    """
    for torn in folder.iterdir():
        found = re.fullmatch(r"\.(.+)\.[a-z0-9_]{8}", torn.name)
        ours = found is not None and any(fnmatch.fnmatchcase(found[1], name) for name in names)
        if ours and torn.is_file() and not torn.is_symlink() and torn.stat().st_mtime <= time.time() - age:
            torn.unlink(missing_ok=True)


def no_link(path: Path) -> None:
    """Raise `UserError` where this is a link, also one to nothing."""
    if path.is_symlink():
        raise UserError(f"{path} is a link, and in a results folder nothing is written through one; remove it")


def folder_below(root: Path, *names: str) -> Path:
    """The folder `root/name/...`, made where it is absent, to be written in.

    Whoever typed `root` may mean a link; below it, what somebody else has made could lead anywhere. Raises `UserError`
    where a link is on the way or a folder inside is one, and where it cannot be made.
    """
    path = root
    for name in names:
        path = path / name
        no_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}") from error
    for place, folders, _ in os.walk(path):  # a file that is a link is replaced, and not followed
        for name in folders:
            no_link(Path(place, name))
    return path


def name_of_folder(text: str, exact: Any, said: bool = True) -> str:
    """A readable name of a folder, and another one for another `exact`: the text, and where it says too little, is too
    long or has other letters than a name should, a hash of `exact`.

    said: whether the text says all that `exact` does.
    """
    name = re.sub(r"[^\w+.=-]", "_", text)[:80]
    if said and name == text:
        return name
    return f"{name}-{hashlib.sha256(canonical_json(exact).encode()).hexdigest()[:6]}"


def put_aside(path: Path, folder: Path) -> Path:
    """Move whatever is at `path` into `folder`, under its name or the first free one like it; returns where it is."""
    folder.mkdir(exist_ok=True)
    names = itertools.chain([path.name], (f"{path.name}.{n}" for n in itertools.count(1)))
    aside = next(folder / name for name in names if not os.path.lexists(folder / name))
    os.rename(path, aside)
    sync(path.parent)
    return aside


def swap(new: Path, path: Path) -> None:
    """Put a folder in the place of another, which is removed, or of nothing. Killed at any point, `path` is one or
    the other, whole; where the system cannot exchange two names, the earlier one may be left as `earlier(new)`."""
    for content in sorted(new.rglob("*")):
        if content.is_file():
            sync(content)
    sync(new)
    leaving = new if path.exists() and _exchange(new, path) else earlier(new)
    if leaving != new:
        if path.exists():
            os.rename(path, leaving)
        os.rename(new, path)
    sync(path.parent)
    shutil.rmtree(leaving, ignore_errors=True)


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[None]:
    """Make way for a folder that is filled and then moved to its place; remove what is left of it where that fails."""
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was killed
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def earlier(new: Path) -> Path:
    """Where `swap` lays what it takes away, for a moment, where it must."""
    return new.with_name(f"{new.name}.earlier")


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "renameat2", None)  # Linux
    here, exchange = -100, 2
    return call is not None and call(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0


def try_lock(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    """Whether this process has the file's lock now; the kernel lets go of it however a process ends.

    Raises `UserError` where the file system has no locks.
    """
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"the file system of the results folder has no locks ({error.strerror}), as some network file systems; "
            "give a folder on a local disk"
        ) from error
    return True


def sync(path: Path) -> None:
    """Have what was written to a file, or renamed in a folder, reach the disk."""
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
    if any(unicodedata.category(c) == "Cs" for c in text):  # how Python reads bytes that are no text
        raise UserError(f"{shortened(text)!r} is not a path in UTF-8, which tables and reports need; rename it")
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{shortened(text)!r} is not a path: {getattr(error, 'strerror', error)}") from error
    return path
