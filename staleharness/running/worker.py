"""The process behind one run. Forked from a server that has everything heavy loaded already, then on its own."""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 (with pyarrow, what a run is written down with; loaded once, in the fork server)
import pyarrow.parquet  # noqa: F401
import torch

from ..algorithm import ALGORITHMS
from ..base.cancellation import listen
from ..base.files import write_json
from ..base.logger import log_to
from ..base.plugins import PATH_VARIABLE, entry_points, source_file
from ..errors import Changed, Interrupted, lacks_memory
from ..lag import models_in_hash
from ..store.store import Store, log_tail, shorten_log
from ..task import find_env
from . import run
from .hardware import check_device_here
from .identity import run_id
from .runner import PREPARING, Job

MOST_MESSAGE = 1000  # characters of an error that are kept
MOST_TRACEBACK = 20_000  # and of its traceback in the log

entry_points()  # looked for once, in the fork server


def main(job: Job, tell: Callable[[dict[str, Any]], None], asked_to_stop: Callable[[], bool]) -> None:
    """Run `job`, tell of what is done before the first phase and of each phase, and end with `done`, `failed` or
    `interrupted`.

    This is what a runner starts, in a process of its own. `asked_to_stop` is called after every phase, and now and then
    before the first: then the run leaves a checkpoint and ends, as it does on SIGTERM. `tell` must not raise where
    nobody listens any more.
    """
    told: list[int] = []
    for name in (signal.SIGINT, signal.SIGHUP):  # these go to the sweep as well, which asks us to stop
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda signum, frame: told.append(signum))

    def should_stop() -> bool:
        return bool(told) or asked_to_stop()

    listen(should_stop, lambda at: tell({PREPARING: at}))
    os.environ[PATH_VARIABLE] = job.plugins  # not those of the sweep that started the server
    store = Store(job.root, job.holder)
    attempt = store.attempt_dir(job.run_id)
    try:
        store.open_attempt(job.run_id)
        _log_to(attempt / "log.txt")
        check_device_here(str(job.spec["device"]))
        _set_up_torch(int(job.spec["threads"]))
        check_plugins(job)
        path = run.execute(job, tell, should_stop)
        tell({"event": "done", "path": str(path)})
    except Interrupted as stop:
        tell({"event": "interrupted", "message": str(stop)})
    except BaseException as error:  # every failure is told: class, message, log tail
        sys.stderr.write(cut("".join(traceback.format_exception(error)), MOST_TRACEBACK))
        sys.stderr.flush()
        failure = describe(error, attempt)
        try:
            write_json(attempt / "failure.json", failure)
        except OSError as unwritable:
            failure["message"] += f" (and the failure could not be written down: {unwritable})"
        tell({"event": "failed", **failure})


def _set_up_torch(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # without the compiler that use_deterministic_algorithms loads
    # deterministic also means that new memory is filled, which nothing reads and which takes 5 % of a run
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (mypy does not know it)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic means on a GPU


def check_plugins(job: Job) -> None:
    """Raise `Changed` when a plugin file was edited since the sweep was planned: the id names what it was then."""
    _, family = find_env(str(job.spec["env"]))
    spec = family.settings.from_dict(job.spec)
    if run_id(spec, family) != job.run_id:
        files = [source_file(cls) for cls in (ALGORITHMS[spec.algorithm], family, *models_in_hash(spec.lag))]
        raise Changed(f"{' or '.join(files)} was edited since the sweep began; start the sweep again")


def describe(error: BaseException, attempt: Path) -> dict[str, Any]:
    """A failure as plain data: its class as users know it, one line, and the end of the log."""
    kind, message = type(error).__name__, " ".join(cut(str(error), MOST_MESSAGE).split())
    if lacks_memory(error):
        kind = "OOM"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        kind = "DiskFull"
    return {"class": kind, "message": message, "log_tail": log_tail(attempt)}


def cut(text: str, most: int) -> str:
    """At most so many characters: the beginning and the end of what is longer."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} [... {len(text) - 2 * half} more ...] {text[-half:]}"


def _log_to(path: Path) -> None:
    """Standard output and error go to the run's log, also those of libraries in C; stray files go beside it."""
    shorten_log(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what was printed before a sudden death is there to read
    log_to("stdout", logging.INFO)
    os.chdir(path.parent)
