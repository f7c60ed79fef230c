"""Running what is missing: which runs are, what starts next, and how each ended, by the results folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..base.files import write_json
from ..base.logger import LOGGER
from ..base.plugins import user_paths
from ..errors import UserError
from ..store.store import Store, log_tail
from ..task import find_env
from .again import Again
from .interrupts import counted
from .job import Job
from .limits import Limits
from .plan import PlannedRun
from .runner import NOTE, OUT_OF_MEMORY, PREPARING, Ended, Progress, Queued, Runner, make_runner
from .watch import STALLED, Watch

PATIENCE = 0.2  # seconds until the next look at what the user wants
VISIBLE = 10.0  # seconds until a finished run must be there to read


class Listener(Protocol):
    """Hears of a sweep's progress (a live display, plain lines, or nothing)."""

    def started(self, run: PlannedRun) -> None: ...
    def preparing(self, run: PlannedRun, what: str) -> None: ...
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


def sweep(
    runs: tuple[PlannedRun, ...],
    store: Store,
    runner: Runner | int,
    listener: Listener,
    limits: Limits = Limits(),  # noqa: B008 (it is frozen)
    done: Collection[str] | None = None,
    restart: bool = False,
) -> Outcome:
    """Run every run that is not stored yet. One that dies takes nothing but itself along.

    done: ids of runs that are known to be stored; where it is not given, that is looked up.
    restart: start over, beside them, where no checkpoint of a run fits; such a run is refused otherwise.
    A number instead of a `runner`: that many processes at a time on this machine.
    Ctrl-C once: every run finishes its phase, checkpoints and ends. Twice: all are ended at once.
    """
    runner = make_runner("local", runner) if isinstance(runner, int) else runner
    families = [find_env(env)[1] for env in dict.fromkeys(run.spec.env for run in runs)]
    modules = list(dict.fromkeys(module for family in families for module in family.preload))
    active: dict[str, PlannedRun] = {}
    queued: set[str] = set()  # those of them that wait for their turn where the runner has put them
    begun: set[str] = set()
    watch, again = Watch(limits.stall), Again(runner)

    def begin(run: PlannedRun) -> None:
        if run.run_id not in begun:
            begun.add(run.run_id)
            listener.started(run)

    with store.hold(runner.shared) as lease, counted() as interrupts, contextlib.closing(runner):
        runner.open(modules, store.root.resolve())
        outcome, waiting = _missing(runs, store, done)
        while waiting or active:
            if lease is not None and lease.lost:
                raise UserError(
                    f"another sweep has taken over OUT={store.root}; `staleharness status` shows what it does"
                )
            if interrupts.count and not outcome.interrupted:
                outcome.interrupted = True
                waiting.clear()
                listener.stopping()
                for run_id in active:
                    runner.ask_to_stop(run_id)
            if interrupts.count > 1:
                for run_id in active:
                    runner.kill(run_id)
            while waiting and (runner.queues or again.room(active)) and not interrupts.count:
                run = waiting.pop(0)
                active[run.run_id] = run
                if runner.queues:  # there it may have several lives, each of which is another holder
                    queued.add(run.run_id)
                    runner.start(_job(run, store, limits, restart))
                else:
                    begin(run)  # first: a runner may have to load what its workers share
                    share = again.started(active, run.run_id)
                    holder = store.next_holder(run.run_id) if runner.shared else ""
                    runner.start(_job(run, store, limits, restart, holder, share))
                watch.heard(run.run_id)
            for run_id in watch.overdue({name: run for name, run in active.items() if name not in queued}):
                runner.kill(run_id)
            for event in runner.poll(PATIENCE):
                watch.heard(event.run_id)
                run = active[event.run_id]
                if isinstance(event, Queued):
                    queued.add(run.run_id)
                    continue
                queued.discard(run.run_id)
                if not isinstance(event, Ended):
                    begin(run)
                    if isinstance(event, Progress) and PREPARING in event.content:
                        listener.preparing(run, event.content[PREPARING])
                    elif isinstance(event, Progress) and NOTE in event.content:
                        LOGGER.warning("run %s (%s): %s", run.run_id, run.label, event.content[NOTE])
                    elif isinstance(event, Progress):
                        listener.phase(run, event.content)
                    continue
                del active[run.run_id]
                ended = watch.why(event)
                more = not outcome.interrupted and not runner.queues
                if more and _unfinished(run, ended, store) and again.gets(ended):
                    waiting.insert(0, run)
                    continue
                if runner.shared:
                    _await(run, ended, store)
                silent = outcome.interrupted and ended.word is None
                how = _settle(run, ended, store, outcome, stopped=silent or interrupts.count > 1)
                if how["event"] != "interrupted" or run.run_id in begun:  # or else it has waited to the last
                    begin(run)
                    listener.ended(run, how)
    return outcome


def _missing(
    runs: tuple[PlannedRun, ...], store: Store, done: Collection[str] | None
) -> tuple[Outcome, list[PlannedRun]]:
    """The outcome so far, and the runs that are to be made; what is in their place and does not count is put aside."""
    outcome, waiting = Outcome(), []
    done = {run.id for run in store.read_all(run.run_id for run in runs)} if done is None else done
    store.clear_attempts(done)
    for run in runs:
        if run.run_id in done:
            outcome.skipped.append(run.run_id)
        else:
            store.put_damaged_aside(run.run_id)
            waiting.append(run)
    return outcome, waiting


def _await(run: PlannedRun, ended: Ended, store: Store) -> None:
    """A file system that machines share may show a run some seconds after it was published."""
    deadline = time.monotonic() + VISIBLE
    while (ended.word or {}).get("event") == "done" and not store.is_done(run.run_id):
        if time.monotonic() > deadline:
            return
        time.sleep(PATIENCE)


def _unfinished(run: PlannedRun, ended: Ended, store: Store) -> bool:
    return (ended.word or {}).get("event") != "done" and not store.is_done(run.run_id)


def _job(run: PlannedRun, store: Store, limits: Limits, restart: bool, holder: str = "", share: int = 1) -> Job:
    plugins = os.pathsep.join(str(path.resolve()) for path in user_paths())  # a worker stands elsewhere
    root = str(store.root.resolve())
    spec = run.spec.to_dict()
    return Job(run.run_id, run.label, spec, root, os.getcwd(), plugins, limits.checkpoint, holder, share, restart)


def _settle(run: PlannedRun, ended: Ended, store: Store, outcome: Outcome, stopped: bool) -> dict[str, Any]:
    """Note how a run ended, and say so: {"event": "done" | "failed" | "interrupted", ...}."""
    word = ended.word
    if store.is_done(run.run_id):  # the file system is the truth, also when the last word was lost
        if word is not None and word["event"] == "failed":
            LOGGER.warning("run %s is stored, and yet: %s: %s", run.run_id, word["class"], word["message"])
        store.clear_attempts([run.run_id])
        outcome.done.append(run.run_id)
        return {"event": "done"}
    if stopped or (word is not None and word["event"] == "interrupted"):
        return word or {"event": "interrupted"}
    if word is None or word["event"] != "failed":
        word = _silent_death(run, ended, store)
    outcome.failed[run.run_id] = word
    return word


def _silent_death(run: PlannedRun, ended: Ended, store: Store) -> dict[str, Any]:
    """The failure of a worker that ended without a word (killed, out of memory, a crash in C)."""
    attempt = store.latest_attempt(run.run_id)
    classes = {STALLED: "Stalled", OUT_OF_MEMORY: "OOM"}
    kind = next((kind for said, kind in classes.items() if ended.how.startswith(said)), ended.kind)
    failure = {"class": kind, "message": f"the worker ended by {ended.how}", "log_tail": log_tail(attempt)}
    with contextlib.suppress(OSError):
        store.open_attempt(run.run_id, attempt)
        if not (attempt / "job.json").is_file():  # `status` reads what was asked from it
            asked = {"label": run.label, "phases": run.spec.phases, "spec": run.spec.to_dict()}
            write_json(attempt / "job.json", asked)
        write_json(attempt / "failure.json", failure)
    return {"event": "failed", **failure}
