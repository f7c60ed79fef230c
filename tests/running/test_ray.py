"""RUNNER=ray on a real cluster of this machine: a head without cores and two nodes, which are lost and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import QUICKLY, files, records, swept
from known_plugins import known
from places import HELPERS
from sweeping import AtPhase, Silent, environment, wait_until

from staleharness.base.processes import nothing_of_main
from staleharness.errors import UserError
from staleharness.running import place, ray_cluster
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner import Demand, make_runner
from staleharness.running.sweep import Outcome, sweep
from staleharness.store.store import Store
from staleharness.store.study import ask

os.environ[ray_cluster.LOOPBACK] = "0"  # before Ray is imported
ray = pytest.importorskip("ray", reason="needs the extra ray")

STUBBORN = HELPERS / "stubborn_toy.py"
SMALL = {"object_store_memory": 80_000_000, "include_dashboard": False}
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0, "_system_config": SOON})
        patch.setenv(ray_cluster.ADDRESS, cluster.address)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def cluster(head: Any) -> Any:
    """With two nodes of one core and one GPU each, whatever the test before has done."""
    while len(head.worker_nodes) < 2:
        head.add_node(**SMALL, num_cpus=1, num_gpus=1)
    head.wait_for_nodes()
    return head


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    with known(STUBBORN):
        yield


def runs_of(seeds: int = 4) -> tuple[PlannedRun, ...]:
    return plan(ask(env="stubborn", k="4", algo="spo", seeds=str(seeds))).runs


def on_the_cluster(out: Path, runs: tuple[PlannedRun, ...], listener: Silent | None = None, **asked: Any) -> Outcome:
    store = Store(out)
    store.open_for_writing()
    with nothing_of_main():
        return sweep(runs, store, make_runner("ray", Demand(**asked)), listener or Silent(), QUICKLY)  # type: ignore[arg-type]


@pytest.fixture
def straight(tmp_path: Path) -> dict[str, Any]:
    """The same runs, made by a local sweep."""
    swept(tmp_path / "straight", runs_of())
    return records(tmp_path / "straight")


def whole(out: Path, straight: dict[str, Any]) -> bool:
    """Whether it holds these runs, to the byte, and nothing else."""
    return records(out) == straight and list((out / "attempts").iterdir()) == [] and not (out / "damaged").exists()


class Watched(Silent):
    """Counts starts, and does something at the n-th phase of all."""

    def __init__(self, at: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.left, self.act = at, act
        self.starts: list[str] = []

    def started(self, run: PlannedRun) -> None:
        self.starts.append(run.run_id)

    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


@pytest.mark.usefixtures("cluster")
def test_results_equal_those_of_a_local_sweep_to_the_byte(tmp_path: Path, straight: dict[str, Any]) -> None:
    out, runs, heard = tmp_path / "out", runs_of(), Watched()
    assert sorted(on_the_cluster(out, runs, heard).done) == sorted(run.run_id for run in runs)
    assert whole(out, straight) and len(heard.starts) == len(runs)
    assert heard.left < -200  # their phases were heard of
    assert sorted(p.name for p in out.iterdir()) == [".lock", "attempts", "runs", "staleharness.json"]
    assert len(on_the_cluster(out, runs, heard).skipped) == len(runs) and not ray.is_initialized()


def test_a_lost_node_costs_no_run(tmp_path: Path, straight: dict[str, Any], cluster: Any) -> None:
    out, runs = tmp_path / "out", runs_of()
    heard = Watched(30, lambda: cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False))
    outcome = on_the_cluster(out, runs, heard)
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and not outcome.failed
    assert len(heard.starts) > len(runs) and whole(out, straight)


def test_an_orphan_of_a_killed_raylet_that_works_on_neither_publishes_nor_spoils(
    tmp_path: Path, straight: dict[str, Any], cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runs, told = tmp_path / "out", runs_of(), tmp_path / "told"
    told.mkdir()
    monkeypatch.setenv("STALEHARNESS_STUBBORN", str(told))
    orphans: list[dict[str, int]] = []

    class Killing(Watched):
        def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
            waiting = list(told.glob("*.first"))
            if not orphans and len(waiting) == 1:
                orphans.append(json.loads(waiting[0].read_text()))
                os.kill(orphans[0]["raylet"], signal.SIGKILL)
                for other in runs:  # the rest goes on as usual
                    (told / f"seed{other.spec.seed}.first").touch()

    heard = Killing()
    outcome = on_the_cluster(out, runs[:1], heard)
    raise AssertionError((outcome, orphans))
