"""Who has not been heard of for long: a run without progress is said, and ended in the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from ..base.logger import LOGGER
from ..base.text import duration
from .plan import PlannedRun
from .runner import Ended

STALLED = "a stall"  # begins `Ended.how`


class Watch:
    """`patience` seconds without a phase are a stall. Only what this process hears counts, by a clock that nobody can
    set: neither the time of day nor that of a file system."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._heard: dict[str, float] = {}
        self._said: set[str] = set()
        self._ended: set[str] = set()

    def heard(self, run_id: str) -> None:
        self._heard[run_id] = time.monotonic()
        self._said.discard(run_id)

    def overdue(self, active: Mapping[str, PlannedRun]) -> list[str]:
        """The runs to be ended; those that are half way there are said, once."""
        now = time.monotonic()
        silent = {run_id: now - self._heard[run_id] for run_id in active}
        for run_id, seconds in silent.items():
            if seconds > self.patience / 2 and run_id not in self._said:
                self._said.add(run_id)
                left = duration(self.patience - seconds)
                text = "%s (%s) has made no progress for %s; it will be ended in %s (STALEHARNESS_STALL_SECONDS)"
                spec = active[run_id].spec
                name = f"{active[run_id].label} {spec.env} seed {spec.seed}"
                LOGGER.warning(text, name, run_id, duration(seconds), left)
        overdue = [run_id for run_id, seconds in silent.items() if seconds > self.patience]
        self._ended.update(overdue)
        return overdue

    def why(self, ended: Ended) -> Ended:
        """The end of a run, for what it was."""
        if ended.run_id not in self._ended:
            return ended
        self._ended.discard(ended.run_id)
        return replace(ended, kind="Stalled", how=f"a stall: no progress for {duration(self.patience)}")
