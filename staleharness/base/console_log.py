"""The package's logger: inner packages write notes to it, and the program that runs a process chooses the stream."""

from __future__ import annotations

import logging
import sys
from typing import Literal

LOGGER = logging.getLogger("staleharness")


class _StreamHandler(logging.Handler):
    """Writes plain lines to a standard stream, looked up at each line because it may be redirected."""

    def __init__(self, stream: Literal["stdout", "stderr"]) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        stream = getattr(sys, self.stream)
        stream.write(self.format(record) + "\n")
        stream.flush()


def log_to(stream: Literal["stdout", "stderr"], level: int = logging.WARNING) -> None:
    """Show records of this level and above on a standard stream of this process, from now on."""
    LOGGER.handlers, LOGGER.level = [_StreamHandler(stream)], level
