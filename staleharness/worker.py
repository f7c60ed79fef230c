"""The process behind one run. Forked from a server that has everything heavy loaded already, then on its own."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium  # noqa: F401 (loaded in the fork server, so that a run costs no start-up)
import torch

from . import run
from .errors import Interrupted
from .files import write_json
from .job import Job
from .plugins import PATH_VARIABLE
from .store import Store

LOG_TAIL_LINES = 25


def main(job: Job, plugin_path: str, channel: Connection) -> None:
    """Run `job`, tell `channel` about every phase, and end with `done`, `failed` or `interrupted`.

    The process ends itself at the next phase boundary when the sweep that started it is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the sweep, which asks us to stop
    if plugin_path:
        os.environ[PATH_VARIABLE] = plugin_path
    attempt = Store(job.root).attempt_dir(job.run_id)
    attempt.mkdir(parents=True, exist_ok=True)
    _log_to(attempt / "log.txt")
    torch.set_num_threads(int(job.spec["threads"]))
    torch.use_deterministic_algorithms(True)
    parent = multiprocessing.parent_process()
    orders: list[str] = []

    def should_stop() -> bool:
        if parent is not None and not parent.is_alive():
            return True
        try:
            while channel.poll():
                orders.append(channel.recv())
        except (EOFError, OSError):
            return True
        return bool(orders)

    def tell(message: dict[str, Any]) -> None:
        try:
            channel.send(message)
        except OSError:
            orders.append("the sweep is gone")

    try:
        path = run.execute(job, tell, should_stop)
        tell({"event": "done", "path": str(path)})
    except Interrupted as stop:
        tell({"event": "interrupted", "message": str(stop)})
    except BaseException as error:  # every failure is told: class, message, log tail
        traceback.print_exc()
        sys.stderr.flush()
        failure = describe(error, attempt)
        try:
            write_json(attempt / "failure.json", failure)
        except OSError as unwritable:
            failure["message"] += f" (and the failure could not be written down: {unwritable})"
        tell({"event": "failed", **failure})


def describe(error: BaseException, attempt: Path) -> dict[str, Any]:
    """A failure as plain data: its class as users know it, one line, and the end of the log."""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        kind = "OOM"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        kind = "DiskFull"
    return {"class": kind, "message": " ".join(str(error).split()), "log_tail": log_tail(attempt)}


def log_tail(attempt: Path) -> str:
    log = attempt / "log.txt"
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def _log_to(path: Path) -> None:
    """Standard output and error go to the run's log, also those of libraries in C; stray files go beside it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    os.chdir(path.parent)
