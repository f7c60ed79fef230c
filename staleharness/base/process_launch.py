"""Launch processes that inherit nothing from the script that launches them."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import sys
import tempfile
from collections.abc import Iterator

from ..errors import UserError

HASHING = ("PYTHONHASHSEED", "0")  # for every worker, so that sets of strings have the same order
LONGEST = 60  # characters of a folder for a socket, whose whole name may have 107; multiprocessing adds some 40


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Keep multiprocessing from executing the caller's script in every worker: it does so with the file of `__main__`
    unless that has a `__spec__`, and workers need nothing from it."""
    module = sys.modules["__main__"]
    before = getattr(module, "__spec__", None)
    module.__spec__ = importlib.machinery.ModuleSpec("__main__", None)
    try:
        yield
    finally:
        module.__spec__ = before


@contextlib.contextmanager
def fixed_hashing() -> Iterator[None]:
    """Give Python programs started in the block the same hashes of strings; the caller keeps its own."""
    name, value = HASHING
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def short_names() -> Iterator[None]:
    """Use /tmp for the fork server's socket where the name of $TMPDIR is too long for one."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = "/tmp"
        if not os.access(tempfile.tempdir, os.W_OK | os.X_OK):
            raise UserError(f"TMPDIR is longer than {LONGEST} characters, too long for a socket; give a shorter one")
    try:
        yield
    finally:
        tempfile.tempdir = before
