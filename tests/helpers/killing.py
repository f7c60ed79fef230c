"""Sweeps that are killed in the middle, or whose workers are, and the parts of their results that must not change."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

from sweeping import Silent

from staleharness.base.files import digest
from staleharness.running.plan import PlannedRun
from staleharness.running.runners.local import LocalPool
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.store import Store

QUICKLY = Limits(checkpoint=0.02)
VARYING = ("seconds", "peak_memory", "checkpoint_bytes", "date")  # keys of a record that differ between repetitions


class Killer(Silent):
    """SIGKILLs the worker that reports a phase, after a random number of phases each time, `most` times in all."""

    def __init__(self, seed: int, most: int, apart: int) -> None:
        self.draw, self.most, self.apart = random.Random(seed), most, apart
        self.left = self.draw.randint(1, apart)
        self.killed: set[int] = set()
        self.pool = LocalPool(2)

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.left -= 1
        worker = self.pool._workers[run.run_id].process.pid
        if self.left <= 0 and len(self.killed) < self.most and worker not in self.killed:
            self.left = self.draw.randint(1, self.apart)
            with contextlib.suppress(ProcessLookupError):  # it had ended before its message was read
                os.kill(worker, signal.SIGKILL)
                self.killed.add(worker)


def swept(out: Path, runs: tuple[PlannedRun, ...], listener: Silent | None = None) -> Outcome:
    """A sweep by this process, of two workers that make checkpoints as often as they can."""
    store, listener = Store(out), listener or Silent()
    store.open_for_writing()
    pool = listener.pool if isinstance(listener, Killer) else LocalPool(2)
    return sweep(runs, store, pool, listener, QUICKLY)  # type: ignore[arg-type]


def files(out: Path) -> dict[str, str]:
    """Return the digest of each file of each finished run but its log, to which an ending process may still write."""
    runs = out / "runs"
    return {str(p.relative_to(runs)): digest(p) for p in sorted(runs.rglob("*")) if p.is_file() and p.name != "log.txt"}


def records(out: Path) -> dict[str, Any]:
    """Return the record of each run without `VARYING`, and the digest of its metrics."""
    found = {}
    for run in Store(out).read_all():
        record = {key: value for key, value in run.record.items() if key not in VARYING}
        record["fingerprint"] = {key: value for key, value in record["fingerprint"].items() if key != "commit"}
        found[run.id] = (json.dumps(record, sort_keys=True), digest(run.path / "metrics.parquet"))
    return found
