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


def of_the_learner(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the accounts of what waits and is dropped, which a replay makes at other times."""
    own = ("sequences/", "decisions/", "lags/assigned", "lags/realised")
    return [{k: v for k, v in m.items() if not k.startswith(own)} for m in metrics]
