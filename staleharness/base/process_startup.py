"""Start processes that inherit nothing from the script that starts them, and handle signals meanwhile."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import UserError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a batch system, a closed terminal
HASHING = ("PYTHONHASHSEED", "0")  # of every worker: with another, sets of strings are in another order
LONGEST = 60  # characters of a folder for a socket, whose whole name may have 107; multiprocessing adds some 40


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Keep multiprocessing from executing the caller's script again in every worker, which it does with the file of
    `__main__` unless that has a name: a worker needs nothing of it."""
    module = sys.modules["__main__"]
    before = getattr(module, "__spec__", None)
    module.__spec__ = importlib.machinery.ModuleSpec("__main__", None)
    try:
        yield
    finally:
        module.__spec__ = before


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle these signals so; restore their handlers afterwards."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def fixed_hashing() -> Iterator[None]:
    """Start Python programs that hash strings alike. The caller's own hashing was settled when it started."""
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
    """Let the server's socket lie in a folder whose name is short enough for one: $TMPDIR may be long."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = "/tmp"
        if not os.access(tempfile.tempdir, os.W_OK | os.X_OK):
            raise UserError(f"TMPDIR is longer than {LONGEST} characters, too long for a socket; give a shorter one")
    try:
        yield
    finally:
        tempfile.tempdir = before
