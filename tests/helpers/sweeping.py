"""Sweeps for tests: as a user starts them, and in this process, whose fork server they share."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from places import ROOT

from staleharness.running.plan import PlannedRun, plan
from staleharness.running.sweep import Outcome, sweep
from staleharness.store.store import Store
from staleharness.store.study import ask


class Silent:
    """Hears of a sweep and says nothing."""

    def started(self, run: PlannedRun) -> None: ...
    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def ended(self, run: PlannedRun, event: dict[str, Any]) -> None: ...
    def stopping(self) -> None: ...


class AtFirstPhase(Silent):
    """Does something once, when the first phase is done."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        if self.act is not None:
            self.act()
            self.act = None


def sweep_here(out: Path, jobs: int = 2, listener: Silent | None = None, **asked: str) -> Outcome:
    """A sweep by this process, without table and report (they take most of a small sweep's time)."""
    store = Store(out)
    store.open_for_writing()
    return sweep(plan(ask(**asked)).runs, store, jobs, listener or Silent())  # type: ignore[arg-type]


def environment(**more: str) -> dict[str, str]:
    """Of a process that runs the command line."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": "", "NO_COLOR": "1", **more}


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def phases_written(out: Path) -> int:
    """Lines of the logs of all runs under way."""
    return sum(path.read_bytes().count(b"\n") for path in (out / "attempts").glob("*/metrics.jsonl"))


def metrics(out: Path) -> dict[str, str]:
    """What must be the same whenever a run is made again: a hash of every phase's metrics, per run."""
    records = [json.loads((path / "run.json").read_text()) for path in sorted((out / "runs").iterdir())]
    return {record["id"]: record["metrics_sha256"] for record in records}
