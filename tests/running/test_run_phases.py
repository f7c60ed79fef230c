"""Runs in the caller's own process leave it as it was: settings of torch and global generators, threads or not."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from known_plugins import loaded_plugins
from places import HELPERS

import staleharness as sh
from staleharness.chain.spec import ChainSpec
from staleharness.running import in_process_run

ASKED: dict[str, Any] = {"env": "Noisy-v0", "algo": "draws", "k": 2, "steps": 256, "num_envs": 2, "num_steps": 32}
ASKED |= {"epochs": 1, "minibatches": 2, "evaluations": 2, "evaluation_episodes": 1, "final_episodes": 1}


def _settings() -> tuple[int, int, bool]:
    return torch.get_deterministic_debug_mode(), torch.get_num_threads(), torch.backends.cuda.cudnn_sdp_enabled()


def _generators() -> tuple[Any, ...]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 (looked at, not used)
    return random.getstate(), str(numpy), torch.get_rng_state().tolist()


@pytest.fixture(autouse=True)
def caller_s_settings() -> Iterator[None]:
    """Other than those of a run."""
    before = _settings()
    torch.set_deterministic_debug_mode(1)
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.set_deterministic_debug_mode(before[0])
    torch.set_num_threads(before[1])
    torch.backends.cuda.enable_cudnn_sdp(before[2])


@pytest.fixture
def plugin() -> Iterator[None]:
    with loaded_plugins(HELPERS / "drawing_plugin.py"):
        yield


@pytest.mark.usefixtures("plugin")
def test_the_caller_s_generators_are_as_they_were_after_every_phase() -> None:
    before = _generators()
    simulation = sh.simulate(**ASKED)
    for _ in simulation:
        assert _generators() == before
    assert _generators() == before


@pytest.mark.usefixtures("plugin")
def test_a_run_does_not_depend_on_the_caller_s_generators() -> None:
    before = _generators()
    first = [(phase.metrics, phase.scores) for phase in sh.simulate(**ASKED)]
    random.random()
    np.random.random()  # noqa: NPY002 (the caller's draw)
    torch.rand(())
    again = []
    for phase in sh.simulate(**ASKED):
        again.append((phase.metrics, phase.scores))
        random.random()
    assert again == first and len({str(scores) for _, scores in first}) > 1
    random.setstate(before[0])


@contextlib.contextmanager
def _default(name: str, value: Any) -> Iterator[None]:
    before = getattr(torch, f"get_{name}")()
    getattr(torch, f"set_{name}")(value)
    yield
    assert getattr(torch, f"get_{name}")() == value
    getattr(torch, f"set_{name}")(before)


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: _default("default_dtype", torch.float64),
        lambda: _default("float32_matmul_precision", "medium"),
    ],
    ids=["no_grad", "inference", "autocast", "device", "dtype", "precision"],
)
def test_a_run_does_not_depend_on_the_caller_s_modes(mode: Callable[[], AbstractContextManager[None]]) -> None:
    chain: dict[str, Any] = {"env": "bit-chain", "algo": "vaco", "steps": 2, "horizon": 4, "batch": 8}
    for asked in (ASKED | {"env": "Pendulum", "algo": "vaco"}, chain):
        alone = [(phase.metrics, phase.scores) for phase in sh.simulate(**asked)]
        with mode():
            assert [(phase.metrics, phase.scores) for phase in sh.simulate(**asked)] == alone


class Turnstile:
    """A lock that says when somebody waits for it."""

    def __init__(self, waiting: threading.Event) -> None:
        self.lock, self.waiting = threading.RLock(), waiting

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self.waiting.set()
            self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_a_run_is_planned_while_no_other_is_in_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins load once, and an environment that is tried out draws from the global generators."""
    waiting, events = threading.Event(), list[str]()

    def plan(**arguments: Any) -> None:
        events.append("planned")
        waiting.set()
        raise sh.UserError("it cannot be run")

    def simulate() -> None:
        with pytest.raises(sh.UserError):
            sh.simulate(**ASKED)

    monkeypatch.setattr("staleharness.api.plan", plan)
    monkeypatch.setattr(in_process_run, "TURN", turn := Turnstile(waiting))
    thread = threading.Thread(target=simulate)
    with turn:
        thread.start()
        assert waiting.wait(600) and events == []
    thread.join(600)
    assert events == ["planned"]


@pytest.mark.parametrize(
    ("given", "words"),
    [({"device": "cuda"}, "sees no GPU on this machine"), ({"learner": "native"}, "needs a C[+][+] compiler")],
    ids=["GPU", "compiler"],
)
def test_a_machine_that_cannot_run_it_says_so_at_once(
    given: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CXX", "nowhere")
    with pytest.raises(sh.UserError, match=words):
        sh.simulate(env="Pendulum", algo="spo", **given)


class Overlapping:
    """Two simulations of one phase. The first stays inside until the second is inside, too, or waits to be; the second
    until the first has left."""

    def __init__(self) -> None:
        self.inside, self.arrived, self.left = (threading.Event() for _ in range(3))

    def of(self, spec: ChainSpec) -> Iterator[tuple[int, int, bool]]:
        class Simulation:
            def __iter__(inner) -> Iterator[tuple[int, int, bool]]:
                yield self.phase(spec.seed)

            def close(inner) -> None: ...

        return Simulation()  # type: ignore[return-value]

    def phase(self, seed: int) -> tuple[int, int, bool]:
        if seed == 0:
            self.inside.set()
            assert self.arrived.wait(600)
        else:
            self.arrived.set()
            assert self.left.wait(600)
        return _settings()


def test_runs_in_threads_restore_the_process_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    both, threads = Overlapping(), {0: 2, 1: 3}
    monkeypatch.setattr("staleharness.training.loop.simulation_of", both.of)
    monkeypatch.setattr(in_process_run, "TURN", Turnstile(both.arrived), raising=False)
    before, found = _settings(), {}

    def run(seed: int) -> None:
        records: Any = in_process_run.phases(
            ChainSpec(env="bit-chain", algorithm="spo", seed=seed, threads=threads[seed])
        )
        found[seed] = next(records)
        if seed == 0:
            both.left.set()
        records.close()

    first, second = (threading.Thread(target=run, args=(seed,)) for seed in threads)
    first.start()
    assert both.inside.wait(600)
    second.start()
    first.join(600)
    second.join(600)
    error = 2  # as torch numbers its modes
    assert found == {seed: (error, count, False) for seed, count in threads.items()}  # each had its own
    assert _settings() == before


def test_three_real_runs_in_threads_have_the_numbers_of_one() -> None:
    asked: dict[str, Any] = {"env": "bit-chain", "algo": "seq_is", "steps": 8, "horizon": 4, "batch": 8}
    alone = [phase.metrics for phase in sh.simulate(**asked)]
    before = _settings(), _generators()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append([phase.metrics for phase in sh.simulate(**asked)]))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert found == [alone] * 3 and (_settings(), _generators()) == before
