"""Worker process of one run: its setup, the loop over phases, and messages to the runner."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 (with pyarrow, writes the tables of a run; loaded once, in the fork server)
import pyarrow.parquet  # noqa: F401
import torch

from ..algorithm import ALGORITHMS
from ..base.cancellation import listen
from ..base.console_log import LOGGER, log_to
from ..base.files import DISK_FULL, write_bytes, write_json
from ..base.plugin_files import PATH_VARIABLE
from ..base.plugins import entry_points, plugin_line, source_file
from ..errors import Changed, Interrupted, UserError, lacks_memory, one_line
from ..mismatch import read_mismatch
from ..store.attempt_folders import log_tail, shorten_log
from ..store.store import Store
from ..store.stored_run import EVALUATION_PREFIX, PARTS
from ..task import find_env
from ..training.loop import Simulation, simulation_of
from ..training.phase_record import PhaseRecord, Scores
from ..training.torch_setup import set_up_worker
from .run_folder import RunFolder
from .run_identity import lags_in_hash, run_id
from .run_record import software, write_record
from .runner_interface import NOTE, PREPARING, Job, check_device_here

MAX_MESSAGE = 1000  # characters of an error that are kept
NOT_DETERMINISTIC = " does not have a deterministic implementation"  # in an error of torch
PLUGINS = "staleharness.running.plugin_preload"
PHASE = "phase "  # beginning of a note on an error
MAX_TRACEBACK = 20_000  # characters of its traceback in the log
PROGRESS_METRICS = ("lag_mean", "tv_data", "eval_sampled", "eval_deterministic", "rollout_return", "reward")

entry_points()  # cached once, in the fork server, as are commit and versions
software()


def main(job: Job, tell: Callable[[dict[str, Any]], None], asked_to_stop: Callable[[], bool]) -> None:
    """Execute a job; runners start this in a process of its own.

    `tell` gets messages of preparations and phases, and finally an event `done`, `failed` or `interrupted`; it must not
    raise if the receiver is gone. `asked_to_stop` is called after every phase, and sometimes before the first; if it is
    true, and on SIGTERM, the run leaves a checkpoint and ends.
    """
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGHUP):  # the sweep gets them too, and asks us to stop
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda signum, frame: signals.append(signum))

    def should_stop() -> bool:
        return bool(signals) or asked_to_stop()

    listen(should_stop, lambda at: tell({PREPARING: at}))
    os.environ[PATH_VARIABLE] = job.plugins  # not those of the sweep that started the server
    multiprocessing.set_forkserver_preload([PLUGINS])  # before a plugin starts processes of its own
    store = Store(job.root, job.holder)
    attempt = store.attempt_dir(job.run_id)
    try:
        store.open_attempt(job.run_id)
        _log_to(attempt / "log.txt")
        check_device_here(str(job.spec["device"]))
        set_up_worker(int(job.spec["threads"]))
        limit_gpu_memory(job)
        check_plugins(job)
        path = execute(job, tell, should_stop)
        tell({"event": "done", "path": str(path)})
    except Interrupted as stop:
        tell({"event": "interrupted", "message": str(stop)})
    except BaseException as error:  # every failure is reported: class, message, log tail
        with contextlib.suppress(OSError):  # the log may be on a disk that is full
            sys.stderr.write(cut("".join(traceback.format_exception(error)), MAX_TRACEBACK))
            sys.stderr.flush()
        failure = describe(error, attempt)
        try:
            write_json(attempt / "failure.json", failure)
        except OSError as unwritable:
            failure["message"] += f" (and failure.json could not be written: {unwritable})"
        tell({"event": "failed", **failure})


def execute(job: Job, progress: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]) -> Path:
    """Execute a job from its newest usable checkpoint; return the folder of the finished run.

    `progress` is called after every phase, and with notes for the user ({NOTE: line}); `should_stop` is asked after
    every phase but the last. Raises `Interrupted` after writing a checkpoint if asked to stop, `UserError` if there are
    checkpoints and none is usable, and `Diverged` if a metric is not finite; other errors pass through.
    """
    _, family = find_env(str(job.spec["env"]))
    spec = family.settings.from_dict(job.spec)
    make = functools.partial(simulation_of, spec, Path(job.folder))

    def say(line: str) -> None:
        LOGGER.warning(line)
        progress({NOTE: line})

    with RunFolder.open(job, spec) as run:
        if (path := run.publish_if_finished()) is not None:
            return path
        with contextlib.closing(run.resume(make, say)) as simulation:
            if simulation.phase == 0:
                for line in simulation.warnings:
                    LOGGER.warning("warning: %s", line)
            scores = _run_phases(simulation, run, progress, lambda: should_stop() or run.is_lost)
            run.finish_logs()
            for name, content in simulation.artifacts().items():
                write_bytes(run.path / name, content)
            simulation.save(run.path)
        write_record(run.path, job, family, simulation, scores, run.fingerprint)
        return run.publish()


def _run_phases(
    simulation: Simulation[Any],
    run: RunFolder,
    progress: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], bool],
) -> Scores:
    """Write every remaining phase, with checkpoints at intervals and before the last evaluation; return the final
    scores."""
    scores: Scores | None = None
    last = simulation.spec.phases

    def before_evaluation() -> None:
        """Save the last phase, so that a run killed during scores and tables need not train it again."""
        if simulation.phase == last:
            run.checkpoint(simulation)

    simulation.before_evaluation = before_evaluation
    try:
        for record in simulation:
            _check_record(record)
            scores = record.scores or scores
            run.write(record)
            values = {key: record.metrics.get(key) for key in PROGRESS_METRICS}
            progress({"phase": simulation.phase, "phases": last, "steps": record.metrics["steps"], **values})
            if simulation.phase == last:
                break
            if should_stop():
                run.checkpoint(simulation)
                raise Interrupted(f"stopped after phase {simulation.phase} of {last}")
            run.checkpoint_if_due(simulation)
    except Interrupted:
        if simulation.trained is not None:  # during an evaluation, the only missing part of the phase
            run.checkpoint(simulation)
        raise
    except Exception as error:
        error.add_note(f"{PHASE}{simulation.phase - (simulation.trained is not None)}")
        raise
    assert scores is not None, "the last phase is always evaluated"
    return scores


def _check_record(record: PhaseRecord) -> None:
    """Raise `UserError` if a kind of task omits what every reader of results relies on."""
    curves = [f"{EVALUATION_PREFIX}{mode}" for mode in record.scores.returns] if record.scores else []
    entries = {"metrics": ["phase", "steps", "lag_histogram", *curves], "seconds": [*PARTS]}
    for part, names in entries.items():
        if absent := [name for name in names if name not in getattr(record, part)]:
            raise UserError(f"the simulation's {part} of a phase lack {', '.join(absent)}")


def limit_gpu_memory(job: Job) -> None:
    """Leave the other runs on the run's GPU their shares of its memory."""
    device = torch.device(str(job.spec["device"]))
    if job.runs_per_gpu > 1 and device.type == "cuda":  # without an index: the only one that this process sees
        torch.cuda.set_per_process_memory_fraction(1.0 / job.runs_per_gpu, device.index)


def check_plugins(job: Job) -> None:
    """Raise `Changed` if a plugin was edited since the sweep was planned: the id stands for its code at that time."""
    _, family = find_env(str(job.spec["env"]))
    spec = family.settings.from_dict(job.spec)
    if run_id(spec, family) != job.run_id:
        models = *lags_in_hash(spec.lag), *read_mismatch(spec.mismatch)
        files = [source_file(cls) for cls in (ALGORITHMS[spec.algorithm], family, *map(type, models))]
        reason = "(or a file that it imports) was edited since the sweep began"
        raise Changed(f"{' or '.join(files)} {reason}; start the sweep again")


def describe(error: BaseException, attempt: Path) -> dict[str, Any]:
    """Return a failure as plain data: its class as users know it, one line, and the end of the log."""
    kind, message = type(error).__name__, one_line(cut(str(error), MAX_MESSAGE)) or "no message"
    if lacks_memory(error):
        kind = "OOM"
    elif isinstance(error, OSError) and error.errno in DISK_FULL:
        kind = "DiskFull"
    elif NOT_DETERMINISTIC in message:  # torch's advice is to turn determinism off
        operation = message.partition(NOT_DETERMINISTIC)[0].split()[-1]
        message = (
            f"torch {torch.__version__} has no deterministic {operation}, and runs are deterministic; use another "
            "operation or a newer torch (cumsum on a GPU: 2.11)"
        )
    place = "" if isinstance(error, UserError) or kind != type(error).__name__ else plugin_line(error)
    phases = [note for note in getattr(error, "__notes__", ()) if note.startswith(PHASE) and PHASE not in message]
    if where := "; ".join([*filter(None, [place]), *phases[:1]]):
        message = f"{message} ({where})"
    return {"class": kind, "message": message, "log_tail": log_tail(attempt)}


def cut(text: str, limit: int) -> str:
    """Shorten a text to `limit` characters: keep its beginning and its end."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} [... {len(text) - 2 * half} more ...] {text[-half:]}"


def _log_to(path: Path) -> None:
    """Redirect standard output and error, also of C libraries, to the run's log; stray files go beside it."""
    shorten_log(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # lines printed before a sudden death are in the file
    log_to("stdout", logging.INFO)
    os.chdir(path.parent)
