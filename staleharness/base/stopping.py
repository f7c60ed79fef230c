"""Whether this process was asked to end, for work that takes long and is no phase of a run.

A run is asked after every phase. What is done before the first one, such as supervised learning, asks here; in a
process that nobody listens for, `check` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Interrupted

_asked: list[Callable[[], bool]] = []


def listen(asked: Callable[[], bool]) -> None:
    """From now on `check` asks this."""
    _asked[:] = [asked]


def check(at: str) -> None:
    """Raise `Interrupted` where somebody asked the process to end; `at` says what it was doing."""
    if any(asked() for asked in _asked):
        raise Interrupted(f"stopped before the first phase ({at})")
