"""Sweeps that are stopped, killed and started again come to the same bits, and lose and double nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kill_points import STAYS_AT, waiting_child
from places import HELPERS
from sweeping import AtPhase, command, environment, hopper, metrics, phases_written, relatives, wait_until
from tabular_runs import carry_out, job_of

from staleharness.errors import UserError
from staleharness.running import plan_execution
from staleharness.running.plan import Plan, plan
from staleharness.running.run_record import fingerprint
from staleharness.running.runners import local
from staleharness.running.sweep_event_loop import SweepListener
from staleharness.spec import RunSpec
from staleharness.store.store import Store
from staleharness.study import sweep_request

PHASES = 40
STEPS = 64 * PHASES


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The metrics of two runs that nothing has stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    assert len(hopper(out, seeds=2, steps=STEPS).done) == 2
    return metrics(out)


def assert_resumes(stopped: Path, straight: dict[str, str]) -> None:
    """Check that the same sweep again resumes where the first was stopped, and gives the same bits."""
    assert phases_written(stopped) < 2 * PHASES
    assert sorted((stopped / "attempts").glob("*/checkpoint-*.pt"))
    assert len(hopper(stopped, seeds=2, steps=STEPS).done) == 2
    assert metrics(stopped) == straight
    logs = [(path / "log.txt").read_text() for path in (stopped / "runs").iterdir()]
    assert any("resumed after phase" in log for log in logs)
    assert not list((stopped / "attempts").iterdir())


@pytest.mark.long
def test_an_interrupted_sweep_goes_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = AtPhase(lambda: os.kill(os.getpid(), signal.SIGINT), STAYS_AT)
    with monkeypatch.context() as patch:
        patch.setattr(local, "_in_child", waiting_child)
        assert hopper(tmp_path, seeds=2, steps=STEPS, listener=interrupt).interrupted
    assert_resumes(tmp_path, straight)


# The command line, which kills itself when a run is at its sixth phase, and stays there.
KILLED = """
import os, signal
from kill_points import STAYS_AT, waiting_child
from staleharness import cli
from staleharness.commands.shared.progress_display import PlainLines
from staleharness.running.runners import local
local._in_child = waiting_child
PlainLines.on_phase = lambda self, run, heard: heard["phase"] < STAYS_AT or os.kill(os.getpid(), signal.SIGKILL)
cli.main()
"""


@pytest.mark.long
def test_a_killed_sweep_resumes_to_the_same_bits(tmp_path: Path, straight: dict[str, str]) -> None:
    words = [sys.executable, "-c", KILLED, *command(tmp_path, "--seeds", "2", steps=STEPS)]
    path = os.pathsep.join([environment()["PYTHONPATH"], str(HELPERS)])
    quickly = environment(STALEHARNESS_CHECKPOINT_SECONDS="0.05", PYTHONPATH=path)
    killed = subprocess.run(words, env=quickly, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if Path("/proc").is_dir():
        wait_until(lambda: not relatives(tmp_path))
    assert_resumes(tmp_path, straight)


def tree(folder: Path) -> dict[str, str]:
    """Size and digest of every file, hidden ones included, and the folders."""
    return {
        str(path.relative_to(folder)): f"{path.stat().st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        if path.is_file()
        else "folder"
        for path in folder.rglob("*")
    }


def start(planned: Plan, store: Store) -> None:
    def watch(done: Collection[str]) -> AbstractContextManager[SweepListener]:
        raise AssertionError("the sweep began")

    plan_execution.execute_plan(planned, store, local.LocalPool(1), watch)


@pytest.mark.parametrize("act", [lambda planned, store: plan_execution.check_checkpoints(planned.runs, store), start])
def test_another_fingerprint_is_refused_before_anything_is_written(
    tmp_path: Path, tabular: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Plan, Store], None]
) -> None:
    job = job_of(tmp_path)
    carry_out(job, stop_after=3)
    planned = plan(sweep_request(env="random-mdp-0", k="2", algo="spo", seeds="1", steps=str(job.spec["steps"])), [0])
    assert planned.runs[0].run_id == job.run_id
    before = tree(tmp_path)

    def fail(store: Store) -> None:
        raise AssertionError("the folder was opened for writing")

    def other_numpy(spec: RunSpec) -> dict[str, object]:
        return fingerprint(spec) | {"numpy": "99.1"}

    monkeypatch.setattr(Store, "open_for_writing", fail)
    monkeypatch.setattr(plan_execution, "fingerprint", other_numpy)
    here = fingerprint(planned.runs[0].spec)["numpy"]
    with pytest.raises(UserError, match=rf"is at phase 3, .*numpy: {here} -> 99\.1") as refusal:
        act(planned, Store(tmp_path))
    assert "\n" not in str(refusal.value)
    assert tree(tmp_path) == before
