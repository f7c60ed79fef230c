"""The runner for Slurm, with tasks that start at once: on a real cluster of one node where Slurm is installed, and on
the stand-in for its commands everywhere. The same is asked of both.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from raising import raising
from slurm_clusters import MAX_TASKS, Cluster
from slurm_driving import Act, Drive, job, lives, once, open_gate

from staleharness.errors import UserError
from staleharness.running.runner_interface import Event, Job, RunEnd, RunProgress, RunStart, RunWait
from staleharness.running.runners import slurm
from staleharness.running.runners.slurm import SlurmRunner


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "TASK", "light_task")


def open_at_start(runner: SlurmRunner, event: Event) -> None:
    """Keeps each task until it was seen to run."""
    if isinstance(event, RunStart):
        open_gate(Path(runner.runs[event.run_id].job.root), event.run_id)


def test_arrays_respect_size_and_tasks_at_a_time(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(5)]
    drive = Drive(SlurmRunner(2, "--partition=main --time=5"), jobs, open_at_start)
    assert drive.words() == dict.fromkeys(range(5), "done")
    assert all(drive.phases(n) == [*range(1, 21)] for n in range(5))
    assert all(drive.report(n, "preparing") == ["reading phase 0"] for n in range(5))
    first, second = cluster.calls("sbatch")
    assert f"--array=0-{MAX_TASKS - 1}%2" in first and "--array=0-1%1" in second
    assert "--cpus-per-task=1" in first and "--partition=main" in first
    assert not (tmp_path / "slurm").exists()
    spans = [drive.span(n) for n in range(5)]
    assert max(sum(begin <= at <= end for begin, end in spans) for at, _ in spans) <= 2
    for n in range(5):
        kinds = [type(event) for event in drive.heard if int(event.run_id, 16) == n]
        assert [*dict.fromkeys(kinds)] == [RunWait, RunStart, RunProgress, RunEnd] and kinds.count(RunStart) == 1


def test_a_throttle_grows_as_tasks_of_an_earlier_array_end(cluster: Cluster, tmp_path: Path) -> None:
    """The last of the first array stays until one of the second runs, and this one until it is not alone there."""
    first, second, third = (f"{MAX_TASKS + n:012x}" for n in (-1, 0, 1))
    follows = {second: first, third: second}

    def act(runner: SlurmRunner, event: Event) -> None:
        if isinstance(event, RunStart) and event.run_id in follows:
            open_gate(tmp_path, follows[event.run_id])

    gates = dict.fromkeys((MAX_TASKS - 1, MAX_TASKS), 3)
    jobs = [job(tmp_path, n, phases=8, gate=gates.get(n, 0)) for n in range(MAX_TASKS + 2)]
    drive = Drive(SlurmRunner(2), jobs, act)
    assert drive.words() == dict.fromkeys(range(len(jobs)), "done")
    assert any("ArrayTaskThrottle=2" in call for call in cluster.calls("scontrol"))


def test_a_task_that_is_warned_goes_on_from_its_checkpoint_and_alone(cluster: Cluster, tmp_path: Path) -> None:
    act = once(lambda runner: cluster.warn(runner.runs[f"{0:012x}"].task), gate=tmp_path)
    drive = Drive(SlurmRunner(), [job(tmp_path, n, phases=40, gate=30) for n in range(2)], act)
    assert drive.words() == {0: "done", 1: "done"}
    assert drive.phases(0) == [*range(1, 41)], "no phase is made twice"
    assert (lives(tmp_path, 0), lives(tmp_path, 1)) == (2, 1)
    (requeue,) = (call for call in cluster.calls("scontrol") if " requeue " in call)
    assert requeue.endswith("_0") and len(cluster.calls("sbatch")) == 1


@pytest.mark.parametrize("what", ["preempt", "lose_node"])
def test_what_loses_its_place_or_its_node_is_back_in_the_queue(cluster: Cluster, tmp_path: Path, what: str) -> None:
    act = once(lambda runner: getattr(cluster, what)(), gate=tmp_path, runs=2)
    drive = Drive(SlurmRunner(), [job(tmp_path, n, phases=40, gate=30) for n in range(2)], act)
    assert drive.words() == {0: "done", 1: "done"}
    assert {lives(tmp_path, 0), lives(tmp_path, 1)} == {2} and len(cluster.calls("sbatch")) == 1
    if what == "preempt":  # on a lost node the earlier life may go on, and reports between those of the next
        assert drive.phases(0)[-1] == 40


def test_a_task_that_fails_is_not_put_back_whatever_it_said(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, 0, 3, ends="failed"), job(tmp_path, 1, 3, ends="dies"), job(tmp_path, 2, 3)]
    drive = Drive(SlurmRunner(), jobs)
    assert drive.words() == {0: "failed", 1: None, 2: "done"}
    assert drive.ends[1].failure_class == "Exited" and drive.ends[1].cause.startswith("exit code 3 (task ")
    assert [lives(tmp_path, n) for n in range(3)] == [1, 1, 1]


def test_a_task_that_is_killed_says_by_what(cluster: Cluster, tmp_path: Path) -> None:
    act = once(lambda runner: subprocess.run(["scancel", "--signal=KILL", "--batch", runner.runs[f"{0:012x}"].task]))
    drive = Drive(SlurmRunner(), [job(tmp_path, 0, gate=15)], act)
    assert drive.ends[0].failure_class == "Killed" and drive.ends[0].cause.startswith("signal SIGKILL (task ")


def test_a_task_that_is_cancelled_is_not_put_back(cluster: Cluster, tmp_path: Path) -> None:
    act = once(lambda runner: subprocess.run(["scancel", runner.runs[f"{0:012x}"].task], check=True), gate=tmp_path)
    drive = Drive(SlurmRunner(), [job(tmp_path, n, phases=40, gate=30) for n in range(2)], act)
    assert drive.words() == {0: "interrupted", 1: "done"}, "it had the time to write a checkpoint"
    assert drive.ends[0].failure_class == "Cancelled" and lives(tmp_path, 0) == 1


def test_a_task_that_cannot_even_begin_says_why(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "TASK", "lightest_task")
    drive = Drive(SlurmRunner(), [job(tmp_path, 0)])
    assert drive.ends[0].message is None and drive.ends[0].cause.startswith("exit code 1 (task ")
    assert ", before it began; it printed: " in drive.ends[0].cause
    assert "No module named lightest_task" in drive.ends[0].cause


def test_those_who_are_asked_to_stop_do_and_leave_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    def stop(runner: SlurmRunner) -> None:
        for run_id in list(runner.runs):
            runner.ask_to_stop(run_id)

    drive = Drive(SlurmRunner(1), [job(tmp_path, n, gate=15) for n in range(5)], once(stop))
    assert drive.words() == {0: "interrupted"} | dict.fromkeys(range(1, 5))
    assert drive.phases(0)[-1] < 20
    assert all(state not in ("PENDING", "RUNNING") for state, _ in cluster.tasks().values())
    assert not (tmp_path / "slurm").exists()


def test_one_that_is_killed_ends_at_once(cluster: Cluster, tmp_path: Path) -> None:
    act = once(lambda runner: runner.kill(f"{0:012x}"))
    drive = Drive(SlurmRunner(), [job(tmp_path, 0, gate=15), job(tmp_path, 1)], act)
    assert drive.words()[1] == "done" and drive.words()[0] in (None, "interrupted")
    assert len(drive.phases(0)) < 20


def test_closing_ends_what_is_left(cluster: Cluster, tmp_path: Path) -> None:
    runner = SlurmRunner()
    with pytest.raises(KeyboardInterrupt):
        Drive(runner, [job(tmp_path, 0, gate=15)], once(raising(KeyboardInterrupt)))
    assert_over(cluster)


def assert_over(cluster: Cluster) -> None:
    deadline = time.monotonic() + 600
    while any(state in ("PENDING", "RUNNING", "COMPLETING") for state, _ in cluster.tasks().values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


class KilledSweep(Exception):
    """The sweep is killed: nothing of it is closed."""


def go_on(root: Path) -> Act:
    """Lets those go on that wait, once the first is heard of."""
    return once(lambda runner: None, gate=root)


def abandon(runner: SlurmRunner, jobs: list[Job], phase: int = 4) -> None:
    """A runner that is let alone when its first job has done some phases; the jobs wait meanwhile."""

    def leave(runner: SlurmRunner) -> None:
        raise KilledSweep

    runner.close = lambda: None  # type: ignore[method-assign]
    with pytest.raises(KilledSweep):
        Drive(runner, jobs, once(leave, phase))


def test_the_next_call_goes_on_with_the_array_of_a_killed_one(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(3)]
    abandon(SlurmRunner(2), jobs)
    drive = Drive(SlurmRunner(2), jobs, go_on(tmp_path))
    assert drive.words() == dict.fromkeys(range(3), "done")
    assert [lives(tmp_path, n) for n in range(3)] == [1, 1, 1], "nothing is begun twice"
    assert len(cluster.calls("sbatch")) == 1
    assert not (tmp_path / "slurm").exists()


def test_tasks_of_a_sweep_that_lost_its_folder_go_on_for_the_next(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(3)]

    def lose(runner: SlurmRunner) -> None:
        runner.leave_jobs()
        raise KilledSweep

    with pytest.raises(KilledSweep):
        Drive(SlurmRunner(2), jobs, once(lose))
    drive = Drive(SlurmRunner(2), jobs, go_on(tmp_path))
    assert drive.words() == dict.fromkeys(range(3), "done")
    assert [lives(tmp_path, n) for n in range(3)] == [1, 1, 1] and len(cluster.calls("sbatch")) == 1


def test_an_unrecorded_submission_is_found_by_its_name(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(2)]
    abandon(SlurmRunner(), jobs)
    (array,) = (tmp_path / "slurm").iterdir()
    (array / "id").unlink()
    assert Drive(SlurmRunner(), jobs, go_on(tmp_path)).words() == {0: "done", 1: "done"}
    assert len(cluster.calls("sbatch")) == 1 and lives(tmp_path, 0) == 1


def test_waiting_tasks_with_other_options_are_resubmitted(cluster: Cluster, tmp_path: Path) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(3)]
    abandon(SlurmRunner(1), jobs)
    drive = Drive(SlurmRunner(2, "--time=9"), jobs, go_on(tmp_path))
    assert drive.words() == dict.fromkeys(range(3), "done")
    assert [lives(tmp_path, n) for n in range(3)] == [1, 1, 1]
    second = cluster.calls("sbatch")[1]
    assert "--array=0-1%1" in second and "--time=9" in second


def test_what_is_no_longer_asked_for_is_said_and_goes_on(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [job(tmp_path, n, gate=15) for n in range(2)]
    abandon(SlurmRunner(), jobs)
    drive = Drive(SlurmRunner(), jobs[:1], lambda runner, event: open_gate(tmp_path, event.run_id))
    assert drive.words() == {0: "done"}
    assert "goes on with 1 tasks of an earlier sweep, which this one does not ask for" in caplog.text
    other = Drive(SlurmRunner(), jobs[1:], lambda runner, event: open_gate(tmp_path, event.run_id))
    assert other.words()[1] == "done" and lives(tmp_path, 1) == 1


def test_the_sweep_waits_for_an_unreachable_controller(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away until the sweep has noticed."""
    away, warn = cluster.cut_off(), SlurmRunner._warn_once

    def warn_and_return(runner: SlurmRunner, key: str, text: str, *values: object) -> None:
        if key == "silent" and key not in runner._warnings:
            away.__exit__(None, None, None)
        warn(runner, key, text, *values)

    monkeypatch.setattr(SlurmRunner, "_warn_once", warn_and_return)
    jobs = [job(tmp_path, n, gate=15) for n in range(2)]
    drive = Drive(SlurmRunner(), jobs, once(lambda runner: away.__enter__(), gate=tmp_path))
    assert drive.words() == {0: "done", 1: "done"} and lives(tmp_path, 0) == 1
    assert caplog.text.count("Slurm does not answer") == 1


def test_what_slurm_refuses_is_the_users_to_mend(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^RUNNER=slurm: .*Invalid partition name"):
        Drive(SlurmRunner(1, "--partition=elsewhere"), [job(tmp_path, 0)])
    assert not (tmp_path / "slurm").exists()
