"""Sweeps as arrays of a Slurm cluster: on a real one of one node where Slurm is installed, and on the stand-in for its
commands everywhere. The same is asked of both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import records
from known_plugins import known
from places import HELPERS, ROOT
from slurm_clusters import Cluster, Real, StandIn, missing
from sweeping import Silent, process, relatives, wait_until

from staleharness.running.limits import Limits
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runners import slurm
from staleharness.running.runners.slurm import Slurm
from staleharness.running.sweep import Outcome, sweep
from staleharness.store.store import Store
from staleharness.store.study import ask

NAPPING = HELPERS / "napping_kind.py"
WORDS = "--env napping --k 4 --algo spo --steps 60".split()


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    if why := missing():
        pytest.skip(why)
    cluster = Real()
    yield cluster
    cluster.close()


@pytest.fixture(params=["stand-in", "real"])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """PATH leads to it, and the runner looks often."""
    made: Cluster
    if request.param == "real":
        made = request.getfixturevalue("real")
    else:
        (tmp_path / "cluster").mkdir()
        made = StandIn(tmp_path / "cluster")
    for name, value in {**made.env, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HELPERS)])}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm, "LOOKS", (0.3, 0.6))
    monkeypatch.setattr(slurm, "READS", 0.1)
    monkeypatch.setattr(slurm, "AGAIN", 2.0)
    monkeypatch.setattr(slurm, "VISIBLE", 0.5)
    with known(NAPPING):
        yield made
    made.clear()


def naps(seeds: int = 2, settings: str = "", steps: int = 60, algo: str = "spo") -> tuple[PlannedRun, ...]:
    asked = {"env": "napping", "k": "4", "algo": algo, "seeds": str(seeds), "steps": str(steps)}
    return plan(ask(**asked, settings=settings)).runs


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What four runs are on this machine."""
    out = tmp_path_factory.mktemp("local")
    with known(NAPPING):
        swept(out, naps(4), 4)
    return records(out)


class Acts(Silent):
    """Does something, once, when every run that may run at a time has done so many phases."""

    def __init__(self, act: Callable[[], object], phases: int = 5, runs: int = 2) -> None:
        self.act, self.phases, self.runs = act, phases, runs
        self.ready: set[str] = set()
        self.began: list[str] = []
        self.how: dict[str, str] = {}

    def started(self, run: PlannedRun) -> None:
        self.began.append(run.run_id)

    def phase(self, run: PlannedRun, progress: dict[str, int]) -> None:
        if progress["phase"] >= self.phases and len(self.ready) < self.runs:
            self.ready.add(run.run_id)
            if len(self.ready) == self.runs:
                self.act()

    def ended(self, run: PlannedRun, event: dict[str, str]) -> None:
        self.how[run.run_id] = event["event"]


def swept(
    out: Path, runs: tuple[PlannedRun, ...], runner: Slurm | int, listener: Silent | None = None
) -> Outcome:
    store = Store(out)
    store.open_for_writing()
    return sweep(runs, store, runner, listener or Silent(), Limits(checkpoint=0.02))  # type: ignore[arg-type]


def restarts(cluster: Cluster) -> list[int]:
    return sorted(number for _, number in cluster.tasks().values())


def test_a_sweep_is_arrays_as_large_as_they_may_be_and_comes_to_what_it_is_on_this_machine(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str]
) -> None:
    most = 0

    def count() -> None:
        nonlocal most
        while not done.wait(0.2):
            most = max(most, sum(state == "RUNNING" for state, _ in cluster.tasks().values()))

    done, thread = threading.Event(), threading.Thread(target=count)
    thread.start()
    listener = Acts(lambda: None)
    try:
        outcome = swept(tmp_path / "out", naps(4), Slurm(2, "--partition=main --time=5"), listener)
    finally:
        done.set()
        thread.join()
    assert len(outcome.done) == 4 and not outcome.failed
    assert records(tmp_path / "out") == expected
    first, second = cluster.calls("sbatch")
    assert "--array=0-2%2" in first and "--partition=main" in first and "--cpus-per-task=1" in first
    assert "--array=0-0%1" in second
    assert 1 <= most <= 2
    assert sorted(listener.began) == sorted(listener.how) and set(listener.how.values()) == {"done"}
    assert not (tmp_path / "out" / "slurm").exists()


def test_a_run_that_is_warned_of_its_time_limit_goes_on_from_its_checkpoint_as_the_same_task(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str]
) -> None:
    runner = Slurm(2)
    warning = Acts(lambda: cluster.warn(next(iter(runner.runs.values())).task))
    outcome = swept(tmp_path / "out", naps(), runner, warning)
    assert len(outcome.done) == 2
    assert records(tmp_path / "out").items() <= expected.items()
    assert restarts(cluster)[-2:] == [0, 1] and len(cluster.calls("sbatch")) == 1
    (requeue,) = (call for call in cluster.calls("scontrol") if " requeue " in call)
    assert requeue.split()[-1].partition("_")[2] in ("0", "1"), "a task, not its array"


@pytest.mark.parametrize("what", ["preempt", "lose_node"])
def test_what_loses_its_place_or_its_node_goes_on_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str], what: str
) -> None:
    outcome = swept(tmp_path / "out", naps(), Slurm(2), Acts(getattr(cluster, what)))
    assert len(outcome.done) == 2
    assert records(tmp_path / "out").items() <= expected.items()
    assert restarts(cluster)[-2:] == [1, 1] and len(cluster.calls("sbatch")) == 1


def test_a_failed_run_is_left_for_the_next_call_which_submits_it_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    runs = (*naps(1, steps=10), *naps(1, "dies_at=3", steps=10))
    outcome = swept(tmp_path / "out", runs, Slurm(2))
    assert outcome.done == [runs[0].run_id]
    (failure,) = outcome.failed.values()
    assert failure["class"] == "Killed" and failure["message"].startswith("the worker ended by exit code 3 (task ")
    again = swept(tmp_path / "out", runs, Slurm(2))
    assert again.skipped == [runs[0].run_id] and [*again.failed] == [runs[1].run_id]
    assert "--array=0-0%1" in cluster.calls("sbatch")[1]


def test_a_sweep_that_is_killed_is_gone_on_with_by_the_next_call(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str]
) -> None:
    out = tmp_path / "out"
    words = [*WORDS, "--seeds", "2", "--jobs", "2", "--runner", "slurm", "--plugin", str(NAPPING)]
    with open(tmp_path / "said.txt", "w") as said:
        driver = subprocess.Popen(
            process("sweep", *words, "--out", str(out)), stdout=said, stderr=said, env=os.environ.copy()
        )
        wait_until(lambda: [*(out / "attempts").glob("*/metrics.jsonl")] or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert driver.returncode == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
    outcome = swept(out, naps(), Slurm(2))
    assert len(outcome.done) == 2
    assert records(out).items() <= expected.items()
    assert len(cluster.calls("sbatch")) == 1, "nothing is submitted twice"
    assert restarts(cluster)[-2:] == [0, 0]
    assert not (out / "slurm").exists()


def test_a_sweep_that_is_stopped_leaves_checkpoints_and_nothing_in_the_queue(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str]
) -> None:
    stop = Acts(lambda: os.kill(os.getpid(), signal.SIGINT), runs=1)
    outcome = swept(tmp_path / "out", naps(3), Slurm(1), stop)
    assert outcome.interrupted and not outcome.done and not outcome.failed
    assert stop.how == dict.fromkeys(stop.began, "interrupted") and len(stop.began) == 1
    assert all(state not in ("PENDING", "RUNNING") for state, _ in cluster.tasks().values())
    assert len([*(tmp_path / "out" / "attempts").glob("*/checkpoint-*")]) >= 1
    outcome = swept(tmp_path / "out", naps(3), Slurm(3))
    assert len(outcome.done) == 3
    assert records(tmp_path / "out").items() <= expected.items()


def test_a_controller_that_cannot_be_reached_for_a_while_is_waited_for(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    away = cluster.cut_off()

    def leave() -> None:
        away.__enter__()
        threading.Timer(3.0, lambda: away.__exit__(None, None, None)).start()

    outcome = swept(tmp_path / "out", naps(), Slurm(2), Acts(leave))
    assert len(outcome.done) == 2
    assert records(tmp_path / "out").items() <= expected.items()
    assert "Slurm does not answer" in caplog.text


def test_a_run_that_somebody_cancels_is_not_put_back(cluster: Cluster, tmp_path: Path) -> None:
    runner = Slurm(2)

    def cancel() -> None:
        task = runner.runs[runs[0].run_id].task
        subprocess.run(["scancel", task], check=True)

    runs = naps()
    outcome = swept(tmp_path / "out", runs, runner, Acts(cancel))
    assert outcome.done == [runs[1].run_id] and not outcome.interrupted
    assert restarts(cluster)[-2:] == [0, 0]


def test_what_slurm_refuses_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    from staleharness.errors import UserError

    with pytest.raises(UserError, match=r"^RUNNER=slurm: .*[Ii]nvalid partition name"):
        swept(tmp_path / "out", naps(), Slurm(2, "--partition=elsewhere"))
    assert relatives(tmp_path / "out") == []


def test_a_task_that_cannot_even_begin_says_why(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "TASK", "staleharness.running.slurm.tusk")
    outcome = swept(tmp_path / "out", naps(1), Slurm(1))
    (failure,) = outcome.failed.values()
    assert "exit code 1 (task " in failure["message"] and "before it began; it printed: " in failure["message"]
    assert "No module named" in failure["message"]
