"""RUNNER=ray on a real cluster of this machine: a head without cores and two nodes, which are lost and killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import QUICKLY, files, records, swept
from known_plugins import loaded_plugins
from needs import hint
from places import HELPERS
from sweeping import Silent, environment, wait_until

from staleharness.base.process_launch import without_main_module
from staleharness.errors import UserError
from staleharness.running import ray_connection
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import ResourceRequest
from staleharness.running.runners import make_runner
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request

os.environ[ray_connection.LOOPBACK] = "0"  # before Ray is imported
ray = pytest.importorskip("ray", reason=hint("ray"))

STUBBORN = HELPERS / "stubborn_toy.py"
SMALL = {"object_store_memory": 80_000_000, "include_dashboard": False}
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={**SMALL, "num_cpus": 0, "_system_config": SOON})
        patch.setenv(ray_connection.ADDRESS, cluster.address)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def cluster(head: Any) -> Any:
    """With two nodes of one core each, whatever the test before has done."""
    for node in [node for node in head.worker_nodes if node.dead_processes()]:
        head.remove_node(node, allow_graceful=False)
    while len(head.worker_nodes) < 2:
        head.add_node(**SMALL, num_cpus=1)
    head.wait_for_nodes()
    return head


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    with loaded_plugins(STUBBORN):
        yield


def runs_of(seeds: int = 4, steps: int = 60) -> tuple[PlannedRun, ...]:
    return plan(sweep_request(env="stubborn", k="4", algo="spo", seeds=str(seeds), steps=str(steps))).runs


def on_the_cluster(out: Path, runs: tuple[PlannedRun, ...], listener: Silent | None = None, **asked: Any) -> Outcome:
    store = Store(out)
    store.open_for_writing()
    with without_main_module():
        return sweep(runs, store, make_runner("ray", ResourceRequest(**asked)), listener or Silent(), QUICKLY)  # type: ignore[arg-type]


@pytest.fixture
def straight(tmp_path: Path) -> dict[str, Any]:
    """The same runs, made by a local sweep."""
    swept(tmp_path / "straight", runs_of())
    return records(tmp_path / "straight")


def equals(out: Path, straight: dict[str, Any]) -> bool:
    """Return whether the folder holds exactly these runs, to the byte."""
    return records(out) == straight and list((out / "attempts").iterdir()) == [] and not (out / "damaged").exists()


class Recorder(Silent):
    """Counts starts, and does something at the n-th phase of all."""

    def __init__(self, at: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.left, self.act = at, act
        self.starts: list[str] = []

    def on_start(self, run: PlannedRun) -> None:
        self.starts.append(run.run_id)

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


@pytest.mark.usefixtures("cluster")
def test_results_equal_those_of_a_local_sweep_to_the_byte(tmp_path: Path, straight: dict[str, Any]) -> None:
    out, runs, heard = tmp_path / "out", runs_of(), Recorder()
    assert sorted(on_the_cluster(out, runs, heard).done) == sorted(run.run_id for run in runs)
    assert equals(out, straight) and len(heard.starts) == len(runs)
    assert heard.left < -200  # their phases were heard of
    assert sorted(p.name for p in out.iterdir()) == [".lock", "attempts", "runs", "staleharness.json"]
    assert len(on_the_cluster(out, runs, heard).skipped) == len(runs) and not ray.is_initialized()


@pytest.mark.faults
def test_a_lost_node_costs_no_run(tmp_path: Path, cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    out, runs = tmp_path / "out", runs_of(2, steps=600)  # longer than a worker needs to notice the loss of its node
    swept(tmp_path / "straight", runs)
    heard = Recorder(30, lambda: cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False))
    outcome = on_the_cluster(out, runs, heard)
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and not outcome.failed
    assert "ended by loss of its machine; it is started again" in caplog.text
    assert equals(out, records(tmp_path / "straight"))


def test_an_orphan_of_a_killed_raylet_publishes_nothing(
    tmp_path: Path, straight: dict[str, Any], monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    out, runs, told = tmp_path / "out", runs_of(), tmp_path / "told"
    told.mkdir()
    monkeypatch.setenv("STALEHARNESS_STUBBORN", str(told))
    for seed in (1, 2, 3):
        (told / f"seed{seed}.first").touch()  # these are as any other
    waits = told / "seed0.first"

    def kill() -> None:
        wait_until(waits.exists)
        os.kill(json.loads(waits.read_text())["raylet"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = on_the_cluster(out, runs)
    killer.join()
    orphan = json.loads(waits.read_text())["pid"]
    assert sorted(outcome.done) == sorted(run.run_id for run in runs) and equals(out, straight)
    before = files(out)
    assert lives(orphan) and not (told / "orphan.txt").exists()
    (told / "go").touch()
    wait_until(lambda: not lives(orphan))
    assert (told / "orphan.txt").read_text().startswith("20\n")  # it has worked on
    assert files(out) == before and equals(out, straight)


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# A sweep that kills itself at the n-th phase that it hears of.
DRIVER = """
import os, signal, sys
from pathlib import Path
from test_ray import Recorder, on_the_cluster, runs_of

on_the_cluster(Path(sys.argv[1]), runs_of(), Recorder(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)))
"""


@pytest.mark.faults
@pytest.mark.usefixtures("cluster")
def test_after_a_killed_driver_the_next_call_goes_on(tmp_path: Path, straight: dict[str, Any]) -> None:
    out, finished = tmp_path / "out", dict[str, str]()
    path = os.pathsep.join([environment()["PYTHONPATH"], str(HELPERS), str(Path(__file__).parent)])
    for at in (25, 130):
        words = [sys.executable, "-c", DRIVER, str(out), str(at)]
        ended = subprocess.run(
            words, env=environment(PYTHONPATH=path, STALEHARNESS_PLUGINS=str(STUBBORN)), capture_output=True, text=True
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert finished.items() <= files(out).items(), "what was finished has changed"
        finished = files(out)
    outcome = on_the_cluster(out, runs_of())
    assert len(outcome.done) + len(outcome.skipped) == len(straight) and equals(out, straight)
    assert finished.items() <= files(out).items()


@pytest.mark.faults
@pytest.mark.usefixtures("cluster")
def test_ctrl_c_leaves_checkpoints_and_the_next_call_goes_on(tmp_path: Path, straight: dict[str, Any]) -> None:
    out, runs = tmp_path / "out", runs_of()
    outcome = on_the_cluster(out, runs, Recorder(30, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert outcome.interrupted and not outcome.failed and len(outcome.done) < len(runs)
    again = on_the_cluster(out, runs)
    assert len(again.done) + len(again.skipped) == len(runs) and equals(out, straight)


@pytest.mark.faults
def test_runs_share_a_gpu_and_have_the_sweep_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    """Logical ones: Ray believes what a node says of itself."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    node = cluster.add_node(**SMALL, num_cpus=2, num_gpus=1)
    cluster.wait_for_nodes()
    try:
        out, most = tmp_path / "out", []
        runner = make_runner("ray", ResourceRequest(device="cuda", runs_per_gpu=2))

        class Counting(Silent):
            def on_start(self, run: PlannedRun) -> None:
                most.append((runner.capacity, runner.per_machine))

        store = Store(out)
        store.open_for_writing()
        with without_main_module():
            outcome = sweep(runs_of(2), store, runner, Counting(), QUICKLY)  # type: ignore[arg-type]
    finally:
        cluster.remove_node(node)
    assert len(outcome.done) == 2 and set(most) == {(2, 2)}
    logs = [(out / "runs" / run_id / "log.txt").read_text() for run_id in outcome.done]
    assert all("GPUs: 0 threads: 3\n" in log for log in logs)


@pytest.mark.faults
@pytest.mark.usefixtures("cluster")
def test_what_no_machine_can_do_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no machine of the cluster has room for a run, which takes 64 cores, 1 GB"):
        on_the_cluster(tmp_path / "out", runs_of(1), threads=64)

    @contextlib.contextmanager
    def unseen(root: Path) -> Iterator[Path]:
        yield root / "nobody" / "has" / ".probe.12345678"

    monkeypatch.setattr("staleharness.running.runners.ray.probe_file", unseen)
    with pytest.raises(UserError, match=r"machine .* \(127.0.0.1\) does not see OUT=.*out; give a folder that all"):
        on_the_cluster(tmp_path / "out", runs_of(1))
    assert not ray.is_initialized()


def test_an_address_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("here", "ray://head:10001", "head:", ":6379", "head:port"):
        monkeypatch.setenv(ray_connection.ADDRESS, address)
        with pytest.raises(UserError, match=r"RAY_ADDRESS='.*' is not an address"):
            make_runner("ray", ResourceRequest(1))
    monkeypatch.setenv(ray_connection.ADDRESS, "127.0.0.1:1")
    with pytest.raises(UserError, match=r"no Ray cluster answers at RAY_ADDRESS=127.0.0.1:1"):
        make_runner("ray", ResourceRequest(1)).open([], Path())


@pytest.mark.faults
def test_a_cluster_of_a_sweep_listens_on_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ray_connection.ADDRESS, raising=False)
    with contextlib.closing(make_runner("ray", ResourceRequest(2))) as runner:
        runner.open([], tmp_path)
        assert runner.capacity == 2 and not ray._private.worker._global_node.webui_url
        assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
        assert public_listeners() == []
    assert not ray.is_initialized()


def public_listeners() -> list[str]:
    """Return the command lines of Ray's processes that listen on an address other machines can reach."""
    lines = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    loopback = re.compile("0100007F:|0{16}FFFF00000100007F:|0{24}01000000:")
    open_to_all = {f"socket:[{line[9]}]" for line in lines if line[3] == "0A" and not loopback.match(line[1])}
    listeners = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "ray" in words and open_to_all & {os.readlink(handle) for handle in (process / "fd").iterdir()}:
                listeners.append(words[:200])
    return listeners
