"""Memory that grows steadily is said, and nothing else is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from known_plugins import loaded_plugins
from places import HELPERS
from sweeping import sweep_here

from staleharness.running.memory_leak_warning import growth_warnings, in_megabytes, steady_growth
from staleharness.statistics.table_notes import on_warnings
from staleharness.store.store import Store

T = np.arange(100)
NOISE = np.random.default_rng(0).normal(size=100)


@pytest.mark.parametrize(
    ("memory", "slope"),
    [
        (300 + 5.0 * T, 5.0),
        (300 + 5.0 * T + 10 * NOISE, 5.0),
        (300 + 20.0 * (T // 4), 5.0),  # an allocator takes in large pieces
        (300 + 6.0 * T[:41], 6.0),
        (4000 + 20.0 * T, 20.0),
        (np.concatenate([300 + 5.0 * T, 300 + 5.0 * T[:30]]), 5.0),  # a resumed run, in two processes
        (np.concatenate([300 + 5.0 * T[:30], 300 + 5.0 * T]), 5.0),
        (np.where(T < 60, np.where(T % 20 == 5, 5000.0, 300 + 5.0 * T), 300 + 5.0 * T), 5.0),  # spikes
    ],
    ids=["a line", "noisy", "in steps", "forty phases", "large", "resumed late", "resumed early", "spikes"],
)
def test_steady_growth_has_its_slope(memory: np.ndarray, slope: float) -> None:
    assert steady_growth(memory.tolist(), 1) == pytest.approx(slope, rel=0.15)


@pytest.mark.parametrize(
    "memory",
    [
        np.full(100, 300.0),
        300 + 100 * NOISE,
        np.where(T < 75, 300.0, 900.0),  # one jump
        300 + 200 * np.sin(T / 5),
        300 + 50.0 * np.minimum(T, 60),  # grows, and stops within the half
        300 + 50.0 * np.minimum(T, 90),
        300 + 1.5 * T,  # less than 100 MB over the half
        4000 + 5.0 * T,  # less than a tenth
        300 + 9.0 * T[:39],  # nineteen phases in the half
        1000 - 5.0 * T,
    ],
    ids=["flat", "noise", "a jump", "a swing", "stops", "stops late", "little", "a small share", "short", "falls"],
)
def test_nothing_else_is_steady_growth(memory: np.ndarray) -> None:
    assert steady_growth(memory.tolist(), 1) is None


def test_a_buffer_that_fills_is_no_growth() -> None:
    fills = 300 + 5.0 * np.minimum(T, 70)
    assert steady_growth(fills.tolist(), 70) is None
    assert steady_growth((300 + 5.0 * T).tolist(), 100) is None
    assert steady_growth((300 + 6.0 * T).tolist(), 60) == pytest.approx(6.0)


def test_what_was_not_measured_is_no_growth() -> None:
    assert steady_growth([None] * 100, 1) is None
    half = [None if t % 2 else 300 + 5.0 * t for t in range(100)]
    assert steady_growth(half, 1) is None
    earlier = [*[None] * 50, *(300 + 5.0 * T).tolist()]  # a run that an earlier version began
    assert steady_growth(earlier, 1) == pytest.approx(5.0)
    assert in_megabytes(None) is None and in_megabytes(123_456_789) == 123.5


def test_the_warning_is_one_line_with_a_round_number() -> None:
    (line,) = growth_warnings((300 + 5.2 * T).tolist(), 1)
    assert "about 5 MB a phase" in line and "\n" not in line
    (large,) = growth_warnings((300 + 12.0 * T).tolist(), 1)
    assert "about 10 MB a phase" in large
    assert growth_warnings(np.full(100, 300.0).tolist(), 1) == []


ASKED = {"k": "1", "algo": "ppo_clip", "seeds": "1", "steps": "1920"}  # sixty phases
SETTINGS = "num_envs=1,num_steps=32,epochs=1,minibatches=1,evaluations=1,evaluation_episodes=1,final_episodes=1"


def test_a_leak_is_in_the_record_the_log_and_the_notes(tmp_path: Path) -> None:
    with loaded_plugins(HELPERS / "leaking_env.py"):
        assert sweep_here(tmp_path, env="Leaking-v0", settings=SETTINGS, **ASKED).done
    (run,) = Store(tmp_path).read_all()
    (line,) = run.record["warnings"]
    assert line.startswith("memory grew steadily, by about 5 MB a phase")
    assert f"warning: {line}" in (run.path / "log.txt").read_text()
    assert any(line in note for note in on_warnings([run]))
    memory = run.timing()["memory_mb"]
    assert len(memory) == 60 and memory.iloc[-1] - memory.iloc[0] > 59 * 4
    assert "memory_mb" not in run.record["seconds"] and "memory_mb" not in run.metrics()


def test_an_environment_that_does_not_leak_is_not(tmp_path: Path) -> None:
    with loaded_plugins(HELPERS / "leaking_env.py"):
        assert sweep_here(tmp_path, env="Sound-v0", settings=SETTINGS, **ASKED).done
    (run,) = Store(tmp_path).read_all()
    assert run.record["warnings"] == []
    memory = pd.read_parquet(run.path / "timing.parquet")["memory_mb"]
    assert (memory > 10).all() and json.loads((run.path / "run.json").read_text())["seconds"]["collect"] > 0
