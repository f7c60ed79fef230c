"""Runs that a sweep retries by itself, and their share of a machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_plugins import loaded_plugins
from places import HELPERS
from raising import raising
from sweeping import Silent
from test_runner_interface import InTurn, Lost, Notes, metrics, swept

from staleharness.running import supervision
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import OUT_OF_MEMORY, Event, Job, RunEnd
from staleharness.running.runners import local
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request


@pytest.fixture
def runs(tabular: Path) -> tuple[PlannedRun, ...]:
    """Four runs of five phases, each a few milliseconds."""
    return plan(sweep_request(env="random-mdp-0", k="2", algo="spo,ppo_clip", seeds="2", steps="640")).runs


class OtherMachines(InTurn):
    """The same, with workers that share the folder with others, and are lost with their machines."""

    multi_machine = True

    def poll(self, timeout: float) -> Iterator[Event]:
        for event in super().poll(timeout):
            lost = isinstance(event, RunEnd) and event.message is None
            yield RunEnd(event.run_id, None, "loss of its machine", lost=True) if lost else event


class Greedy(InTurn):
    """The same, where runs have too little memory unless they have the room of `needs`."""

    def __init__(self, capacity: int, needs: int, how: str = "") -> None:
        super().__init__(capacity)
        self.needs, self.how = needs, how
        self.shares: list[int] = []

    def poll(self, timeout: float) -> Iterator[Event]:
        job = next(iter(self.waiting.values()))
        self.shares.append(job.share)
        if job.share >= self.needs:
            yield from super().poll(timeout)
        else:
            del self.waiting[job.run_id]
            word = None if self.how else {"event": "failed", "class": "OOM", "message": "full", "log_tail": ""}
            yield RunEnd(job.run_id, word, self.how)


def test_a_lost_run_is_started_again_and_goes_on_to_the_same_bits(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    _, straight = swept(tmp_path / "straight", runs, InTurn())
    holders: list[str] = []

    def fault(job: Job) -> None:
        holders.append(job.holder)
        if len(holders) in (1, 2, 4):
            raise Lost

    notes = Notes()
    outcome, store = swept(tmp_path / "out", runs, OtherMachines(fault=fault), notes)
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and not outcome.failed
    assert metrics(store) == metrics(straight) and len(holders) == len(set(holders)) == len(runs) + 3
    assert list((tmp_path / "out" / "attempts").iterdir()) == []


def test_a_finished_run_on_a_lost_machine_is_not_repeated(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    fault = raising(Lost(late=True))
    runner = OtherMachines(fault=fault)
    outcome, _ = swept(tmp_path / "out", runs, runner)
    assert outcome.done == [run.run_id for run in runs]


def test_a_run_that_its_machines_do_not_bear_fails(
    tmp_path: Path, runs: tuple[PlannedRun, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []

    def fault(job: Job) -> None:
        starts.append(job.run_id)
        if job.run_id == runs[0].run_id:
            raise Lost

    outcome, store = swept(tmp_path / "out", runs, OtherMachines(fault=fault))
    assert starts.count(runs[0].run_id) == 1 + supervision.MAX_LOSSES
    assert list(outcome.failed) == [runs[0].run_id] and len(outcome.done) == len(runs) - 1
    assert store.failure(runs[0].run_id) is not None

    clock = iter(range(0, 10**9, int(supervision.LOSS_WINDOW)))  # one in ten minutes is no flapping
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    patient = supervision.RetryPolicy(InTurn())
    lost = RunEnd(runs[0].run_id, None, "loss of its machine", lost=True)
    assert all(patient.should_retry(lost) for _ in range(20))


@pytest.mark.parametrize("how", ["", f"{OUT_OF_MEMORY}: the kernel killed it"], ids=["told", "killed"])
@pytest.mark.parametrize(("needs", "shares"), [(1, [1] * 4), (2, [1, 2]), (4, [1, 2, 4])])
def test_after_a_run_is_out_of_memory_fewer_run_at_a_time(
    tmp_path: Path, runs: tuple[PlannedRun, ...], needs: int, shares: list[int], how: str
) -> None:
    runner = Greedy(4, needs, how)
    outcome, store = swept(tmp_path, runs, runner)
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and not outcome.failed
    assert list(dict.fromkeys(runner.shares)) == list(dict.fromkeys(shares))
    assert all(store.failure(run.run_id) is None for run in runs)


def test_who_is_out_of_memory_alone_fails(tmp_path: Path, runs: tuple[PlannedRun, ...]) -> None:
    runner = Greedy(4, needs=5, how=f"{OUT_OF_MEMORY}: the kernel killed it")
    outcome, store = swept(tmp_path, runs[:2], runner)
    assert {failure["class"] for failure in outcome.failed.values()} == {"OOM"} and len(outcome.failed) == 2
    assert max(runner.shares) <= 4 and store.failure(runs[0].run_id) is not None
    alone = Greedy(4, needs=5)
    outcome, _ = swept(tmp_path / "alone", runs[:1], alone)
    assert list(outcome.failed) == [runs[0].run_id] and alone.shares == [1]  # nobody was beside it


def test_other_failures_are_for_the_next_call(runs: tuple[PlannedRun, ...]) -> None:
    tries = supervision.RetryPolicy(InTurn())
    diverged = {"event": "failed", "class": "Diverged", "message": "", "log_tail": ""}
    for ended in (RunEnd("a", None, "signal SIGKILL"), RunEnd("a", diverged, ""), RunEnd("a", {"event": "done"}, "")):
        assert not tries.should_retry(ended)


# A memory that holds one run. Whoever has it keeps it until another run was refused: REFUSED, a named pipe that the
# test holds open, can be read from then on, as nobody empties it.
MEMORY = """
import os, select, sys
from pathlib import Path

sys.path.append({helpers!r})
from staleharness.task import ENVS
from toy_kind import Toy, ToySimulation

TAKEN, REFUSED = Path({taken!r}), os.open({refused!r}, os.O_RDWR)


@ENVS.register("hungry")
class Hungry(Toy):
    ids = {{"hungry": "needs a memory of its own"}}

    @classmethod
    def simulation(cls, spec, folder):
        return HungrySimulation(spec, cls())


class HungrySimulation(ToySimulation):
    def collect(self, phase):
        try:
            os.mkdir(TAKEN)
        except FileExistsError:
            os.write(REFUSED, b"x")
            raise MemoryError("the memory is somebody else's") from None
        try:
            assert select.select([REFUSED], [], [], 300.0)[0], "no other run was started"
            return super().collect(phase)
        finally:
            TAKEN.rmdir()
"""


@pytest.fixture
def refuse(tmp_path: Path) -> Iterator[Path]:
    """A named pipe that stays open, with whatever is written to it."""
    path = tmp_path / "refused"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    yield path
    os.close(pipe)


def test_workers_out_of_memory_beside_each_other_all_finish(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refuse: Path
) -> None:
    plugin = tmp_path / "hungry.py"
    taken = str(tmp_path / "taken")
    plugin.write_text(MEMORY.format(helpers=str(HELPERS), taken=taken, refused=str(refuse)))
    store = Store(tmp_path / "out")
    store.open_for_writing()
    with loaded_plugins(plugin):
        runs = plan(sweep_request(env="hungry", k="2", algo="spo", seeds="3")).runs
        outcome = sweep(runs, store, local.LocalPool(2), Silent(), Limits(checkpoint=0.01))  # type: ignore[arg-type]
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and not outcome.failed
    assert "ran out of memory; it is started again, and from now on fewer run at a time (1 instead of 2)" in caplog.text


def test_the_kernel_s_word_makes_a_kill_one_for_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = [3]
    monkeypatch.setattr(local, "memory_kills", lambda: kills[0])
    pool = local.LocalPool(1)
    assert pool._cause(-9) == "signal SIGKILL" and pool._cause(1) == "exit code 1"
    kills[0] = 4
    assert pool._cause(-9).startswith(OUT_OF_MEMORY) and pool._cause(-9) == "signal SIGKILL"
