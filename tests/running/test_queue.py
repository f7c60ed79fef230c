"""Sweeps with a runner that has a queue, and with a results folder that shows files late."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweeping import Silent

from staleharness.base.files import write_bytes
from staleharness.errors import UserError
from staleharness.running import sweep_event_loop
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import PREPARING, Event, Job, RunEnd, RunProgress, RunStart, RunWait
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.running.worker import execute
from staleharness.store.store import Store
from staleharness.study import sweep_request


class Queue:
    """Takes all jobs, lets each wait for some looks, then carries it out in this process."""

    multi_machine = has_queue = True
    capacity = per_machine = 1

    def __init__(self, waits: int = 3, stopped: bool = False) -> None:
        self.waits, self.stopped = waits, stopped
        self.jobs: dict[str, Job] = {}
        self.killed: list[str] = []

    def open(self, modules: Sequence[str], root: Path) -> None: ...
    def close(self) -> None: ...
    def ask_to_stop(self, run_id: str) -> None: ...

    def start(self, job: Job) -> None:
        self.jobs[job.run_id] = job

    def kill(self, run_id: str) -> None:
        self.killed.append(run_id)

    def poll(self, timeout: float) -> Iterator[Event]:
        self.waits -= 1
        if self.waits > 0 and not self.stopped:
            yield from (RunWait(run_id) for run_id in self.jobs)
            return
        run_id, job = self.jobs.popitem()
        if self.stopped:
            yield RunEnd(run_id, {"event": "interrupted"}, "")
            return
        yield RunStart(run_id)
        told: list[dict[str, Any]] = []
        execute(job, told.append, lambda: False)
        yield from (RunProgress(run_id, content) for content in told)
        yield RunEnd(run_id, {"event": "done"}, "")


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def on_start(self, run: PlannedRun) -> None:
        self.said.append(("started", run.run_id))

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        self.said.append((event["event"], run.run_id))


@pytest.fixture
def runs(tabular: Path) -> tuple[PlannedRun, ...]:
    return plan(sweep_request(env="random-mdp-0", k="2", algo="spo", seeds="3", steps="640")).runs


def swept(root: Path, runs: tuple[PlannedRun, ...], runner: Queue, notes: Notes, stall: float = 60) -> Outcome:
    store = Store(root)
    store.open_for_writing()
    return sweep(runs, store, runner, notes, Limits(stall=stall))  # type: ignore[arg-type]


def test_a_queue_gets_all_jobs_and_reports_real_starts(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner, notes = Queue(), Notes()
    outcome = swept(tmp_path, runs, runner, notes)
    order = [run.run_id for run in reversed(runs)]
    assert outcome.done == order
    assert notes.said == [(what, run_id) for run_id in order for what in ("started", "done")]


def test_waiting_in_the_queue_is_no_stall(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner = Queue(waits=300)
    assert len(swept(tmp_path, runs[:1], runner, Notes(), stall=0.0).done) == 1
    assert runner.killed == []


def test_messages_before_the_first_phase_prevent_a_stall(
    tmp_path: Path, runs: tuple[PlannedRun, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("staleharness.running.supervision.time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Prepares(Queue):
        """Its run tells of ten steps, ten seconds each, before its first phase."""

        steps = 10

        def poll(self, timeout: float) -> Iterator[Event]:
            clock[0] += 10.0
            self.steps -= 1
            if self.steps < 0:
                yield from super().poll(timeout)
            else:
                yield from (RunProgress(run_id, {PREPARING: f"{self.steps} left"}) for run_id in self.jobs)

    class Hears(Notes):
        def on_preparing(self, run: PlannedRun, step: str) -> None:
            self.said.append((step, run.run_id))

    runner, notes = Prepares(waits=1), Hears()
    assert len(swept(tmp_path, runs[:1], runner, notes, stall=15.0).done) == 1
    assert runner.killed == []
    told = ["started", *(f"{left} left" for left in range(9, -1, -1)), "done"]
    assert notes.said == [(what, runs[0].run_id) for what in told]


def test_of_a_run_that_has_only_waited_nothing_is_said(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    notes = Notes()
    outcome = swept(tmp_path, runs, Queue(stopped=True), notes)
    assert notes.said == [] and not outcome.done and not outcome.failed


def test_a_stop_while_the_last_worker_ends_is_not_lost(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    """The caller may have more sweeps to do."""

    class Interrupted(Queue):
        def close(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = swept(tmp_path, runs[:1], Interrupted(waits=1), Notes())
    assert outcome.interrupted and len(outcome.done) == 1


@pytest.mark.parametrize("what", ["taken over", "deleted"])
def test_jobs_are_left_to_the_sweep_that_has_taken_over(
    tmp_path: Path, runs: tuple[PlannedRun, ...], what: str
) -> None:
    """A folder that is gone has no other sweep: its jobs end."""
    order: list[str] = []

    class Takeover(Queue):
        def poll(self, timeout: float) -> Iterator[Event]:
            if what == "deleted":
                (tmp_path / "out").rename(tmp_path / "trash")
            else:
                write_bytes(tmp_path / "out/.lease", b'{"token": "of another"}')
            return iter(())

        def leave_jobs(self) -> None:
            order.append("leave")

        def close(self) -> None:
            order.append("close")

    said = "was moved or removed while the sweep ran" if what == "deleted" else "another sweep has taken over"
    with pytest.raises(UserError, match=said):
        swept(tmp_path / "out", runs, Takeover(), Notes())
    assert order == (["close"] if what == "deleted" else ["leave", "close"])


@pytest.mark.parametrize("looks", [1, 20, 60])
def test_a_finished_run_that_is_seen_late_is_waited_for(
    tmp_path: Path, runs: tuple[PlannedRun, ...], monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Seen after so many looks, a fifth of a second each; those of ten seconds are enough."""
    there, hidden = tmp_path / "runs" / runs[0].run_id, tmp_path / "hidden"
    clock = [0.0]

    class Late(Queue):
        def poll(self, timeout: float) -> Iterator[Event]:
            for event in super().poll(timeout):
                if isinstance(event, RunEnd):
                    there.rename(hidden)
                yield event

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > (looks - 0.5) * seconds and hidden.exists():
            hidden.rename(there)

    monkeypatch.setattr(sweep_event_loop, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    outcome = swept(tmp_path, runs[:1], Late(), Notes())
    assert outcome.done == [runs[0].run_id] * (looks < 51) and len(outcome.failed) == (looks > 51)
