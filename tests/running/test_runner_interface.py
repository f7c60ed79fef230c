"""Interface between sweep and runner, with a runner that has no processes, pipes or forks."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from raising import raising

from staleharness.errors import Diverged, Interrupted, UserError
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import Event, Job, ResourceRequest, RunEnd, RunProgress
from staleharness.running.runners import make_runner
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.running.worker import execute
from staleharness.store.run_states import run_states
from staleharness.store.store import Store
from staleharness.study import sweep_request

Fault = Callable[[Job], None]


class InTurn:
    """A runner in this very process: at each call of `poll` it carries out one job, from where it was to its end.

    `fault` is called before a job and may raise: what it raises is how the job fails. A `Lost` job ends without a
    word; where `late`, after its result was published.
    """

    multi_machine = has_queue = False

    def __init__(self, capacity: int = 2, fault: Fault = lambda job: None) -> None:
        self.capacity = self.per_machine = capacity
        self.fault = fault
        self.waiting: dict[str, Job] = {}
        self.most = 0
        self.calls: list[str] = []

    def open(self, modules: Sequence[str], root: Path) -> None:
        self.calls.append("open")

    def start(self, job: Job) -> None:
        self.waiting[job.run_id] = job
        self.most = max(self.most, len(self.waiting))

    def poll(self, timeout: float) -> Iterator[Event]:
        if not self.waiting:
            return
        job = self.waiting[next(iter(self.waiting))]
        asked = [call.partition(" ")[2] for call in self.calls if call.startswith(("stop", "kill"))]
        heard: list[dict[str, Any]] = []
        word: dict[str, Any] | None = {"event": "done"}
        try:
            if f"kill {job.run_id}" in self.calls:
                raise Lost
            self.fault(job)
            execute(job, heard.append, lambda: job.run_id in asked)
        except Interrupted as stop:
            word = {"event": "interrupted", "message": str(stop)}
        except Lost as lost:
            if lost.late:
                execute(job, heard.append, lambda: False)
            word = None
        except (Diverged, OSError, MemoryError) as error:
            word = {"event": "failed", "class": type(error).__name__, "message": str(error), "log_tail": ""}
        yield from (RunProgress(job.run_id, content) for content in heard)
        del self.waiting[job.run_id]
        yield RunEnd(job.run_id, word, "loss of its node")

    def ask_to_stop(self, run_id: str) -> None:
        self.calls.append(f"stop {run_id}")

    def kill(self, run_id: str) -> None:
        self.calls.append(f"kill {run_id}")

    def close(self) -> None:
        self.calls.append("close")


class Lost(Exception):
    def __init__(self, late: bool = False) -> None:
        self.late = late


class Notes:
    """Writes down what a sweep says, and does as it is told when a run has started."""

    def __init__(self, at_start: Callable[[PlannedRun], None] = lambda run: None) -> None:
        self.at_start = at_start
        self.phases: dict[str, list[int]] = {}
        self.ends: dict[str, str] = {}
        self.stops = 0

    def on_start(self, run: PlannedRun) -> None:
        self.at_start(run)

    def on_preparing(self, run: PlannedRun, step: str) -> None: ...

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.phases.setdefault(run.run_id, []).append(progress["phase"])

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        self.ends[run.run_id] = event["event"]

    def on_stop(self) -> None:
        self.stops += 1


def interrupted_at(run_id: str, *signals: signal.Signals) -> Notes:
    """Notes of a sweep that gets these signals, by default one Ctrl-C, when this run has started."""

    def interrupt(run: PlannedRun) -> None:
        for number in (signals or [signal.SIGINT]) if run.run_id == run_id else ():
            os.kill(os.getpid(), number)

    return Notes(interrupt)


@pytest.fixture
def runs(tabular: Path) -> tuple[PlannedRun, ...]:
    """Four runs of five phases, each a few milliseconds."""
    return plan(sweep_request(env="random-mdp-0", k="2", algo="spo,ppo_clip", seeds="2", steps="640")).runs


def swept(
    root: Path, runs: tuple[PlannedRun, ...], runner: InTurn, notes: Notes | None = None
) -> tuple[Outcome, Store]:
    store = Store(root)
    store.open_for_writing()
    return sweep(runs, store, runner, notes or Notes()), store


def metrics(store: Store) -> dict[str, str]:
    return {run.id: run.record["metrics_sha256"] for run in store.read_all()}


def test_runs_go_to_the_runner_as_many_at_a_time_as_it_takes(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner, notes = InTurn(capacity=3), Notes()
    outcome, store = swept(tmp_path, runs, runner, notes)
    ids = [run.run_id for run in runs]
    assert outcome == Outcome(done=ids) and runner.most == 3
    assert set(metrics(store)) == set(ids)
    assert notes.phases == {run_id: [1, 2, 3, 4, 5] for run_id in ids}
    assert notes.ends == dict.fromkeys(ids, "done")
    assert runner.calls == ["open", "close"]


def test_failures_affect_no_other_run_and_run_again(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    failing, dying, *others = [run.run_id for run in runs]

    def fault(job: Job) -> None:
        if job.run_id == failing:
            raise Diverged("the loss is not finite")
        if job.run_id == dying:
            raise Lost

    outcome, store = swept(tmp_path, runs, InTurn(fault=fault))
    assert outcome.done == others and not outcome.interrupted
    assert {run_id: f["class"] for run_id, f in outcome.failed.items()} == {failing: "Diverged", dying: "Killed"}
    assert outcome.failed[dying]["message"] == "the worker was ended by loss of its node"
    written = store.failure(dying)
    assert written == {key: value for key, value in outcome.failed[dying].items() if key != "event"}
    counts = run_states(store)["counts"]
    assert (counts["done"], counts["failed"]) == (2, 1)  # who says that it failed writes that down itself

    again, _ = swept(tmp_path, runs, InTurn())
    assert again == Outcome(done=[failing, dying], skipped=others)
    assert store.failure(dying) is None


def test_a_result_counts_although_the_last_word_was_lost(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    fault = raising(Lost(late=True))
    outcome, store = swept(tmp_path, runs, InTurn(fault=fault))
    assert outcome == Outcome(done=[run.run_id for run in runs])
    assert not list((store.root / "attempts").iterdir())


def test_a_word_without_a_result_does_not_count(
    tmp_path: Path, runs: tuple[PlannedRun, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "execute", lambda job, tell, should_stop: None)
    outcome, _ = swept(tmp_path, runs, InTurn())
    assert set(outcome.failed) == {run.run_id for run in runs} and outcome.done == []


def test_an_interrupted_sweep_resumes_to_the_same_bits(
    tmp_path: Path, runs: tuple[PlannedRun, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "staleharness")
    _, straight = swept(tmp_path / "straight", runs, InTurn())
    first, second = runs[0].run_id, runs[1].run_id

    runner, notes = InTurn(), interrupted_at(second)
    outcome, store = swept(tmp_path / "stopped", runs, runner, notes)
    assert outcome == Outcome(done=[first], interrupted=True)
    assert runner.calls == ["open", f"stop {second}", "close"]
    assert notes.ends == {first: "done", second: "interrupted"} and notes.stops == 1
    assert list(store.attempt_dir(second).glob("checkpoint-*.pt"))

    again, _ = swept(tmp_path / "stopped", runs, InTurn())
    assert again.done == [run.run_id for run in runs[1:]] and again.skipped == [first]
    assert metrics(store) == metrics(straight)
    assert "resumed after phase 1 of 5" in caplog.text


def test_nothing_is_started_once_ctrl_c_was_heard(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner = InTurn(capacity=2)
    outcome, _ = swept(tmp_path, runs, runner, Notes(lambda run: os.kill(os.getpid(), signal.SIGINT)))
    assert outcome == Outcome(done=[runs[0].run_id], interrupted=True) and runner.most == 1


def test_a_run_that_ends_without_a_word_after_ctrl_c_is_no_failure(
    tmp_path: Path, runs: tuple[PlannedRun, ...]
) -> None:
    first, second = runs[0].run_id, runs[1].run_id

    def fault(job: Job) -> None:
        if job.run_id == second:
            raise Lost

    notes = interrupted_at(second)
    outcome, store = swept(tmp_path, runs, InTurn(fault=fault), notes)
    assert outcome == Outcome(done=[first], interrupted=True)
    assert notes.ends[second] == "interrupted" and store.failure(second) is None


def test_a_second_interrupt_ends_all_runs_without_failures(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    first, second = runs[0].run_id, runs[1].run_id

    runner, notes = InTurn(), interrupted_at(second, signal.SIGINT, signal.SIGINT)
    outcome, store = swept(tmp_path, runs, runner, notes)
    assert outcome == Outcome(done=[first], interrupted=True)
    assert notes.ends == {first: "done", second: "interrupted"}
    assert runner.calls == ["open", f"stop {second}", f"kill {second}", "close"]
    assert store.failure(second) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_twice_still_leaves_a_checkpoint(
    tmp_path: Path, runs: tuple[PlannedRun, ...], number: signal.Signals
) -> None:
    """make passes SIGTERM on to a sweep that has had it with everybody, as a shell does with SIGHUP."""
    second = runs[1].run_id
    runner, notes = InTurn(), interrupted_at(second, number, number)
    outcome, store = swept(tmp_path, runs, runner, notes)
    assert outcome.interrupted and runner.calls == ["open", f"stop {second}", "close"]
    assert list(store.attempt_dir(second).glob("checkpoint-*.pt"))


def test_a_broken_sweep_closes_its_runner_and_restores_ctrl_c(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner, before = InTurn(), signal.getsignal(signal.SIGINT)
    with pytest.raises(ConnectionError):
        swept(tmp_path, runs, runner, Notes(raising(ConnectionError("the terminal is gone"))))
    assert runner.calls[-1] == "close" and signal.getsignal(signal.SIGINT) is before
    outcome, _ = swept(tmp_path, runs[:1], InTurn())  # the folder's lock is free
    assert len(outcome.done) == 1


def test_a_runner_is_found_by_its_file() -> None:
    assert make_runner("local", ResourceRequest(3)).capacity == 3
    with pytest.raises(UserError, match=r"RUNNER='locl' is unknown; .*local"):
        make_runner("locl", ResourceRequest(1))
