"""The package's logger: inner packages write notes to it, and the program that runs a process chooses the stream."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

LOGGER = logging.getLogger("staleharness")
_notices: ContextVar[set[str] | None] = ContextVar("notices", default=None)


@contextlib.contextmanager
def single_notices() -> Iterator[None]:
    """Make `notice` log each line only once within the block."""
    token = _notices.set(set())
    try:
        yield
    finally:
        _notices.reset(token)


def notice(line: str) -> None:
    """Log a line, unless it was logged before in a block of `single_notices`."""
    earlier_lines = _notices.get()
    if earlier_lines is None or line not in earlier_lines:
        LOGGER.warning("%s", line)
    if earlier_lines is not None:
        earlier_lines.add(line)


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
