"""Sweeps as a user runs them: real workers, real failures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_plugins import loaded_plugins
from sweeping import AtPhase, command, hopper, message, metrics, staleharness, without_report

from staleharness.store.store import Store

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


@pytest.fixture
def no_report() -> Iterator[None]:
    with without_report():
        yield


def plugin(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    return path


@pytest.mark.usefixtures("no_report")
@pytest.mark.long
def test_a_repeated_sweep_runs_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = staleharness(*command(out, "--seeds", "2", "--json"))
    assert first.returncode == 0, first.stderr
    content = message(first)
    made = content["runs"]["done"]
    assert len(made) == 2 and content["runs"] == {"done": made, "failed": [], "skipped": []}
    (row,) = content["table"]
    assert (row["algorithm"], row["env"], row["capacity"], row["n_runs"]) == ("ppo_clip", "Hopper-v5", 2, 2)
    before = metrics(out)
    again = message(staleharness(*command(out, "--seeds", "2", "--json")))
    assert again["table"] == content["table"]
    assert (again["runs"]["done"], again["runs"]["failed"]) == ([], [])
    assert sorted(again["runs"]["skipped"]) == sorted(made)
    larger = staleharness(*command(out, "--seeds", "3", "--json", algo="ppo_clip,spo"))
    assert larger.returncode == 0, larger.stderr
    assert len(message(larger)["runs"]["done"]) == 4 and len(message(larger)["runs"]["skipped"]) == 2
    assert {name: metrics(out)[name] for name in before} == before
    record = json.loads((out / "runs" / made[0] / "run.json").read_text())
    assert record["steps"] == 640 and sum(record["lag_histogram"].values()) == 640
    assert len(record["scores"]["sampled"]["returns"]) == 2
    assert {"torch", "mujoco", "threads", "cpu", "commit"} <= set(record["fingerprint"])


@pytest.mark.usefixtures("no_report")
def test_a_run_that_fails_takes_only_itself_along(tmp_path: Path) -> None:
    out, path = tmp_path / "out", plugin(tmp_path, FAILING)
    ways = "failing[how=loss],failing[how=kill],failing[how=raise],failing[how=not],ppo_clip"
    with loaded_plugins(path):
        done = staleharness(*command(out, "--seeds", "1", "--json", algo=ways))
    assert done.returncode == 1
    content = message(done)
    assert len(content["runs"]["done"]) == 2 and len(content["runs"]["failed"]) == 3
    for words in (
        "Diverged: policy_loss is not finite",
        "Killed: the worker was ended by signal SIGKILL",
        "ArithmeticError:",
    ):
        assert words in done.stderr
    assert "3 of 5 runs missing" in " ".join(content["notes"])
    for name in ("Diverged", "Killed", "ArithmeticError"):
        assert name in " ".join(content["notes"])
    assert "\x1b[31m" not in done.stderr
    failures = [json.loads(p.read_text()) for p in sorted((out / "attempts").glob("*/failure.json"))]
    assert sorted(f["class"] for f in failures) == ["ArithmeticError", "Diverged", "Killed"]
    assert any("in policy_loss\n" in f["log_tail"] for f in failures), "the end of the traceback"
    state = message(staleharness("status", "--out", str(out), "--json"))
    assert state["counts"] == {"done": 2, "running": 0, "stopped": 0, "failed": 3}


def test_an_environment_that_raises_marks_its_run_failed(tmp_path: Path) -> None:
    with loaded_plugins(plugin(tmp_path, BROKEN_ENV)):
        outcome = hopper(tmp_path / "out", env="Breaks-v0")
    (failure,) = outcome.failed.values()
    assert failure["class"] == "ConnectionError"
    assert re.fullmatch(r"the simulator is gone \(plugin\.py, line 11; phase \d\)", failure["message"])


def test_a_worker_that_ends_itself_is_not_called_killed(tmp_path: Path) -> None:
    leaving = BROKEN_ENV.replace('raise ConnectionError("the simulator is gone")', "import os; os._exit(0)")
    with loaded_plugins(plugin(tmp_path, leaving)):
        outcome = hopper(tmp_path / "out", env="Breaks-v0")
    (failure,) = outcome.failed.values()
    assert (failure["class"], failure["message"]) == ("Exited", "the worker exited on its own with exit code 0")


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = []

    def ask_too() -> None:
        asked.append(staleharness(*command(out, "--seeds", "2")))

    (done,) = hopper(out, listener=AtPhase(ask_too)).done
    (second,) = asked
    assert second.returncode == 2
    assert f"another sweep (process {os.getpid()})" in second.stderr and "Traceback" not in second.stderr
    assert [run.name for run in (out / "runs").iterdir()] == [done]


def test_a_damaged_run_is_put_aside_and_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = tmp_path / "out"
    hopper(out)
    before = metrics(out)
    (run,) = (out / "runs").iterdir()
    content = (run / "metrics.parquet").read_bytes()
    (run / "metrics.parquet").write_bytes(content[: len(content) // 2])
    assert Store(out).read_all() == []
    assert "is damaged and does not count (metrics.parquet differs from the manifest)" in caplog.text
    assert len(hopper(out).done) == 1
    assert [path.name for path in (out / "damaged").iterdir()] == [run.name]
    assert metrics(out) == before
