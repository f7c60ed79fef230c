"""Ctrl-C as a number: how often the user, a batch system or a closed terminal has asked a sweep to end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Interrupts:
    count: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Interrupts]:
    """Count Ctrl-C (and SIGTERM, SIGHUP) instead of being torn down by them. What is ignored (nohup) stays so."""
    seen = Interrupts()

    def note(signum: int, frame: Any) -> None:
        seen.count += 1

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [name for name in names if signal.getsignal(name) is not signal.SIG_IGN]
    before = {name: signal.signal(name, note) for name in heard}
    try:
        yield seen
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
