"""Loop of a sweep: starts missing runs, follows their events, and records how each ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..base.console_log import LOGGER
from ..base.files import write_json
from ..base.plugin_files import user_paths
from ..errors import UserError
from ..store.attempt_folders import log_tail
from ..store.locks_and_leases import MARKER, FolderLock, Lease
from ..store.store import Store
from ..task import find_env
from .plan import PlannedRun
from .runner_interface import NOTE, OUT_OF_MEMORY, PREPARING, Event, Job, RunEnd, Runner, RunProgress, RunWait
from .supervision import Limits, RetryPolicy, Watchdog, note_interrupts

PATIENCE = 0.2  # seconds until the next check of interrupts
VISIBLE = 10.0  # seconds within which a finished run must be readable


class SweepListener(Protocol):
    """Receives a sweep's progress (a live display, plain lines, or nothing)."""

    def on_start(self, run: PlannedRun) -> None: ...
    def on_preparing(self, run: PlannedRun, step: str) -> None: ...
    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None: ...
    def on_stop(self) -> None: ...


class CallbackListener:
    """Listener of a sweep that calls a function with each event as plain data."""

    def __init__(self, progress: Callable[[dict[str, Any]], None] | None) -> None:
        self.progress = progress or (lambda event: None)

    def on_start(self, run: PlannedRun) -> None:
        self._call(run, {"event": "started"})

    def on_preparing(self, run: PlannedRun, step: str) -> None:
        self._call(run, {"event": "preparing", "what": step})

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self._call(run, {"event": "phase", **progress})

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        interrupted = event["event"] == "interrupted"
        self._call(run, {**event, "event": "stopped"} if interrupted else event)

    def on_stop(self) -> None:
        """Do nothing: each run reports its own stop."""

    def _call(self, run: PlannedRun, event: Mapping[str, Any]) -> None:
        spec = run.spec
        cell = {"id": run.run_id, "algorithm": run.label, "env": spec.env, "capacity": spec.capacity}
        self.progress({**cell, "seed": spec.seed, **event})


@dataclass
class Outcome:
    """Result of a sweep, run by run."""

    done: list[str] = field(default_factory=list)
    """Ids of runs that this sweep finished."""

    skipped: list[str] = field(default_factory=list)
    """Ids of runs that were stored before."""

    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Failures by id: {event, class, message, log_tail, ...}."""

    interrupted: bool = False


def sweep(
    runs: Sequence[PlannedRun],
    store: Store,
    runner: Runner,
    listener: SweepListener,
    limits: Limits = Limits(),  # noqa: B008 (it is frozen)
    done: Collection[str] | None = None,
    restart: bool = False,
) -> Outcome:
    """Run every run that is not stored yet. A run that dies affects no other.

    done: ids of stored runs; looked up if not given.
    restart: start a run over if none of its checkpoints fits, and keep them; otherwise such a run is refused.
    Ctrl-C once: every run finishes its phase, writes a checkpoint and ends. Twice: all are killed at once.
    """
    families = [find_env(env)[1] for env in dict.fromkeys(run.spec.env for run in runs)]
    modules = list(dict.fromkeys(module for family in families for module in family.preload))
    with store.hold(runner.multi_machine) as hold, note_interrupts() as interrupts, _closing(runner, store, hold):
        runner.open(modules, store.root.resolve())
        loop = _SweepLoop(store, runner, listener, limits, restart, hold, interrupts)
        loop.find_pending(runs, done)
        outcome = loop.run()
    outcome.interrupted |= bool(interrupts)  # also while the last workers ended
    return outcome


@contextlib.contextmanager
def _closing(runner: Runner, store: Store, hold: Lease | FolderLock) -> Iterator[None]:
    """Close the runner at the end. A sweep that has lost its folder ends no job that another one may have adopted."""
    try:
        yield
    finally:
        if hold.lost and store.root.is_dir():
            runner.leave_jobs()
        runner.close()


@dataclass
class _SweepLoop:
    """Moves runs from `pending` to `active` to `outcome`."""

    store: Store
    runner: Runner
    listener: SweepListener
    limits: Limits
    restart: bool
    hold: Lease | FolderLock
    interrupts: list[int]
    outcome: Outcome = field(default_factory=Outcome)
    pending: list[PlannedRun] = field(default_factory=list)
    active: dict[str, PlannedRun] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)  # active runs in the runner's queue
    known_runs: set[str] = field(default_factory=set)  # runs that the listener knows

    def __post_init__(self) -> None:
        self.watchdog, self.retries = Watchdog(self.limits.stall), RetryPolicy(self.runner)

    def find_pending(self, runs: Sequence[PlannedRun], done: Collection[str] | None) -> None:
        """Separate stored runs from those to run; a damaged run is put aside and run again."""
        if done is None:
            done = {run.id for run in self.store.read_all(run.run_id for run in runs)}
        self.store.clear_attempts(done)
        for run in runs:
            if run.run_id in done:
                self.outcome.skipped.append(run.run_id)
            else:
                self.store.put_damaged_aside(run.run_id)
                self.pending.append(run)

    def run(self) -> Outcome:
        while self.pending or self.active:
            self._check_hold()
            self._handle_interrupts()
            self._start_pending()
            running = {run_id: run for run_id, run in self.active.items() if run_id not in self.waiting}
            for run_id in self.watchdog.find_stalls(running):
                self.runner.kill(run_id)
            for event in self.runner.poll(PATIENCE):
                self._handle(event)
        return self.outcome

    def _check_hold(self) -> None:
        """Raise `UserError` if the results folder is no longer this sweep's."""
        if self.hold.lost:
            out = self.store.root
            if not (out / MARKER).is_file():
                raise UserError(f"OUT={out} was moved or removed while the sweep ran; its runs were ended")
            raise UserError(f"another sweep has taken over OUT={out}; `staleharness status` shows what it does")

    def _handle_interrupts(self) -> None:
        if self.interrupts and not self.outcome.interrupted:
            self.outcome.interrupted = True
            self.pending.clear()
            self.listener.on_stop()
            for run_id in self.active:
                self.runner.ask_to_stop(run_id)
        if len(self.interrupts) > 1:
            for run_id in self.active:
                self.runner.kill(run_id)

    def _start_pending(self) -> None:
        while self.pending and not self.interrupts:
            if not self.runner.has_queue and not self.retries.has_room(self.active):
                return
            run = self.pending.pop(0)
            self.active[run.run_id] = run
            if self.runner.has_queue:  # the job may be requeued, each time with another holder
                self.waiting.add(run.run_id)
                self.runner.start(self._job(run))
            else:
                self._announce(run)  # first: a runner may have to load what its workers share
                share = self.retries.note_start(self.active, run.run_id)
                holder = self.store.next_holder(run.run_id) if self.runner.multi_machine else ""
                self.runner.start(self._job(run, holder, share))
            self.watchdog.note_progress(run.run_id)

    def _job(self, run: PlannedRun, holder: str = "", share: int = 1) -> Job:
        return Job(
            run.run_id,
            run.label,
            run.spec.to_dict(),
            root=str(self.store.root.resolve()),
            folder=os.getcwd(),
            plugins=os.pathsep.join(str(path.resolve()) for path in user_paths()),  # a worker has another directory
            checkpoint_seconds=self.limits.checkpoint,
            holder=holder,
            share=share,
            restart=self.restart,
        )

    def _announce(self, run: PlannedRun) -> None:
        if run.run_id not in self.known_runs:
            self.known_runs.add(run.run_id)
            self.listener.on_start(run)

    def _handle(self, event: Event) -> None:
        self.watchdog.note_progress(event.run_id)
        run = self.active[event.run_id]
        if isinstance(event, RunWait):
            self.waiting.add(run.run_id)
            return
        self.waiting.discard(run.run_id)
        if isinstance(event, RunEnd):
            self._check_hold()  # before anything is written for the run
            del self.active[run.run_id]
            self._finish(run, self.watchdog.explain(event))
            return
        self._announce(run)
        if not isinstance(event, RunProgress):
            return
        if PREPARING in event.content:
            self.listener.on_preparing(run, event.content[PREPARING])
        elif NOTE in event.content:
            LOGGER.warning("run %s (%s): %s", run.run_id, run.label, event.content[NOTE])
        else:
            self.listener.on_phase(run, event.content)

    def _finish(self, run: PlannedRun, end: RunEnd) -> None:
        """Retry the run, or record how it ended and tell the listener."""
        reports_done = end.message is not None and end.message["event"] == "done"
        may_retry = not self.outcome.interrupted and not self.runner.has_queue
        if may_retry and not reports_done and not self.store.is_done(run.run_id) and self.retries.should_retry(end):
            self.pending.insert(0, run)
            return
        if self.runner.multi_machine and reports_done:
            self._await_visible(run)
        stopped_silently = self.outcome.interrupted and end.message is None
        event = self._record(run, end, stopped_silently or len(self.interrupts) > 1)
        if event["event"] != "interrupted" or run.run_id in self.known_runs:  # otherwise it never left the queue
            self._announce(run)
            self.listener.on_end(run, event)

    def _await_visible(self, run: PlannedRun) -> None:
        """Wait for a published run: a network file system may show it some seconds later."""
        deadline = time.monotonic() + VISIBLE
        while not self.store.is_done(run.run_id) and time.monotonic() <= deadline:
            time.sleep(PATIENCE)

    def _record(self, run: PlannedRun, end: RunEnd, is_stopped: bool) -> dict[str, Any]:
        """Record how a run ended; return {"event": "done" | "failed" | "interrupted", ...}."""
        message = end.message
        if self.store.is_done(run.run_id):  # the results folder decides, even if the last message was lost
            if message is not None and message["event"] == "failed":
                text = "run %s is stored, although its worker reported %s: %s"
                LOGGER.warning(text, run.run_id, message["class"], message["message"])
            self.store.clear_attempts([run.run_id])
            self.outcome.done.append(run.run_id)
            return {"event": "done"}
        if is_stopped or (message is not None and message["event"] == "interrupted"):
            return message or {"event": "interrupted"}
        if message is None or message["event"] != "failed":
            message = self._silent_failure(run, end)
        self.outcome.failed[run.run_id] = message
        return message

    def _silent_failure(self, run: PlannedRun, end: RunEnd) -> dict[str, Any]:
        """Write the failure of a worker that ended without a message (killed, out of memory, a crash in C)."""
        attempt = self.store.latest_attempt(run.run_id)
        name = "OOM" if end.cause.startswith(OUT_OF_MEMORY) else end.failure_class
        message = f"the worker {'exited on its own with' if name == 'Exited' else 'was ended by'} {end.cause}"
        failure = {"class": name, "message": message, "log_tail": log_tail(attempt)}
        with contextlib.suppress(OSError):
            self.store.open_attempt(run.run_id, attempt)
            if not (attempt / "job.json").is_file():  # `status` reads label and spec from it
                job = {"label": run.label, "phases": run.spec.phases, "spec": run.spec.to_dict()}
                write_json(attempt / "job.json", job)
            write_json(attempt / "failure.json", failure)
        return {"event": "failed", **failure}
