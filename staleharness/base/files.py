"""Atomic writes of files and folders, checks of paths, locks."""

from __future__ import annotations

import contextlib
import errno
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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError
from .parsing import canonical_json

FILE_LIST = "written.json"  # lists what a command wrote into a folder: {"files": {name: [sha256, ...]}}
DISK_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # error numbers
TEMPORARY_AGE = 3600.0  # seconds without a write, after which nobody is writing a temporary file


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp(path: Path) -> tuple[str, int, int, int]:
    """Fingerprint of a file without reading it: (name, bytes, modification time in ns, inode)."""
    status = path.stat()
    return path.name, status.st_size, status.st_mtime_ns, status.st_ino


def tree_digest(*folders: Path) -> str:
    """sha256 of the names and contents of all files below some folders, compiled Python left out."""
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    digests = [[path.name, digest(path)] for path in files if "__pycache__" not in path.parts]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic_write(path) as stream:
        stream.write(data)


def check_creatable(path: Path, prefix: str = ".staleharness-") -> None:
    """Raise `OSError` for a folder that does not exist and cannot be created. Creates and removes a temporary folder
    in its nearest existing parent, since permission bits do not decide on every file system."""
    path = path.resolve()
    if not path.exists():
        parent = next(parent for parent in path.parents if parent.exists())
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file, but a folder is needed here", str(parent))
        os.rmdir(tempfile.mkdtemp(dir=parent, prefix=prefix))


def check_replaceable(path: Path, head: str, kind: str, within: int = 0) -> None:
    """Raise `UserError` for an existing path that is not an earlier version of the file to be written.

    head: first characters of every version, or with `within` text in so many bytes. kind: of file, for the message."""
    if not os.path.lexists(path):
        return
    with path.open("rb") if path.is_file() else io.BytesIO() as stream:
        text = stream.read(within or len(head.encode()))
        if head.encode() not in text:
            raise UserError(f"{path} is not {kind} and would be overwritten; give another path or move it away")


def check_own(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the digests that files of `replace_own` in a folder may have, from `FILE_LIST`. Raises `UserError` if one
    of `names` is there and is not as `replace_own` left it."""
    path = folder / FILE_LIST
    try:
        digests = {str(name): list(map(str, digests)) for name, digests in read_json(path)["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        digests = {}  # no list yet, or a file of another program
    foreign = [] if digests or not os.path.lexists(path) else [path]
    for file in (folder / name for name in names):
        intact = file.is_file() and not file.is_symlink() and digest(file) in digests.get(file.name, [])
        foreign += [file] if os.path.lexists(file) and not intact else []
    if foreign:
        raise UserError(
            f"{foreign[0]} was not written by this command, or has changed since, and would be overwritten; give "
            "another folder or move it away"
        )
    return digests


def replace_own(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder; return their paths. Files that an earlier call wrote (`FILE_LIST`) and nobody changed
    are replaced. Raises `UserError`, before anything is written, for any other file in the way."""
    digests = check_own(folder, contents)
    folder.mkdir(parents=True, exist_ok=True)
    remove_temporaries(folder, *contents, FILE_LIST)
    for name, data in contents.items():
        path, sha = folder / name, hashlib.sha256(data).hexdigest()
        digests[name] = [sha, *([digest(path)] if path.is_file() else [])]
    # first, so that after a kill both the old and the new file are in the list
    write_json(folder / FILE_LIST, {"files": digests})
    for name, data in contents.items():
        write_bytes(folder / name, data)
    return [folder / name for name in contents]


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces the file on success (temporary file, fsync, rename)."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not (temporary and error.filename):  # a failed write does not name its file
            error.filename = str(path)
        raise
    fsync(path.parent)


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON. Raises `ValueError`, also for nesting that is too deep for Python."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises `OSError`, and `ValueError` for other content."""
    return parse_json(path.read_bytes())


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file is absent, damaged or holds something else."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: Any) -> None:
    """Write canonical JSON atomically."""
    write_bytes(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """Return canonical JSON: sorted keys, no NaN."""
    return (json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def remove_temporaries(folder: Path, *names: str, age: float = TEMPORARY_AGE) -> None:
    """Remove the temporary files that `atomic_write` leaves in a folder when its process is killed.

    names: patterns (`fnmatch`) of the files that were written; other hidden files may belong to the user.
    age: least seconds since the last write; 0 where a lock tells that no other process is writing.
    """
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile, by the process that writes it
            old = path.lstat().st_mtime <= time.time() - age
            if old and is_temporary(path.name, *names) and path.is_file() and not path.is_symlink():
                path.unlink()


def is_temporary(name: str, *names: str) -> bool:
    """Return whether `atomic_write` gives this name to a temporary file; names: patterns of the files it is for."""
    match = re.fullmatch(r"\.(.+)\.[a-z0-9_]{8}", name)
    return match is not None and any(fnmatch.fnmatchcase(match[1], pattern) for pattern in names)


def check_not_link(path: Path) -> None:
    """Raise `UserError` for a symbolic link, even a dangling one."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link; nothing in a results folder is written through one, so remove it")


def make_subfolder(root: Path, *names: str) -> Path:
    """Create the folder `root/name/...`, to be written in, and return it.

    The user may type a link as `root`; below it, a link made by somebody else could lead anywhere. Raises `UserError`
    for a link on the way or a linked folder inside, and where the folder cannot be created.
    """
    path = root
    for name in names:
        path = path / name
        check_not_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be created: {error.strerror}") from error
    for parent, folders, _ in os.walk(path):  # a file that is a link is replaced, and not followed
        for name in folders:
            check_not_link(Path(parent, name))
    return path


def safe_name(text: str, exact: Any, unambiguous: bool = True) -> str:
    """Readable name of a folder, unique to `exact`: the text where it can serve as a name, else with a hash of `exact`.
    unambiguous: the text alone identifies `exact`."""
    name = re.sub(r"[^\w+.=-]", "_", text)[:80]
    if unambiguous and name == text:
        return name
    return f"{name}-{hashlib.sha256(canonical_json(exact).encode()).hexdigest()[:6]}"


def move_into(path: Path, folder: Path) -> Path:
    """Move a file or folder into `folder`, under its name or `name.1`, `name.2`, ...; returns the new path."""
    folder.mkdir(exist_ok=True)
    names = itertools.chain([path.name], (f"{path.name}.{n}" for n in itertools.count(1)))
    target = next(folder / name for name in names if not os.path.lexists(folder / name))
    os.rename(path, target)
    fsync(path.parent)
    return target


def replace_folder(new: Path, path: Path) -> None:
    """Move the folder `new` to `path`, and remove the folder that was there. If killed, `path` is the old or the new
    folder, complete; where the system cannot exchange names, the old one may be at `backup_path(new)`."""
    for content in filter(Path.is_file, sorted(new.rglob("*"))):
        fsync(content)
    fsync(new)
    old = new if path.exists() and _exchange(new, path) else backup_path(new)
    if old != new:
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
    fsync(path.parent)
    remove_folder(old)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it is there, also where it or a folder in it is read-only."""
    with contextlib.suppress(OSError):
        for parent, *_ in () if folder.is_symlink() else os.walk(folder):
            os.chmod(parent, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[None]:
    """Clear a path for a folder that is filled and then moved to its place; afterwards remove any remains."""
    remove_folder(folder)  # of a call that was killed
    try:
        yield
    finally:
        remove_folder(folder)


def backup_path(new: Path) -> Path:
    """Path to which `replace_folder` may move the old folder for a moment."""
    return new.with_name(f"{new.name}.earlier")


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "renameat2", None)  # Linux
    return call is not None and call(-100, os.fsencode(a), -100, os.fsencode(b), 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def try_lock(handle: int, mode: int = fcntl.LOCK_EX) -> bool:
    """Try to lock a file and return whether it succeeded. The kernel releases the lock when the process ends.

    Raises `UserError` for a file system without locks.
    """
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"the file system of the folder does not support locks ({error.strerror}), like some network file systems; "
            "give a folder on a local disk"
        ) from error
    return True


def fsync(path: Path) -> None:
    """Flush a written file, or a folder with a renamed entry, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
