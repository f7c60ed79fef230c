"""Runs with processes: one of them is killed, and what such a run and its replay have in common."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def kill_one(processes: Any) -> None:
    """And wait for what its successor makes."""
    fleet = processes.fleet
    begun = fleet.next_number
    os.kill(next(iter(fleet.pids.values())), signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    while not any(e.actor >= begun and e.made_at is not None for e in fleet.recorder.entries):
        assert time.monotonic() < deadline, "nobody took its place"
        time.sleep(0.01)


def but_assigned(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the lags that a model assigned: a race assigns none, and its replay those that came about."""
    return [{k: v for k, v in m.items() if k != "lags/assigned"} for m in metrics]
