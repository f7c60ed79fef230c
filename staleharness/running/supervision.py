"""Supervision of a sweep's runs: retries, stalled runs, interrupts, and time limits from the environment."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..base.cancellation import STOP_SIGNALS, signal_handlers
from ..base.console_log import LOGGER
from ..base.text_formatting import duration
from ..errors import UserError, shorten
from .plan import PlannedRun
from .runner_interface import OUT_OF_MEMORY, RunEnd, Runner

MAX_LOSSES = 4  # of a run within `LOSS_WINDOW`; with one more the run fails
LOSS_WINDOW = 600.0  # seconds
LONGEST_LOOK = 60.0  # seconds from one look at the runs to the next; beyond that the sweep itself was stopped


class RetryPolicy:
    """Decides which runs start again at once: those that lost their machine, and those that ran out of memory beside
    others.

    Other failures would recur; the next call retries them. After a run has run out of memory beside others, every run
    gets the memory share of two, then of four, until the run that lacks memory is alone on its machine.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.share = 1  # places on a machine that a run takes from now on
        self._shares: dict[str, int] = {}
        self._concurrency: dict[str, int] = {}  # largest number of concurrent runs since this one was started
        self._losses: dict[str, list[float]] = {}

    def has_room(self, active: Collection[str]) -> bool:
        """Return whether one more run may start beside the active ones."""
        return not active or sum(map(self._shares.__getitem__, active)) + self.share <= self.runner.capacity

    def note_start(self, active: Collection[str], run_id: str) -> int:
        """Record the start of a run, which is `active` with the others; return its share."""
        self._shares[run_id], self._concurrency[run_id] = self.share, 0
        self._concurrency |= {other: max(self._concurrency[other], len(active)) for other in active}
        return self.share

    def should_retry(self, end: RunEnd) -> bool:
        """Return whether to start this run again, and log it."""
        if end.lost:
            return self._after_loss(end)
        own_error = end.message is not None and end.message.get("class") == "OOM"
        return (own_error or (end.message is None and end.cause.startswith(OUT_OF_MEMORY))) and self._widen(end)

    def _after_loss(self, end: RunEnd) -> bool:
        now = time.monotonic()
        times = [then for then in self._losses.get(end.run_id, []) if now - then <= LOSS_WINDOW] + [now]
        self._losses[end.run_id] = times
        if len(times) > MAX_LOSSES:
            return False
        LOGGER.warning("run %s ended by %s; it is started again", end.run_id, end.cause)
        return True

    def _widen(self, end: RunEnd) -> bool:
        share, places = self._shares[end.run_id], self.runner.per_machine
        if share >= places or self._concurrency[end.run_id] < 2:
            return False
        self.share = max(self.share, min(2 * share, places))
        text = "run %s ran out of memory; it is started again, and from now on fewer run at a time (%d instead of %d)"
        LOGGER.warning(text, end.run_id, max(1, places // self.share), places // share)
        return True


class Watchdog:
    """Finds runs without progress for `patience` seconds, by this process's monotonic clock alone. Time in which this
    process did not look at them, because it was stopped (Ctrl-Z), does not count."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._last: dict[str, float] = {}
        self._last_look = math.inf
        self._warned_runs: set[str] = set()
        self._stalls: set[str] = set()

    def note_progress(self, run_id: str) -> None:
        self._last[run_id] = time.monotonic()
        self._warned_runs.discard(run_id)

    def find_stalls(self, active: Mapping[str, PlannedRun]) -> list[str]:
        """Return the runs to kill; log once those that have waited for half of the time."""
        now = time.monotonic()
        if (gap := now - self._last_look) > LONGEST_LOOK:
            self._last = {run_id: min(now, last + gap) for run_id, last in self._last.items()}
        self._last_look = now
        silent = {run_id: now - self._last[run_id] for run_id in active}
        for run_id, seconds in silent.items():
            if seconds > self.patience / 2 and run_id not in self._warned_runs:
                self._warned_runs.add(run_id)
                left = duration(self.patience - seconds)
                text = "%s (%s) has made no progress for %s; it will be ended in %s (STALEHARNESS_STALL_SECONDS)"
                spec = active[run_id].spec
                name = f"{active[run_id].label} {spec.env} seed {spec.seed}"
                LOGGER.warning(text, name, run_id, duration(seconds), left)
        stalls = [run_id for run_id, seconds in silent.items() if seconds > self.patience]
        self._stalls.update(stalls)
        return stalls

    def explain(self, end: RunEnd) -> RunEnd:
        """Return the end of a run, with the stall as its cause if the run was killed for it."""
        if end.run_id not in self._stalls:
            return end
        self._stalls.discard(end.run_id)
        return replace(end, failure_class="Stalled", cause=f"a stall: no progress for {duration(self.patience)}")


@contextlib.contextmanager
def note_interrupts() -> Iterator[list[int]]:
    """Collect requests to stop, by Ctrl-C, a batch system or a closed terminal, instead of ending the process: the
    numbers of the signals. Signals ignored before (nohup) stay ignored."""
    interrupts: list[int] = []

    def note(number: int, frame: object) -> None:
        """Note a signal. Only Ctrl-C counts as a second one: make and shells pass on signals that every process has
        already received."""
        if not interrupts or number == signal.SIGINT:
            interrupts.append(number)

    caught_signals = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with signal_handlers(dict.fromkeys(caught_signals, note)):
        yield interrupts


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds."""

    checkpoint: float = 30.0
    """Time between two checkpoints: a killed run loses about this much work."""

    stall: float = 3600.0
    """Time without a phase after which a run is killed; a warning comes after half of it."""


def limits_from_environment() -> Limits:
    """Read `$STALEHARNESS_CHECKPOINT_SECONDS` and `$STALEHARNESS_STALL_SECONDS`. Raises `UserError`."""
    default = Limits()
    stall = _seconds("STALL", default.stall)
    if not stall:
        raise UserError("STALEHARNESS_STALL_SECONDS=0 would end every run at once; give more, or inf for no limit")
    return Limits(_seconds("CHECKPOINT", default.checkpoint), stall)


def _seconds(name: str, default: float) -> float:
    variable = f"STALEHARNESS_{name}_SECONDS"
    text = os.environ.get(variable, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise UserError(f"{variable}={shorten(text)!r} is not a number of seconds")
    return seconds
