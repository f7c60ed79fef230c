"""Sweeps as a user runs them: whole processes, real failures."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from staleharness.running.plan import PlannedRun, plan
from staleharness.running.sweep import Outcome, sweep
from staleharness.store.store import Store
from staleharness.store.study import ask

TINY = "num_envs=2,num_steps=32,epochs=2,minibatches=2,evaluations=2,evaluation_episodes=1,final_episodes=2"

FAILING = '''
import os, signal
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
from staleharness.objectives import importance_ratio

@ALGORITHMS.register("failing")
@dataclass(frozen=True)
class Failing(Algorithm):
    """Fails in the way it is told to."""
    how: str = "loss"
    def policy_loss(self, d):
        if d.gradient_lag.max() >= 0 and self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raise":
            raise ArithmeticError("\\x1b[31mno such number\\x1b[0m")
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        return PolicyLoss(-ratio * d.advantage * (float("nan") if self.how == "loss" else 1.0))
'''

BROKEN_ENV = '''
import gymnasium
from staleharness.control.task import ControlTask
from staleharness.task import ENVS

class Breaks(gymnasium.Wrapper):
    steps = 0
    def step(self, action):
        Breaks.steps += 1
        if Breaks.steps > 200:
            raise ConnectionError("the simulator is gone")
        return super().step(action)

@ENVS.register("broken")
class Broken(ControlTask):
    """Breaks after a while."""
    ids = {"Breaks-v0": "a pendulum that breaks"}
    def make(self, env, num_envs, threads):
        from staleharness.control.replay_state import ReplayState
        mode = gymnasium.vector.AutoresetMode.DISABLED
        make = lambda: Breaks(gymnasium.make("Pendulum-v1"))
        return ReplayState(gymnasium.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=mode))
'''


def command(out: Path, *arguments: str, algo: str = "ppo_clip", steps: int = 640) -> list[str]:
    fixed = [
        "--env",
        "Hopper",
        "--k",
        "2",
        "--algo",
        algo,
        "--set",
        TINY,
        "--steps",
        str(steps),
        "--out",
        str(out),
    ]
    return [sys.executable, "-m", "staleharness", "sweep", *fixed, "--jobs", "2", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": "", **more}


class Silent:
    """Hears of a sweep and says nothing."""

    def started(self, run: PlannedRun) -> None: ...
    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def ended(self, run: PlannedRun, event: dict[str, Any]) -> None: ...
    def stopping(self) -> None: ...


def sweep_here(
    out: Path, *, algo: str = "ppo_clip", env: str = "Hopper", seeds: int = 1, steps: int = 640
) -> Outcome:
    """The same sweep as `command`, without table and report (they take most of a small sweep's time)."""
    asked = ask(env=env, k="2", algo=algo, seeds=str(seeds), steps=str(steps), settings=TINY)
    store = Store(out)
    store.open_for_writing()
    return sweep(plan(asked).runs, store, 2, Silent())


def call(out: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = command(out, *arguments, **options)
    return subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=300)


def outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def metrics(out: Path) -> dict[str, str]:
    """What must be the same whenever a run is made again: a hash of every phase's metrics, per run."""
    records = [json.loads((path / "run.json").read_text()) for path in sorted((out / "runs").iterdir())]
    return {record["id"]: record["metrics_sha256"] for record in records}


def plugin(tmp_path: Path, text: str, name: str = "plugin.py") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_the_same_command_again_runs_nothing_and_a_larger_one_runs_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = call(out, "--seeds", "2", "--json")
    assert first.returncode == 0, first.stderr
    content = outcome(first)
    assert (
        len(content["runs"]["done"]) == 2
        and content["runs"]["failed"] == []
        and content["runs"]["skipped"] == []
    )
    (row,) = content["table"]
    assert (row["algorithm"], row["env"], row["capacity"], row["n_runs"]) == ("ppo_clip", "Hopper-v5", 2, 2)
    page = Path(content["report"])
    assert page.is_file() and "<svg" in page.read_text()
    before = metrics(out)
    again = call(out, "--seeds", "2", "--json")
    assert outcome(again)["table"] == content["table"]
    assert outcome(again)["runs"] == {
        "done": [],
        "failed": [],
        "skipped": sorted(content["runs"]["done"]),
    } or (sorted(outcome(again)["runs"]["skipped"]) == sorted(content["runs"]["done"]))
    larger = call(out, "--seeds", "3", "--json", algo="ppo_clip,spo")
    assert larger.returncode == 0, larger.stderr
    assert len(outcome(larger)["runs"]["done"]) == 4 and len(outcome(larger)["runs"]["skipped"]) == 2
    assert {name: metrics(out)[name] for name in before} == before
    record = json.loads((out / "runs" / content["runs"]["done"][0] / "run.json").read_text())
    assert record["steps"] == 640 and sum(record["lag_histogram"].values()) == 640
    assert len(record["scores"]["sampled"]["returns"]) == 2
    assert {"torch", "mujoco", "threads", "cpu", "commit"} <= set(record["fingerprint"])


def test_a_run_that_fails_takes_only_itself_along(tmp_path: Path) -> None:
    out, path = tmp_path / "out", plugin(tmp_path, FAILING)
    ways = "failing[how=loss],failing[how=kill],failing[how=raise],failing[how=not],ppo_clip"
    done = call(out, "--seeds", "1", "--json", "--plugin", path, algo=ways)
    assert done.returncode == 1
    content = outcome(done)
    assert len(content["runs"]["done"]) == 2 and len(content["runs"]["failed"]) == 3
    for words in (
        "Diverged: policy_loss is not finite",
        "Killed: the worker ended by signal SIGKILL",
        "ArithmeticError:",
    ):
        assert words in done.stderr
    assert "3 of 5 runs missing" in " ".join(content["notes"])
    for name in ("Diverged", "Killed", "ArithmeticError"):
        assert name in " ".join(content["notes"])
    assert "\x1b[31m" not in done.stderr
    failures = [json.loads(p.read_text()) for p in sorted((out / "attempts").glob("*/failure.json"))]
    assert sorted(f["class"] for f in failures) == ["ArithmeticError", "Diverged", "Killed"]
    assert any("Traceback" in f["log_tail"] for f in failures)
    state = subprocess.run(
        [sys.executable, "-m", "staleharness", "status", "--out", str(out), "--json"],
        capture_output=True, text=True, env=environment(), check=True,
    )  # fmt: skip
    assert json.loads(state.stdout)["counts"] == {"done": 2, "running": 0, "stopped": 0, "failed": 3}


def test_an_environment_that_raises_marks_its_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALEHARNESS_PLUGINS", plugin(tmp_path, BROKEN_ENV))
    outcome = sweep_here(tmp_path / "out", env="Breaks-v0")
    (failure,) = outcome.failed.values()
    assert (failure["class"], failure["message"]) == ("ConnectionError", "the simulator is gone")


def wait_until(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def lines_written(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (out / "attempts").glob("*/metrics.jsonl"))


@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_a_sweep_stopped_half_way_goes_on_to_the_same_bits(tmp_path: Path, how: str) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    steps = 64 * 250
    assert len(sweep_here(straight, seeds=2, steps=steps).done) == 2
    stopping = subprocess.Popen(
        command(stopped, "--seeds", "2", steps=steps), env=environment(STALEHARNESS_CHECKPOINT_SECONDS="0.05"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: lines_written(stopped) >= 6)
    stopping.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    _, errors = stopping.communicate(timeout=120)
    if how == "interrupt":
        assert stopping.returncode == 130, errors
        assert "the same command goes on" in errors
        assert sorted((stopped / "attempts").glob("*/checkpoint-*.pt"))
    assert lines_written(stopped) < 500
    assert len(sweep_here(stopped, seeds=2, steps=steps).done) == 2
    assert metrics(stopped) == metrics(straight)
    logs = [(path / "log.txt").read_text() for path in (stopped / "runs").iterdir()]
    assert any("resumed after phase" in log for log in logs)
    assert not list((stopped / "attempts").iterdir())


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = subprocess.Popen(
        command(out, "--seeds", "1", steps=64 * 400),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: lines_written(out) > 0)
        second = call(out, "--seeds", "2")
        assert second.returncode == 2
        assert "another sweep (process" in second.stderr and "Traceback" not in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=120)


def test_a_damaged_run_is_put_aside_and_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    sweep_here(out)
    before = metrics(out)
    (run,) = (out / "runs").iterdir()
    content = (run / "metrics.parquet").read_bytes()
    (run / "metrics.parquet").write_bytes(content[: len(content) // 2])
    assert Store(out).read_all() == []
    assert (
        "is damaged and does not count (metrics.parquet differs from the manifest)" in capsys.readouterr().err
    )
    assert len(sweep_here(out).done) == 1
    assert [path.name for path in (out / "damaged").iterdir()] == [run.name]
    assert metrics(out) == before


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    """SIGKILL the sweep at random times, workers sometimes with it, until it gets through."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    steps, rng = 64 * 150, random.Random(0)
    sweep_here(straight, algo="ppo_clip,vaco", seeds=2, steps=steps)
    words = command(killed, "--seeds", "2", algo="ppo_clip,vaco", steps=steps)
    kills, finished = 0, set()
    while kills < 20:
        running = subprocess.Popen(
            words,
            env=environment(STALEHARNESS_CHECKPOINT_SECONDS="0.5"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            running.communicate(timeout=rng.uniform(1.0, 6.0))
            break
        except subprocess.TimeoutExpired:
            kills += 1
            if rng.random() < 0.5:
                os.killpg(running.pid, signal.SIGKILL)  # the fork server and all workers, too
            else:
                running.kill()
            running.communicate()
        runs = metrics(killed) if (killed / "runs").is_dir() else {}
        assert finished <= set(runs), "a finished run is gone"
        finished = set(runs)
    sweep_here(killed, algo="ppo_clip,vaco", seeds=2, steps=steps)
    assert kills >= 3 and metrics(killed) == metrics(straight)
