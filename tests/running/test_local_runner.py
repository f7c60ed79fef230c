"""The local pool: what its processes have loaded, and what the sweeping one has not."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from staleharness.running.runners import local
from staleharness.task import all_families


def test_what_is_loaded_before_workers_fork_can_be_loaded() -> None:
    named = {module for family in all_families() for module in family.preload}
    assert named and importlib.util.find_spec(local.WORKER) is not None
    for module in named:
        if module.startswith("staleharness.language"):
            pytest.importorskip("transformers")
        importlib.import_module(module)


SWEEP = """
import sys
from staleharness.running.plan import plan
from staleharness.running.sweep import sweep
from staleharness.store.store import Store
from staleharness.store.study import ask

class Silent:
    started = phase = ended = stopping = lambda self, *what: None

store = Store(sys.argv[1])
store.open_for_writing()
runs = plan(ask(env="random-mdp-0", k="2", algo="spo", seeds="1", steps="640")).runs
print(len(sweep(runs, store, 1, Silent()).done), "torch" in sys.modules)
"""


def test_the_sweeping_process_loads_no_torch(tmp_path: Path, tabular: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": str(tabular)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout == "1 False\n", done.stderr
