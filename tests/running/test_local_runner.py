"""The local pool: what its processes have loaded."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
import torch
from known_plugins import loaded_plugins
from needs import require_extra
from places import HELPERS
from sweeping import Silent, sweep_here

from staleharness import running
from staleharness.running.plan import plan
from staleharness.running.runner_interface import GPUS, Job, ResourceRequest
from staleharness.running.runners import local
from staleharness.running.sweep_event_loop import sweep
from staleharness.running.worker import limit_gpu_memory
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.task import all_families
from staleharness.training import torch_setup


def test_what_is_loaded_before_workers_fork_can_be_loaded() -> None:
    named = {module for family in all_families() for module in family.preload}
    assert named and importlib.util.find_spec(local.WORKER) is not None
    for module in (*named, local.GRADIENT):
        if module.startswith("staleharness.language"):
            require_extra("llm")
        importlib.import_module(module)


def test_as_many_at_a_time_as_cores_memory_and_gpus_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 16)
    monkeypatch.setattr(local, "memory", lambda: 8 * 10**9)
    monkeypatch.setenv(GPUS, "4,7")
    monkeypatch.setattr(local, "check_device_here", lambda device: None)
    for request, runs in (
        (ResourceRequest(), 16),
        (ResourceRequest(threads=4), 4),
        (ResourceRequest(threads=32), 1),
        (ResourceRequest(40), 40),
        (ResourceRequest(memory=3 * 10**9), 2),
        (ResourceRequest(memory=9 * 10**9), 1),
        (ResourceRequest(device="cuda"), 16),
        (ResourceRequest(device="cuda", fills_gpu=True), 2),
        (ResourceRequest(device="cuda:1", fills_gpu=True), 1),
        (ResourceRequest(8, device="cuda", fills_gpu=True), 2),
        (ResourceRequest(device="cuda", fills_gpu=True, runs_per_gpu=2), 4),
        (ResourceRequest(fills_gpu=True), 16),
        (ResourceRequest(device="cuda", runs_per_gpu=3), 6),
        (ResourceRequest(device="cuda:1", runs_per_gpu=3), 3),
        (ResourceRequest(5, device="cuda", runs_per_gpu=3), 5),
    ):
        assert local.make(request).capacity == runs, request


@pytest.mark.parametrize(
    "device, runs, wanted", [("cuda", 4, [(0.25, None)]), ("cuda:1", 2, [(0.5, 1)]), ("cuda", 1, []), ("cpu", 2, [])]
)
def test_a_run_takes_its_share_of_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, runs: int, wanted: list[tuple[float, int | None]]
) -> None:
    found: list[tuple[float, int | None]] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *share: found.append(share))
    limit_gpu_memory(Job("id", "label", {"device": device}, root="", runs_per_gpu=runs))
    assert found == wanted


def test_a_worker_has_no_attention_of_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backward pass gives NaN for some masks (pytorch#196678)."""
    chosen: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", chosen.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(torch, "set_deterministic_debug_mode", lambda mode: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch_setup.set_up_worker(1)
    assert chosen == [False]


def test_a_worker_whose_libraries_cannot_be_imported_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(running, "worker", raising=False)
    monkeypatch.setitem(sys.modules, "staleharness.running.worker", None)
    here, there = multiprocessing.Pipe()
    local._in_child(Job("id", "label", {}, root=""), there, gpu="")
    message = here.recv()
    assert (message["event"], message["class"]) == ("failed", "ModuleNotFoundError")
    assert "staleharness.running.worker" in message["message"]


def test_workers_inherit_commit_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server asks for them once; a worker that asked again would take a tenth of a second for it."""
    pool = local.LocalPool(1, [])
    modules: list[str] = []
    monkeypatch.setattr(pool._context, "set_forkserver_preload", modules.extend)
    pool.open([], tmp_path)
    assert local.WORKER in modules
    code = "from staleharness.running.run_record import software; raise SystemExit(10 + software.cache_info().currsize)"
    worker = pool._context.Process(target=exec, args=(code,))
    worker.start()
    worker.join()
    pool.close()
    assert worker.exitcode == 11


def test_a_server_that_is_started_anew_hashes_like_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, seeds = local.LocalPool(1), list[str | None]()

    class Process:
        def __init__(self, **_: object) -> None: ...

        def start(self) -> None:
            seeds.append(os.environ.get("PYTHONHASHSEED"))

    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(pool._context, "Process", Process)
    pool.start(Job("0" * 12, "spo", {}, ""))
    assert seeds == ["0"] and "PYTHONHASHSEED" not in os.environ


def test_runs_are_spread_over_gpus(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    with loaded_plugins(HELPERS / "stubborn_toy.py"):
        runs = plan(sweep_request(env="stubborn", k="2", algo="spo", seeds="2")).runs
        pool = local.LocalPool(2, ["4", "7"])
        assert len(sweep(runs, store, pool, Silent()).done) == 2  # type: ignore[arg-type]
    logs = "".join(path.read_text() for path in tmp_path.glob("runs/*/log.txt"))
    assert logs.count("GPUs: 4 ") == logs.count("GPUs: 7 ") == 1


IN_PROCESSES = """
import gymnasium, numpy
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from staleharness.control.task import ControlTask
from staleharness.task import ENVS


class Point(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1, numpy.float32), {}

    def step(self, action):
        return self.np_random.random(1, numpy.float32), 0.0, False, False, {}


gymnasium.register("PointInProcess-v0", Point, max_episode_steps=5)


def point():
    return gymnasium.make("PointInProcess-v0")


@ENVS.register("points")
class Points(ControlTask):
    \"\"\"Points in processes of their own.\"\"\"

    ids = {"Points-v0": "points"}

    def make(self, env, num_envs, threads):
        return AsyncVectorEnv([point] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
"""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # gymnasium's way in this process
def test_processes_of_a_vector_in_a_worker_know_the_plugin(tmp_path: Path) -> None:
    file = tmp_path / "plugins" / "envs" / "points.py"  # of one kind: it is executed once
    file.parent.mkdir(parents=True)
    file.write_text(IN_PROCESSES)
    settings = "num_envs=1,num_steps=8,epochs=1,minibatches=1,evaluations=1,evaluation_episodes=1,final_episodes=1"
    asked = {"env": "Points-v0", "k": "1", "algo": "ppo_clip", "seeds": "1", "steps": "8", "settings": settings}
    with loaded_plugins(tmp_path / "plugins"):
        assert len(sweep_here(tmp_path / "out", **asked).done) == 1
