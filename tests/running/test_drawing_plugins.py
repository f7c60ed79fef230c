"""Sweeps of plugins that draw from global generators, or look at hashes: stopped, killed, made again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killing import Killer, swept
from known_plugins import loaded_plugins
from places import HELPERS
from sweeping import TINY, AtPhase, environment, metrics, sweep_here

from staleharness.running.plan import plan
from staleharness.store.study import ask

WITHOUT_FIGURES = """
from staleharness import cli
from staleharness.figures import named_figures
named_figures.sections = lambda results: []
cli.main()
"""
PLUGIN = HELPERS / "drawing_plugin.py"
STEPS = 64 * 40  # forty phases
ASKED = {"env": "Noisy-v0", "k": "2", "algo": "draws", "seeds": "2", "steps": str(STEPS), "settings": TINY}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The metrics of two runs that nothing has stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    with loaded_plugins(PLUGIN):
        assert len(sweep_here(out, **ASKED).done) == 2
    found = metrics(out)
    assert len(set(found.values())) == 2
    return found


def test_an_interrupted_sweep_goes_on_to_the_same_bits(tmp_path: Path, straight: dict[str, str]) -> None:
    interrupt = AtPhase(lambda: os.kill(os.getpid(), signal.SIGINT), 6)
    with loaded_plugins(PLUGIN):
        assert sweep_here(tmp_path, listener=interrupt, **ASKED).interrupted
        assert sorted((tmp_path / "attempts").glob("*/checkpoint-*.pt"))
        assert len(sweep_here(tmp_path, **ASKED).done) == 2
    assert metrics(tmp_path) == straight


def test_killed_workers_go_on_to_the_same_bits(tmp_path: Path, straight: dict[str, str]) -> None:
    with loaded_plugins(PLUGIN):
        runs = plan(ask(**ASKED)).runs
        killer = Killer(seed=3, most=2, apart=20)
        assert swept(tmp_path, runs, killer).failed and killer.killed
        assert len(swept(tmp_path, runs).done) == len(killer.killed)
    assert metrics(tmp_path) == straight


def test_hash_seeds_do_not_change_bits(tmp_path: Path) -> None:
    asked = f"sweep --env Noisy-v0 --k 2 --algo draws[source=hash] --seeds 1 --steps 256 --set {TINY}".split()
    places = [tmp_path / seed for seed in ("1", "2")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_FIGURES, *asked, "--plugin", str(PLUGIN), "--out", str(out)],
            env=environment(PYTHONHASHSEED=out.name),
            stdout=subprocess.DEVNULL,
        )
        for out in places
    ]
    assert [each.wait(timeout=300) for each in running] == [0, 0]
    first, second = map(metrics, places)
    assert first == second and len(first) == 1
