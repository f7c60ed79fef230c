"""The cache of what is built once per machine: models and compiled code. A second process waits for the first."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from .cancellation import report
from .files import DISK_FULL, check_creatable, try_lock
from .parsing import user_path

CACHE_VARIABLE = "STALEHARNESS_CACHE"
DEFAULT = "~/.cache/staleharness"
REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENOENT)  # of a folder
PAUSE = 0.1  # seconds between two attempts to lock


def cache_folder() -> Path:
    """`$STALEHARNESS_CACHE`, by default ~/.cache/staleharness."""
    return user_path(os.environ.get(CACHE_VARIABLE) or DEFAULT)


def check_cache() -> None:
    """Raise `UserError` if the cache is empty and cannot be written, before a run that builds something in it."""
    folder = cache_folder()
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            check_creatable(folder / "models")
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> UserError:
    name = os.environ.get(CACHE_VARIABLE) or DEFAULT
    return UserError(f"the cache {name} cannot be written ({error.strerror}); set {CACHE_VARIABLE} to another folder")


def build_once(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `key` of that kind. Where there is none, `make` creates and fills a temporary folder, which is
    then renamed, so that an incomplete one is never used. Raises `UserError` where nothing can be written."""
    folder = cache_folder() / kind / key
    try:
        if folder.is_dir():  # perhaps on a disk where nothing can be written
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock_file = folder.with_suffix(".lock").open("w", encoding="utf-8")
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise _unwritable(error) from error
    with lock_file as lock:
        while not try_lock(lock.fileno()):
            report(f"waiting for {folder.stem}, which another process is building")
            time.sleep(PAUSE)
        if not folder.is_dir():
            temporary = folder.with_suffix(".unfinished")  # no other process uses it: we hold the lock
            shutil.rmtree(temporary, ignore_errors=True)
            try:
                make(temporary)
            except OSError as error:
                if error.errno in DISK_FULL and error.filename is None:  # a failed write does not name its file
                    error.filename = str(temporary)
                raise
            temporary.rename(folder)
    return folder
