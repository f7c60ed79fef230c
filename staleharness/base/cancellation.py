"""Cooperative cancellation: long work in a process reports progress and ends when a stop is requested.

The loop of a run reports and checks after every phase. Work before the first phase, such as supervised learning,
calls `report`; long work within a phase, such as an evaluation, calls `check_stop`. Without a listener both do nothing.
`signal_handlers` replaces the handlers of signals for a block, such as those of `STOP_SIGNALS`.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Interrupted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a batch system, a closed terminal

REPORT_EVERY = 1.0  # seconds between two reports


@dataclass
class _StopListener:
    stop_requested: Callable[[], bool]
    on_progress: Callable[[str], None]
    last_report: float = float("-inf")


_listeners: list[_StopListener] = []  # at most one


def listen(stop_requested: Callable[[], bool], on_progress: Callable[[str], None] = lambda activity: None) -> None:
    """Set the listener of this process: `report` calls `on_progress`, and a requested stop raises `Interrupted`."""
    _listeners[:] = [_StopListener(stop_requested, on_progress)]


def report(activity: str) -> None:
    """Report what the process is doing, at most once a second. Raises `Interrupted` on a requested stop."""
    for listener in _listeners:
        if listener.stop_requested():
            raise Interrupted(f"stopped before the first phase ({activity})")
        if (now := time.monotonic()) - listener.last_report >= REPORT_EVERY:
            listener.last_report = now
            listener.on_progress(activity)


def check_stop(activity: str) -> None:
    """Raise `Interrupted` on a requested stop."""
    if any(listener.stop_requested() for listener in _listeners):
        raise Interrupted(f"stopped during {activity}")


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Set handlers of signals; restore the earlier ones afterwards."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
