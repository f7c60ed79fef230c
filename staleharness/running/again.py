"""Which runs a sweep starts again by itself: one whose machine was lost, and one that ran out of memory beside others.

Any other failure would come again, and is for the next call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection

from ..base.logger import LOGGER
from .runner import OUT_OF_MEMORY, Ended, Runner

MOST_LOSSES = 4  # of a run within `WHILE` seconds; one more, and it is the run that its machines do not bear
WHILE = 600.0


class Again:
    """How much room a run is given, and whether it gets another try.

    After a run has run out of memory beside others, every run is given the room of two; then of four; until a run that
    does so was alone on its machine.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.share = 1  # of a machine's places that a run takes from now on
        self._shares: dict[str, int] = {}
        self._most: dict[str, int] = {}  # runs at a time, since this one was started
        self._lost: dict[str, deque[float]] = {}

    def room(self, active: Collection[str]) -> bool:
        """Whether one more run may be started beside those that are active."""
        return not active or sum(map(self._shares.__getitem__, active)) + self.share <= self.runner.capacity

    def started(self, active: Collection[str], run_id: str) -> int:
        """Note that a run is started, `active` with those beside it; returns its share."""
        self._shares[run_id], self._most[run_id] = self.share, 0
        self._most |= {other: max(self._most[other], len(active)) for other in active}
        return self.share

    def gets(self, ended: Ended) -> bool:
        """Whether this run is to be started again, and says so."""
        if ended.lost:
            return self._after_loss(ended)
        failed = ended.word is not None and ended.word.get("class") == "OOM"
        return (failed or (ended.word is None and ended.how.startswith(OUT_OF_MEMORY))) and self._wider(ended)

    def _after_loss(self, ended: Ended) -> bool:
        now = time.monotonic()
        times = self._lost.setdefault(ended.run_id, deque())
        times.append(now)
        while now - times[0] > WHILE:
            times.popleft()
        if len(times) > MOST_LOSSES:
            return False
        LOGGER.warning("run %s ended by %s; it is started again", ended.run_id, ended.how)
        return True

    def _wider(self, ended: Ended) -> bool:
        had = self._shares[ended.run_id]
        if had >= self.runner.neighbours or self._most[ended.run_id] < 2:
            return False
        self.share = max(self.share, min(2 * had, self.runner.neighbours))
        text = "run %s ran out of memory; it is started again, and from now on fewer run at a time (%d instead of %d)"
        places = self.runner.neighbours
        LOGGER.warning(text, ended.run_id, max(1, places // self.share), places // had)
        return True
