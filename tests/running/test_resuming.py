"""Sweeps that are stopped, killed and started again come to the same bits, and lose and double nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from sweeping import command, environment, hopper, metrics, phases_written, process, wait_until

PHASES = 120
STEPS = 64 * PHASES


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The metrics of two runs that nothing has stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    assert len(hopper(out, seeds=2, steps=STEPS).done) == 2
    return metrics(out)


@pytest.mark.parametrize("how", ["interrupt", "kill"])
def test_a_sweep_stopped_half_way_goes_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, str], how: str
) -> None:
    stopped = tmp_path / "stopped"
    stopping = subprocess.Popen(
        process(*command(stopped, "--seeds", "2", steps=STEPS)),
        env=environment(STALEHARNESS_CHECKPOINT_SECONDS="0.05"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: phases_written(stopped) >= 6)
    stopping.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    _, errors = stopping.communicate(timeout=120)
    if how == "interrupt":
        assert stopping.returncode == 130, errors
        assert "the same command goes on" in errors
        assert sorted((stopped / "attempts").glob("*/checkpoint-*.pt"))
    assert phases_written(stopped) < 2 * PHASES
    assert len(hopper(stopped, seeds=2, steps=STEPS).done) == 2
    assert metrics(stopped) == straight
    logs = [(path / "log.txt").read_text() for path in (stopped / "runs").iterdir()]
    assert any("resumed after phase" in log for log in logs)
    assert not list((stopped / "attempts").iterdir())


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    """SIGKILL the sweep at random times, workers sometimes with it, until it gets through."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    steps, rng = 64 * 150, random.Random(0)
    hopper(straight, algo="ppo_clip,vaco", seeds=2, steps=steps)
    words = process(*command(killed, "--seeds", "2", algo="ppo_clip,vaco", steps=steps))
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
    hopper(killed, algo="ppo_clip,vaco", seeds=2, steps=steps)
    assert kills >= 3 and metrics(killed) == metrics(straight)
