"""Runner on one machine: one fresh process per run, forked from a server that has everything heavy loaded already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...base.logger import LOGGER
from ...base.machine import memory, memory_kills
from ...base.processes import fixed_hashing, short_names
from ..devices import GPUS, check_device_here, usable_cores, usable_gpus
from ..job import Job
from ..runner import OUT_OF_MEMORY, Demand, Ended, Event, Progress

WORKER = "staleharness.running.worker"  # with all that is heavy: what the server loads before it forks
GRADIENT = "torch.fx.experimental.symbolic_shapes"  # with sympy: what torch itself loads at a process's first gradient
GRACE = 10.0  # seconds for a worker to end after its last word


@dataclass
class _Worker:
    process: Any
    channel: Connection
    gpu: str = ""  # the one that it sees, where there are several
    word: dict[str, Any] | None = None  # its last
    since: float = 0.0  # when that was
    silent: bool = False  # its end of the pipe is closed


class LocalPool:
    """Forked processes, each with a pipe: up come messages, down goes the order to stop."""

    shared = queues = False

    def __init__(self, capacity: int, gpus: Sequence[str] = ()) -> None:
        """gpus: those to spread runs over, by the names that CUDA_VISIBLE_DEVICES takes; none: runs see all."""
        self.capacity = self.neighbours = capacity
        self._gpus = gpus
        self._out_of_memory = memory_kills()
        self._context = multiprocessing.get_context("forkserver")
        self._workers: dict[str, _Worker] = {}

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Start the fork server deaf to what ends us, so that it outlives the workers it has to report on."""
        self._context.set_forkserver_preload([WORKER, GRADIENT, *modules])
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {name: signal.signal(name, signal.SIG_IGN) for name in names}
        try:
            with short_names(), fixed_hashing():
                forkserver.ensure_running()  # what is ignored stays ignored in the program that is executed
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def start(self, job: Job) -> None:
        here, there = self._context.Pipe()
        taken = [worker.gpu for worker in self._workers.values()]
        gpu = min(self._gpus, key=taken.count, default="")
        process = self._context.Process(target=_in_child, args=(job, there, gpu), name=job.run_id, daemon=False)
        process.start()
        there.close()
        self._workers[job.run_id] = _Worker(process, here, gpu)

    def poll(self, timeout: float) -> Iterator[Event]:
        workers = list(self._workers.items())
        speaking = [w.channel for _, w in workers if not w.silent]
        wait([*speaking, *(w.process.sentinel for _, w in workers)], timeout)
        for run_id, worker in workers:
            yield from _heard(run_id, worker)
            if worker.word is not None and time.monotonic() - worker.since > GRACE:
                worker.process.kill()  # a thread of a plugin's holds it, and has nothing more to say
            if not worker.process.is_alive():
                yield from _heard(run_id, worker)  # what it said between the last look and its end
                worker.process.join()
                worker.channel.close()
                how = self._how(worker.process.exitcode)
                worker.process.close()
                del self._workers[run_id]
                yield Ended(run_id, worker.word, how)

    def _how(self, code: int | None) -> str:
        """How a process ended, in words; and whether the kernel did it, which had no memory left."""
        if code == -signal.SIGKILL and (kills := memory_kills()) > self._out_of_memory:
            self._out_of_memory = kills
            return f"{OUT_OF_MEMORY}: the kernel killed it"
        return _how(code)

    def ask_to_stop(self, run_id: str) -> None:
        with contextlib.suppress(OSError):
            self._workers[run_id].channel.send("stop")

    def kill(self, run_id: str) -> None:
        self._workers[run_id].process.kill()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
            worker.process.join()


def make(demand: Demand) -> LocalPool:
    """As many runs at a time as asked for, or as the cores bear; no more than its memory and its GPUs do. Raises
    `UserError` where a GPU is asked for and there is none."""
    check_device_here(demand.device)
    room = [demand.jobs or usable_cores() // demand.threads]
    if demand.memory is not None:
        room.append(max(1, memory() // demand.memory))
        if room[1] < room[0]:
            sizes = f"{demand.memory / 1e9:.2g} GB", f"{memory() / 1e9:.2g} GB"
            LOGGER.warning("%d at a time instead of %d: a run takes %s, and this machine has %s", *room[1::-1], *sizes)
    gpus = usable_gpus() if demand.runs_per_gpu is not None and demand.device == "cuda" else []
    if demand.runs_per_gpu is not None:
        room.append(demand.runs_per_gpu * max(1, len(gpus)))
    return LocalPool(max(1, min(room)), gpus)


def _heard(run_id: str, worker: _Worker) -> Iterator[Progress]:
    """What is in a worker's pipe; its last word is kept until it has ended."""
    try:
        while not worker.silent and worker.channel.poll():
            message = worker.channel.recv()
            if "event" in message:
                worker.word, worker.since = message, time.monotonic()
            else:
                yield Progress(run_id, message)
    except (EOFError, OSError):
        worker.silent = True


def _how(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _in_child(job: Job, channel: Connection, gpu: str) -> None:
    """The forked process. It ends itself at the next phase boundary when the sweep that started it is gone."""
    from .. import worker  # here, so that the sweeping process itself never loads torch

    if gpu:
        os.environ[GPUS] = gpu  # before CUDA wakes up
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
