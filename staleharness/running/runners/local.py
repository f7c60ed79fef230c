"""Runner for this machine: a fresh process per run, forked from a server with all heavy modules loaded."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...base.cancellation import STOP_SIGNALS, signal_handlers
from ...base.console_log import LOGGER
from ...base.process_launch import fixed_hashing, short_names
from ...base.system_info import memory, memory_kills
from ...errors import one_line
from ..runner_interface import (
    GPUS,
    OUT_OF_MEMORY,
    Event,
    Job,
    ResourceRequest,
    RunEnd,
    RunProgress,
    check_device_here,
    describe_exit,
    usable_cores,
    usable_gpus,
)

WORKER = "staleharness.running.worker"  # imports all heavy modules: the server loads it before it forks
GRADIENT = "torch.fx.experimental.symbolic_shapes"  # with sympy: torch loads it at the first gradient of a process
GRACE = 10.0  # seconds for a worker to end after its last message


@dataclass
class _Worker:
    process: Any
    channel: Connection
    gpu: str = ""  # the only one that it sees, on a machine with several
    message: dict[str, Any] | None = None  # its last
    since: float = 0.0  # when that came
    is_silent: bool = False  # its end of the pipe is closed


class LocalPool:
    """Forked processes, each with a pipe for its messages and for the order to stop."""

    multi_machine = has_queue = False

    def __init__(self, capacity: int, gpus: Sequence[str] = (), runs_per_gpu: int = 1) -> None:
        """gpus: names for CUDA_VISIBLE_DEVICES to spread the runs over; without any, every run sees all GPUs.

        runs_per_gpu: number of runs that share the memory of one.
        """
        self.capacity = self.per_machine = capacity
        self._gpus, self._runs_per_gpu = gpus, runs_per_gpu
        self._out_of_memory = memory_kills()
        self._context = multiprocessing.get_context("forkserver")
        self._workers: dict[str, _Worker] = {}

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Start the fork server with signals ignored, so that it outlives the workers on which it has to report."""
        self._context.set_forkserver_preload([WORKER, GRADIENT, *modules])
        with signal_handlers(dict.fromkeys(STOP_SIGNALS, signal.SIG_IGN)), short_names(), fixed_hashing():
            forkserver.ensure_running()  # ignored signals stay ignored in the program that is executed

    def start(self, job: Job) -> None:
        channel, worker_end = self._context.Pipe()
        in_use = [worker.gpu for worker in self._workers.values()]
        gpu = min(self._gpus, key=in_use.count, default="")
        if self._runs_per_gpu > job.share:
            job = replace(job, runs_per_gpu=self._runs_per_gpu // job.share)
        process = self._context.Process(target=_in_child, args=(job, worker_end, gpu), name=job.run_id, daemon=False)
        with short_names(), fixed_hashing():  # a server that was killed is started anew
            process.start()
        worker_end.close()
        self._workers[job.run_id] = _Worker(process, channel, gpu)

    def poll(self, timeout: float) -> Iterator[Event]:
        workers = list(self._workers.items())
        channels = [w.channel for _, w in workers if not w.is_silent]
        wait([*channels, *(w.process.sentinel for _, w in workers)], timeout)
        for run_id, worker in workers:
            yield from _read_messages(run_id, worker)
            if worker.message is not None and time.monotonic() - worker.since > GRACE:
                worker.process.kill()  # a plugin's thread keeps it from ending
            if not worker.process.is_alive():
                yield from _read_messages(run_id, worker)  # messages sent just before its end
                worker.process.join()
                worker.channel.close()
                code = worker.process.exitcode
                cause, failure_class = self._cause(code), "Killed" if code is None or code < 0 else "Exited"
                worker.process.close()
                del self._workers[run_id]
                yield RunEnd(run_id, worker.message, cause, failure_class=failure_class)

    def _cause(self, code: int | None) -> str:
        """Describe how a process ended; a kill by the kernel for lack of memory is named as such."""
        if code == -signal.SIGKILL and (kills := memory_kills()) > self._out_of_memory:
            self._out_of_memory = kills
            return f"{OUT_OF_MEMORY}: the kernel killed it"
        return describe_exit(code)

    def ask_to_stop(self, run_id: str) -> None:
        with contextlib.suppress(OSError):
            self._workers[run_id].channel.send("stop")

    def kill(self, run_id: str) -> None:
        self._workers[run_id].process.kill()

    def leave_jobs(self) -> None:
        """Do nothing: no worker outlives its sweep."""

    def close(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
            worker.process.join()


def make(request: ResourceRequest) -> LocalPool:
    """Make the runner: as many runs at a time as requested, or one per core; no more than fit into memory and GPUs.

    Raises `UserError` if a GPU is requested and there is none.
    """
    check_device_here(request.device)
    room = [request.jobs or usable_cores() // request.threads]
    if request.memory is not None:
        room.append(max(1, memory() // request.memory))
        if room[1] < room[0]:
            sizes = f"{request.memory / 1e9:.2g} GB", f"{memory() / 1e9:.2g} GB"
            LOGGER.warning("%d at a time instead of %d: a run takes %s, and this machine has %s", *room[1::-1], *sizes)
    per_gpu = request.runs_per_gpu
    if per_gpu is None and request.fills_gpu and request.device != "cpu":
        per_gpu = 1
    if per_gpu is None:
        return LocalPool(max(1, min(room)))
    gpus = usable_gpus() if request.device == "cuda" else []
    room.append(per_gpu * max(1, len(gpus)))
    if request.jobs and request.runs_per_gpu is None and room[-1] < request.jobs:
        counts = room[-1], request.jobs, request.jobs
        LOGGER.warning("%d at a time instead of %d: one run per GPU; RUNS_PER_GPU=%d lets them share", *counts)
    return LocalPool(max(1, min(room)), gpus, per_gpu)


def _read_messages(run_id: str, worker: _Worker) -> Iterator[RunProgress]:
    """Yield the messages in a worker's pipe; the last one is stored until the worker has ended."""
    try:
        while not worker.is_silent and worker.channel.poll():
            message = worker.channel.recv()
            if "event" in message:
                worker.message, worker.since = message, time.monotonic()
            else:
                yield RunProgress(run_id, message)
    except (EOFError, OSError):
        worker.is_silent = True


def _in_child(job: Job, channel: Connection, gpu: str) -> None:
    """Main function of the forked process. It ends at the next phase boundary if the sweep that started it is gone."""
    try:
        from .. import worker  # here, so that the sweep's own process never loads torch
    except ImportError as error:  # of a library; the fork server ignores it silently
        failure = {"class": type(error).__name__, "message": one_line(error), "log_tail": ""}
        channel.send({"event": "failed", **failure})
        return

    if gpu:
        os.environ[GPUS] = gpu  # before CUDA is initialised
    parent = multiprocessing.parent_process()
    orders: list[str] = []

    def tell(message: dict[str, Any]) -> None:
        try:
            channel.send(message)
        except OSError:
            orders.append("the sweep is gone")

    def asked_to_stop() -> bool:
        if parent is not None and not parent.is_alive():
            return True
        try:
            while channel.poll():
                orders.append(channel.recv())
        except (EOFError, OSError):
            return True
        return bool(orders)

    worker.main(job, tell, asked_to_stop)
