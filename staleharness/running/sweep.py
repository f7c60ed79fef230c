"""Running what is missing: one fresh process per run, forked from a pre-loaded server, watched until it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from ..base.files import write_json
from ..base.plugins import PATH_VARIABLE
from ..store.store import Store, log_tail
from ..task import find_env
from .job import Job
from .plan import PlannedRun


class Listener(Protocol):
    """Hears of a sweep's progress (a live display, plain lines, or nothing)."""

    def started(self, run: PlannedRun) -> None: ...
    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def ended(self, run: PlannedRun, event: dict[str, Any]) -> None: ...
    def stopping(self) -> None: ...


@dataclass
class Outcome:
    """How each run of a sweep ended, by id."""

    done: list[str] = field(default_factory=list)  # finished now
    skipped: list[str] = field(default_factory=list)  # finished before
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)  # id -> failure
    interrupted: bool = False


@dataclass
class _Worker:
    run: PlannedRun
    process: Any
    channel: Connection
    event: dict[str, Any] | None = None  # its last word


def sweep(runs: tuple[PlannedRun, ...], store: Store, jobs: int, listener: Listener) -> Outcome:
    """Run every run that is not stored yet, at most `jobs` at a time. A worker that dies takes only its own run along.

    Ctrl-C once: every worker finishes its phase, checkpoints and ends. Twice: they are ended at once.
    """
    context = multiprocessing.get_context("forkserver")
    families = [find_env(env)[1] for env in dict.fromkeys(run.spec.env for run in runs)]
    own = dict.fromkeys(module for family in families for module in family.preload)
    context.set_forkserver_preload(["staleharness.running.worker", *own])
    active: list[_Worker] = []
    with store.locked(), _interrupts() as interrupts:
        _start_server()
        outcome, waiting = Outcome(), []
        for run in runs:
            if store.is_done(run.run_id) and not store.put_damaged_aside(run.run_id):
                outcome.skipped.append(run.run_id)
            else:
                waiting.append(run)
        try:
            while waiting or active:
                if interrupts.count and not outcome.interrupted:
                    outcome.interrupted = True
                    waiting.clear()
                    listener.stopping()
                    for worker in active:
                        with contextlib.suppress(OSError):
                            worker.channel.send("stop")
                if interrupts.count > 1:
                    for worker in active:
                        worker.process.kill()
                while waiting and len(active) < jobs and not interrupts.count:
                    active.append(_start(context, waiting.pop(0), store, listener))
                wait([w.channel for w in active] + [w.process.sentinel for w in active], timeout=0.2)
                for worker in list(active):
                    _hear(worker, listener)
                    if not worker.process.is_alive():
                        _hear(worker, listener)  # what it said between the last look and its end
                        active.remove(worker)
                        silent = outcome.interrupted and worker.event is None
                        _settle(worker, store, outcome, listener, stopped=silent or interrupts.count > 1)
        finally:
            for worker in active:
                worker.process.kill()
                worker.process.join()
    return outcome


def _start_server() -> None:
    """Start the fork server deaf to what ends us, so that it outlives the workers it has to report on."""
    before = {
        name: signal.signal(name, signal.SIG_IGN) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        forkserver.ensure_running()  # what is ignored stays ignored in the program that is executed
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _start(context: Any, run: PlannedRun, store: Store, listener: Listener) -> _Worker:
    here, there = context.Pipe()
    job = Job(run.run_id, run.label, run.spec.to_dict(), str(store.root.resolve()), os.getcwd())
    arguments = (job, os.environ.get(PATH_VARIABLE, ""), there)
    process = context.Process(target=_in_child, args=arguments, name=run.run_id, daemon=False)
    process.start()
    there.close()
    listener.started(run)
    return _Worker(run, process, here)


def _in_child(job: Job, plugin_path: str, channel: Connection) -> None:
    from . import worker  # here, so that the sweeping process itself never loads torch

    worker.main(job, plugin_path, channel)


def _hear(worker: _Worker, listener: Listener) -> None:
    with contextlib.suppress(EOFError, OSError):
        while worker.channel.poll():
            message = worker.channel.recv()
            if "event" in message:
                worker.event = message
            else:
                listener.phase(worker.run, message)


def _settle(worker: _Worker, store: Store, outcome: Outcome, listener: Listener, stopped: bool) -> None:
    worker.process.join()
    worker.channel.close()
    run_id, event = worker.run.run_id, worker.event
    if store.is_done(run_id):  # the file system is the truth, also when the last word was lost
        event = {"event": "done"}
        outcome.done.append(run_id)
    elif stopped or (event is not None and event["event"] == "interrupted"):
        event = event or {"event": "interrupted"}
    else:
        if event is None or event["event"] != "failed":
            event = _silent_death(worker, store)
        outcome.failed[run_id] = event
    worker.process.close()
    listener.ended(worker.run, event)


def _silent_death(worker: _Worker, store: Store) -> dict[str, Any]:
    """The failure of a worker that ended without a word (killed, out of memory, a crash in C)."""
    attempt = store.attempt_dir(worker.run.run_id)
    code = worker.process.exitcode
    try:
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
    except ValueError:
        how = f"signal {-code}"
    failure = {"class": "Killed", "message": f"the worker ended by {how}", "log_tail": log_tail(attempt)}
    with contextlib.suppress(OSError):
        attempt.mkdir(parents=True, exist_ok=True)
        if not (attempt / "job.json").is_file():  # `status` reads what was asked from it
            spec = worker.run.spec
            write_json(
                attempt / "job.json",
                {"label": worker.run.label, "phases": spec.phases, "spec": spec.to_dict()},
            )
        write_json(attempt / "failure.json", failure)
    return {"event": "failed", **failure}


@dataclass
class _Interrupts:
    count: int = 0


@contextlib.contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Count Ctrl-C (and SIGTERM, SIGHUP) instead of being torn down by them. What is ignored (nohup) stays so."""
    seen = _Interrupts()

    def note(signum: int, frame: Any) -> None:
        seen.count += 1

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [name for name in names if signal.getsignal(name) is not signal.SIG_IGN]
    before = {name: signal.signal(name, note) for name in heard}
    try:
        yield seen
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
