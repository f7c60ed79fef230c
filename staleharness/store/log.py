"""What a run printed, which may be much."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import shortened

SEEN = 64_000  # bytes of a log's end that are looked at
MOST = 16_000_000  # bytes that a log may have when a run goes on, and when it is published


def log_tail(attempt: Path, lines: int = 25) -> str:
    """The last lines of an attempt's log, or nothing where there is none."""
    log = attempt / "log.txt"
    if not log.is_file():
        return ""
    with open(log, "rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - SEEN))
        end = stream.read().decode(errors="replace").splitlines()[-lines:]
    return "\n".join(shortened(line, 2000) for line in end)


def shorten_log(log: Path) -> None:
    """Cut a log that a plugin has flooded: its end stays, where the reasons are. What writes to it goes on behind."""
    if not log.is_file() or (size := log.stat().st_size) <= MOST:
        return
    with open(log, "rb+") as stream:
        stream.seek(size - MOST // 2)
        end = stream.read()
        stream.seek(0)
        stream.write(f"[{size - len(end)} bytes were here]\n".encode() + end)
        stream.truncate()
