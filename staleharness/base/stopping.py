"""Work that takes long inside a process that may be asked to end: it says how far it is, and asks whether to go on.

A run is heard and asked after every phase. What is done before the first one, such as supervised learning, says and
asks here with `check`; what may take long within a phase, such as an evaluation, asks with `heed`. In a process that
nobody listens for, both do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import Interrupted

EVERY = 1.0  # seconds between two things that are said


@dataclass
class _Listener:
    asked: Callable[[], bool]
    hear: Callable[[str], None]
    heard: float = float("-inf")


_listeners: list[_Listener] = []


def listen(asked: Callable[[], bool], hear: Callable[[str], None] = lambda at: None) -> None:
    """From now on `check` asks this, and says there what the process is doing."""
    _listeners[:] = [_Listener(asked, hear)]


def check(at: str) -> None:
    """Say what the process is doing, not too often. Raise `Interrupted` where somebody asked it to end."""
    for listener in _listeners:
        if listener.asked():
            raise Interrupted(f"stopped before the first phase ({at})")
        if (now := time.monotonic()) - listener.heard >= EVERY:
            listener.heard = now
            listener.hear(at)


def heed(at: str) -> None:
    """Raise `Interrupted` where somebody asked the process to end."""
    if any(listener.asked() for listener in _listeners):
        raise Interrupted(f"stopped during {at}")
