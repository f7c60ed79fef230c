"""Notes: what a room says in passing. Inner rooms hand it to the logger `staleharness`; who runs a process shows it."""

from __future__ import annotations

import logging
import sys
from typing import Literal

NOTES = logging.getLogger("staleharness")


class _Lines(logging.Handler):
    """Plain lines on a standard stream, whichever that is when a line comes."""

    def __init__(self, stream: Literal["stdout", "stderr"]) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        stream = getattr(sys, self.stream)
        stream.write(self.format(record) + "\n")
        stream.flush()


def show_notes(stream: Literal["stdout", "stderr"], level: int = logging.WARNING) -> None:
    """From now on notes of this level and above are lines on a standard stream of this process."""
    NOTES.handlers, NOTES.level = [_Lines(stream)], level
