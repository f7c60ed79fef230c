"""Whole sweeps on a Slurm cluster, with real workers: they come to what they come to on this machine, whatever happens.
On a real cluster of one node where Slurm is installed, and on the stand-in for its commands everywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import records
from known_plugins import loaded_plugins
from places import HELPERS
from slurm_clusters import Cluster
from sweeping import Silent, process, wait_until

from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import Runner
from staleharness.running.runners.local import LocalPool
from staleharness.running.runners.slurm import SlurmRunner
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request

NAPPING = HELPERS / "napping_kind.py"


@pytest.fixture(autouse=True)
def napping() -> Iterator[None]:
    with loaded_plugins(NAPPING):
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Results of the runs on this machine."""
    out = tmp_path_factory.mktemp("local")
    with loaded_plugins(NAPPING):
        swept(out, naps(3), LocalPool(3))
    return records(out)


def naps(seeds: int = 2, settings: str = "") -> tuple[PlannedRun, ...]:
    asked = {"env": "napping", "k": "4", "algo": "spo", "seeds": str(seeds), "steps": "60"}
    return plan(sweep_request(**asked, settings=settings)).runs


class Acts(Silent):
    """Does something, once, when so many runs have done five phases."""

    def __init__(self, act: Callable[[], object], runs: int = 2) -> None:
        self.act, self.runs = act, runs
        self.ready: set[str] = set()
        self.began: list[str] = []
        self.how: dict[str, str] = {}

    def on_start(self, run: PlannedRun) -> None:
        self.began.append(run.run_id)

    def on_phase(self, run: PlannedRun, progress: dict[str, int]) -> None:
        if progress["phase"] >= 5 and len(self.ready) < self.runs:
            self.ready.add(run.run_id)
            if len(self.ready) == self.runs:
                self.act()

    def on_end(self, run: PlannedRun, event: dict[str, str]) -> None:
        self.how[run.run_id] = event["event"]


def swept(out: Path, runs: tuple[PlannedRun, ...], runner: Runner, listener: Silent | None = None) -> Outcome:
    store = Store(out)
    store.open_for_writing()
    return sweep(runs, store, runner, listener or Silent(), Limits(checkpoint=0.02))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_killed_sweep_continues_to_the_local_results(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, gate = tmp_path / "50%a it's", tmp_path / "gate"
    monkeypatch.setenv("STALEHARNESS_NAP_UNTIL", str(gate))
    words = "--env napping --k 4 --algo spo --steps 60 --seeds 2 --jobs 2 --runner slurm --slurm=--time=9".split()
    with open(tmp_path / "said.txt", "w") as said:
        driver = subprocess.Popen(
            process("sweep", *words, "--plugin", str(NAPPING), "--out", str(out)), stdout=said, stderr=said
        )
        wait_until(lambda: [*(out / "attempts").glob("*/metrics.jsonl")] or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert driver.returncode == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
    listener = Acts(gate.touch)
    outcome = swept(out, naps(), SlurmRunner(2, "--time=9"), listener)
    assert len(outcome.done) == 2 and not outcome.failed
    assert records(out).items() <= expected.items()
    assert len(cluster.calls("sbatch")) == 1, "nothing is submitted twice"
    assert [restarts for _, restarts in cluster.tasks().values()] == [0, 0]
    assert sorted(listener.began) == sorted(listener.how)
    assert not (out / "slurm").exists()


@pytest.mark.faults
@pytest.mark.parametrize("what", ["warn", "preempt", "lose_node"])
def test_a_task_that_loses_its_node_resumes_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str], what: str
) -> None:
    runner = SlurmRunner(2)

    def happens() -> None:
        if what == "warn":
            cluster.warn(next(iter(runner.runs.values())).task)
        else:
            getattr(cluster, what)()

    outcome = swept(tmp_path / "out", naps(), runner, Acts(happens))
    assert len(outcome.done) == 2
    assert records(tmp_path / "out").items() <= expected.items()
    again = sorted(restarts for _, restarts in cluster.tasks().values())
    assert again == ([0, 1] if what == "warn" else [1, 1])
    assert len(cluster.calls("sbatch")) == 1


@pytest.mark.faults
def test_the_next_call_submits_only_the_failed_run(cluster: Cluster, tmp_path: Path) -> None:
    runs = (*naps(1), *naps(1, "dies_at=3"))
    outcome = swept(tmp_path / "out", runs, SlurmRunner(2))
    assert outcome.done == [runs[0].run_id]
    (failure,) = outcome.failed.values()
    assert failure["class"] == "Exited"
    assert failure["message"].startswith("the worker exited on its own with exit code 3 (task ")
    again = swept(tmp_path / "out", runs, SlurmRunner(2))
    assert again.skipped == [runs[0].run_id] and [*again.failed] == [runs[1].run_id]
    assert "--array=0-0%1" in cluster.calls("sbatch")[1]


@pytest.mark.faults
def test_a_stopped_sweep_leaves_checkpoints_and_an_empty_queue(
    cluster: Cluster, tmp_path: Path, expected: dict[str, str]
) -> None:
    stop = Acts(lambda: os.kill(os.getpid(), signal.SIGINT), runs=1)
    outcome = swept(tmp_path / "out", naps(3), SlurmRunner(1), stop)
    assert outcome.interrupted and not outcome.done and not outcome.failed
    assert len(stop.began) == 1 and stop.how == dict.fromkeys(stop.began, "interrupted"), "others never began"
    assert all(state not in ("PENDING", "RUNNING") for state, _ in cluster.tasks().values())
    assert [*(tmp_path / "out" / "attempts").glob("*/checkpoint-*")]
    outcome = swept(tmp_path / "out", naps(3), SlurmRunner(3))
    assert len(outcome.done) == 3
    assert records(tmp_path / "out") == expected
