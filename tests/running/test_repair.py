"""Repair of unfinished runs: the next call gives the result of an undisturbed run."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from crash import EVERY, ProcessDeath, every_crash
from raising import raising
from tabular_runs import PHASES, Result, carry_out, job_of, result
from tabular_runs import job as job
from tabular_runs import once as once
from tabular_runs import straight as straight

from staleharness.control import evaluation
from staleharness.control import simulation as control_simulation
from staleharness.errors import Interrupted, UserError
from staleharness.running import worker
from staleharness.running.plan import plan
from staleharness.running.runner_interface import Job
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.training import checkpoint
from staleharness.training.loop import Simulation

Act = Callable[[Path], object]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def a_digit(attempt: Path) -> None:
    """Change a digit of the learning rate in the first phase: still JSON, still a number."""
    log = attempt / "metrics.jsonl"
    flip(log, log.read_bytes().index(b"0.05") + 3)


def another_seed(attempt: Path) -> None:
    other = job_of(attempt.parents[1], seed=1)
    carry_out(other, stop_after=3)
    there = Store(other.root).attempt_dir(other.run_id)
    for path in (*attempt.glob("checkpoint-*"), *attempt.glob("*.jsonl")):
        path.unlink()
    for path in (*there.glob("checkpoint-*"), *there.glob("*.jsonl")):
        shutil.copy(path, attempt)


def for_each(pattern: str, act: Act) -> Act:
    return lambda attempt: [act(path) for path in sorted(attempt.glob(pattern))]


def refit(path: Path, **changes: Any) -> None:
    """Change what a checkpoint says; its digest is right again."""
    checkpoint.save(path.parent, checkpoint.phase_of(path), checkpoint.load(path) | changes)


def forge(path: Path, **changes: Any) -> None:
    """Change what it says of the simulation."""
    refit(path, simulation=checkpoint.load(path)["simulation"] | changes)


# Checkpoints stay intact, and none of them fits any more.
MISFIT: dict[str, Act] = {
    "a flipped digit in a log": a_digit,
    "broken JSON in a log": lambda a: flip(a / "metrics.jsonl", 0),
    "a flipped byte in the other log": lambda a: flip(a / "timing.jsonl", 5),
    "half a log": lambda a: (a / "metrics.jsonl").write_bytes((a / "metrics.jsonl").read_bytes()[:200]),
    "no log": lambda a: (a / "metrics.jsonl").unlink(),
    "checkpoints of another seed": another_seed,
    "checkpoints of other instructions": for_each("checkpoint-*", lambda p: refit(p, fingerprint='{"MKL_CBWR": "x"}')),
    "a phase beyond the end": for_each("checkpoint-*", lambda p: forge(p, phase=10**9)),
    "a phase that is not its own": for_each("checkpoint-*", lambda p: forge(p, phase=1)),
    "no learner": for_each("checkpoint-*", lambda p: forge(p, learner=None)),
}

DAMAGE: dict[str, Act] = {
    "a log that grew": lambda a: (a / "metrics.jsonl").write_bytes((a / "metrics.jsonl").read_bytes() + b"{torn"),
    "a folder for a log": lambda a: ((a / "metrics.jsonl").unlink(), (a / "metrics.jsonl").mkdir()),
    "checkpoints cut short": for_each("checkpoint-*", lambda p: p.write_bytes(p.read_bytes()[:100])),
    "no checkpoint": for_each("checkpoint-*", Path.unlink),
    "a folder for a checkpoint": lambda a: (a / "checkpoint-00000009.pt").mkdir(),
    "a broken failure": lambda a: (a / "failure.json").write_text("{"),
    "a manifest of nothing": lambda a: (a / "manifest.json").write_text("{}"),
    "a record that is another's": lambda a: (a / "run.json").write_text('{"id": "0123456789ab"}'),
    "torn files": lambda a: [(a / f".{name}.abcdefgh").write_text("torn") for name in ("job.json", "run.json")],
    "nothing": lambda a: shutil.rmtree(a),
    "a file": lambda a: (shutil.rmtree(a), a.write_text("mine")),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_an_attempt_that_was_damaged_comes_to_the_same_result(job: Job, straight: Result, how: str) -> None:
    carry_out(job, stop_after=3)
    attempt = Store(job.root).attempt_dir(job.run_id)
    DAMAGE[how](attempt)
    Store(job.root).open_attempt(job.run_id)  # as a worker does
    assert carry_out(job)[-1] == PHASES
    assert result(job) == straight and not attempt.exists()


def contents(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.rglob("checkpoint-*")}


@pytest.mark.parametrize("how", MISFIT)
@pytest.mark.long
def test_unusable_checkpoints_stay_until_the_run_is_finished(job: Job, straight: Result, how: str) -> None:
    carry_out(job, stop_after=3)
    attempt = Store(job.root).attempt_dir(job.run_id)
    MISFIT[how](attempt)
    there = contents(attempt)
    assert len(there) == 2
    for _ in range(2):
        with pytest.raises(UserError, match="nothing was deleted"):
            carry_out(job)
        assert contents(attempt) == there
    carry_out(replace(job, restart=True), stop_after=2)
    assert contents(attempt) > there
    assert carry_out(job) == [3, 4, 5]  # which fits, so it need not be told again
    assert result(job) == straight and not attempt.exists()
    assert sorted(path.name for path in Store(job.root).run_dir(job.run_id).iterdir()) == sorted(
        ["job.json", "manifest.json", "metrics.parquet", "run.json", "timing.parquet"]
    )


@pytest.mark.parametrize("change", [{"phase": 79}, {"learner": None}, {"trained": "{"}])
def test_a_forged_checkpoint_stays_and_the_one_before_is_used(
    job: Job, straight: Result, change: dict[str, Any]
) -> None:
    carry_out(job, stop_after=3)
    attempt = Store(job.root).attempt_dir(job.run_id)
    newest = checkpoint.newest_first(attempt)[0]
    forge(newest, **change)
    lines: list[str] = []
    worker.execute(job, lambda message: lines.extend([message["note"]] if "note" in message else []), lambda: False)
    assert result(job) == straight
    (line,) = lines
    assert newest.name in line and "resumes from phase 2" in line and "set-aside-" in line


def test_each_machine_goes_on_with_its_own_checkpoints(
    job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One got to phase 3; another was told to start over, and was stopped after two; then the first has it again."""
    carry_out(job, stop_after=3)
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "COMPATIBLE")
        with pytest.raises(UserError, match=r"MKL_CBWR: None -> COMPATIBLE.*--restart"):
            carry_out(job)
        assert carry_out(replace(job, restart=True), stop_after=2) == [1, 2]
        assert carry_out(job, stop_after=3) == [3]
    there = contents(Path(job.root))
    assert carry_out(job, stop_after=4) == [4]
    assert contents(Path(job.root)) - there and len(there - contents(Path(job.root))) <= 1  # by a newer one
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "COMPATIBLE")
        assert carry_out(job, stop_after=4) == [4]
    assert carry_out(job) == [5] and result(job) == straight


def test_a_resume_that_lacks_memory_deletes_nothing(
    job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out(job, stop_after=3)
    there = contents(Path(job.root))
    with monkeypatch.context() as patch:
        for place in (torch, "load"), (Simulation, "load_state_dict"):
            patch.setattr(*place, raising(RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")))
            for restart in (False, True):
                with pytest.raises(RuntimeError, match="allocate memory"):
                    carry_out(replace(job, restart=restart))
            patch.undo()
    assert contents(Path(job.root)) == there
    assert carry_out(job) == [4, 5] and result(job) == straight


def test_a_log_that_changes_while_a_run_goes_on_is_not_published(job: Job, straight: Result) -> None:
    attempt = Store(job.root).attempt_dir(job.run_id)
    with pytest.raises(RuntimeError, match="no longer holds what the run wrote to it"):
        worker.execute(job, lambda message: a_digit(attempt) if message["phase"] == 4 else None, lambda: False)
    assert not Store(job.root).is_done(job.run_id)
    with pytest.raises(UserError, match=r"needs lines that|was changed"):
        carry_out(job)
    assert carry_out(replace(job, restart=True)) == [1, 2, 3, 4, 5] and result(job) == straight


def test_a_finished_attempt_is_published_and_not_trained(
    job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(ProcessDeath):
        patch.setattr(Store, "publish", lambda self, run_id: seal_and_die(self, run_id))
        carry_out(job)
    monkeypatch.setattr(worker, "simulation_of", lambda *given: pytest.fail("it is simulated"))
    assert carry_out(replace(job, label="as another sweep calls it")) == []
    assert result(job) == straight


def seal_and_die(store: Store, run_id: str) -> None:
    from staleharness.store.stored_run import write_manifest

    write_manifest(store.attempt_dir(run_id))
    raise ProcessDeath


def test_a_damaged_run_is_put_aside_when_it_runs_again(job: Job, straight: Result) -> None:
    carry_out(job)
    place = Store(job.root).run_dir(job.run_id)
    (place / "run.json").unlink()
    assert carry_out(job) == [1, 2, 3, 4, 5] and result(job) == straight
    assert (Path(job.root) / "damaged" / job.run_id / "metrics.parquet").is_file()


@pytest.mark.parametrize("where", ["evaluate", "conclude"])
def test_a_run_killed_after_its_last_phase_does_not_train_it_again(
    job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    die = raising(ProcessDeath)
    carry_out(job, stop_after=4)
    with monkeypatch.context() as patch, pytest.raises(ProcessDeath):
        kind = type(simulation(job))
        patch.setattr(*((kind, "evaluate", die) if where == "evaluate" else (worker, "write_record", die)))
        carry_out(job)
    monkeypatch.setattr(Simulation, "_train", die)
    assert carry_out(job) == [5] and result(job) == straight


def simulation(job: Job) -> Any:
    from staleharness.task import find_env
    from staleharness.training.loop import simulation_of

    return simulation_of(find_env("random-mdp-0")[1].settings.from_dict(job.spec))


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC], ids=["killed", "refused"])
@pytest.mark.parametrize("step", EVERY)
@pytest.mark.long
def test_the_next_call_repairs_any_disk_error(tmp_path: Path, straight: Result, step: int, refusal: int | None) -> None:
    """Fail at logs, checkpoints, tables and publication of a whole run, one after the other."""

    def first(n: int) -> None:
        with contextlib.suppress(UserError):  # as the command line does
            carry_out(job_of(tmp_path / str(n)))

    stride = 13 * step if step > 1 else 1
    for n in every_crash(first, at_most=800, step=stride, refusal=refusal):
        job = job_of(tmp_path / str(n))
        store = Store(job.root)
        assert store.is_done(job.run_id) == store.run_dir(job.run_id).exists()
        with store.hold():  # as a sweep does
            store.open_attempt(job.run_id)
            carry_out(job)
        assert result(job) == straight
        assert [path.name for path in store.root.rglob(".*") if path.name != ".lock"] == []
        shutil.rmtree(job.root)


def test_no_clock_that_jumps_changes_a_run(job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = itertools.cycle([0.0, 1e9, -3600.0, 4e9])  # 1970, 2001, before all that, 2096
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    carry_out(job, stop_after=2)
    for path in Store(job.root).attempt_dir(job.run_id).iterdir():
        os.utime(path, (next(jumps) % 1e9,) * 2)
    assert carry_out(job) == [3, 4, 5] and result(job) == straight


@pytest.mark.parametrize("nth", [0, 1, 2])  # before the first phase, in the middle, and the last
@pytest.mark.long
def test_a_run_stopped_during_evaluation_resumes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    def job_at(root: Path) -> Job:
        settings = "num_envs=2,num_steps=32,minibatches=2,evaluations=2,evaluation_episodes=1,final_episodes=1"
        question = sweep_request(env="Pendulum", algo="spo", seeds="1", steps="256", settings=settings)
        (made,) = plan(question).runs
        Store(root).open_for_writing()
        return Job(made.run_id, made.label, made.spec.to_dict(), str(root), checkpoint_seconds=1e6)

    straight, stopped = job_at(tmp_path / "straight"), job_at(tmp_path / "stopped")
    phases = carry_out(straight)
    whole, calls = evaluation.evaluate, itertools.count()

    def interrupted(*given: Any) -> Any:
        if next(calls) == nth:
            raise Interrupted("stopped during an evaluation")
        return whole(*given)

    monkeypatch.setattr(control_simulation, "evaluate", interrupted)
    with pytest.raises(Interrupted):
        worker.execute(stopped, lambda message: None, lambda: False)
    monkeypatch.undo()
    again = carry_out(stopped)
    assert result(stopped) == result(straight)
    assert again == (phases if nth == 0 else [phase for phase in phases if phase >= again[0]])
    assert (len(again) < len(phases)) == (nth > 0)
