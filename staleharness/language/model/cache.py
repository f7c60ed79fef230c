"""Models that are made once per machine and kept: a second process waits for the first."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...base.files import user_path
from ...base.stopping import check

CACHE_VARIABLE = "STALEHARNESS_CACHE"
PAUSE = 0.1  # seconds between two looks at whether another process is done


def cache_folder() -> Path:
    """`$STALEHARNESS_CACHE`, by default ~/.cache/staleharness."""
    return user_path(os.environ.get(CACHE_VARIABLE) or "~/.cache/staleharness")


def made_once(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `key` of that kind; where there is none, `make` fills it, and it appears whole or not at all."""
    folder = cache_folder() / kind / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            unfinished = folder.with_suffix(".unfinished")  # ours alone: we hold the lock
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """transformers shows none of its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as handle:
        while not _taken(handle):
            check(f"waiting for {path.stem}, which another process makes")
            time.sleep(PAUSE)
        yield


def _taken(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
