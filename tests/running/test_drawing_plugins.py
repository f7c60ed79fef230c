"""Sweeps of plugins that draw from global generators, or look at hashes: stopped, killed, made again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from kill_points import STAYS_AT, waiting_child
from killing import Killer, swept
from known_plugins import loaded_plugins
from places import HELPERS
from sweeping import TINY, AtPhase, environment, metrics, process, sweep_here

from staleharness.running.plan import plan
from staleharness.running.runners import local
from staleharness.study import sweep_request

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


@pytest.mark.long
def test_an_interrupted_sweep_goes_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = AtPhase(lambda: os.kill(os.getpid(), signal.SIGINT), STAYS_AT)
    with loaded_plugins(PLUGIN):
        with monkeypatch.context() as patch:
            patch.setattr(local, "_in_child", waiting_child)
            assert sweep_here(tmp_path, listener=interrupt, **ASKED).interrupted
        assert sorted((tmp_path / "attempts").glob("*/checkpoint-*.pt"))
        assert len(sweep_here(tmp_path, **ASKED).done) == 2
    assert metrics(tmp_path) == straight


@pytest.mark.long
def test_killed_workers_go_on_to_the_same_bits(
    tmp_path: Path, straight: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded_plugins(PLUGIN):
        runs = plan(sweep_request(**ASKED)).runs
        killer = Killer(seed=3, most=2, apart=STAYS_AT // 2)  # of what two workers say, before both stay where they are
        with monkeypatch.context() as patch:
            patch.setattr(local, "_in_child", waiting_child)
            assert len(swept(tmp_path, runs, killer).failed) == len(killer.killed) == 2
        assert len(swept(tmp_path, runs).done) == 2
    assert metrics(tmp_path) == straight


@pytest.mark.long
def test_hash_seeds_do_not_change_bits(tmp_path: Path) -> None:
    asked = ASKED | {"algo": "draws[source=hash]", "seeds": "1", "steps": "256"}
    words = [f"--{'set' if name == 'settings' else name}={value}" for name, value in asked.items()]
    here, there = tmp_path / "here", tmp_path / "there"
    sweeps = [  # in processes of their own: that of the tests shares a server that any test may have started
        subprocess.Popen(
            process("sweep", *words, "--plugin", str(PLUGIN), "--out", str(out)),
            env=environment(PYTHONHASHSEED=seed),
            stdout=subprocess.DEVNULL,
        )
        for out, seed in ((here, "1"), (there, "2"))
    ]
    assert [sweep.wait(timeout=600) for sweep in sweeps] == [0, 0]
    assert metrics(here) == metrics(there) and len(metrics(here)) == 1
