"""Folders of unfinished runs: their names, the files in them, and their logs."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import shorten
from .stored_run import MODEL, OPTIONAL, RESULTS

LEASE = "lease.json"  # of the worker in the folder, where machines share the file system
CHECKPOINTS = f"checkpoint-{'[0-9]' * 8}.pt"  # a plugin may call a file of its own `checkpoint-best.pt`
ASIDE = "set-aside-*"  # folders of checkpoints that did not fit where the run was continued
FINGERPRINT = "fingerprint.json"  # of the process that wrote the checkpoints in the same folder
RELEASE_SUFFIX = ".left"  # ends the name of a folder that was taken away from its holder
WORK_FILES = (".lock", LEASE, FINGERPRINT, "failure.json", "metrics.jsonl", "timing.jsonl")  # until the run is finished
RUN_FILES = (*WORK_FILES, "log.txt", *RESULTS, *OPTIONAL, "manifest.json")
TAIL_BYTES = 64_000  # at the end of a log, read for its last lines
MAX_LOG = 16_000_000  # bytes that a log may have when a run is resumed, and when it is published


class AttemptName(NamedTuple):
    """Parsed name of a folder. Names sort by time: the holders of a run are numbered in order."""

    run_id: str
    number: int  # 0: no other machine works on the run
    nonce: str
    suffix: str  # not empty once the folder was taken away from its holder

    @property
    def active(self) -> bool:
        return not self.suffix


def holder_name(number: int) -> str:
    """Return a unique name for the holder with that number."""
    return f"{number:04}-{secrets.token_hex(4)}"


def parse_attempt_name(name: str) -> AttemptName | None:
    """Parse the name of a folder; None if it is not the name of an unfinished run's folder."""
    match = re.fullmatch(r"([0-9a-f]{12})(?:\.(\d{4,9})-([0-9a-f]{8}))?((?:\.[0-9a-f]{8}\.left)?)", name)
    return match and AttemptName(match[1], int(match[2] or 0), match[3] or "", match[4])


def released_name(name: str) -> str:
    """Return the name that a folder gets when it is taken away from its holder."""
    return f"{name}.{secrets.token_hex(4)}{RELEASE_SUFFIX}"


def attempts_in(folder: Path, run_id: str = "") -> Iterator[tuple[AttemptName, Path]]:
    """Yield the folders of unfinished runs in any order: those of one run, or all."""
    for name in os.listdir(folder) if folder.is_dir() else []:
        attempt = parse_attempt_name(name)
        if attempt is not None and run_id in ("", attempt.run_id):
            yield attempt, folder / name


def has_plain_files(path: Path) -> bool:
    """Return whether this is a folder, not a link, in which everything the harness writes is a regular file."""
    files = [file for name in RUN_FILES if os.path.lexists(file := path / name)]
    files += path.glob(CHECKPOINTS)
    links = any(place.is_symlink() for place in (path, path / MODEL, *files))
    return path.is_dir() and not links and all(map(Path.is_file, files))


def log_tail(attempt: Path, lines: int = 25) -> str:
    """Return the last lines of a run's log; empty if there is none."""
    log = attempt / "log.txt"
    if not log.is_file():
        return ""
    with open(log, "rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
        end = stream.read().decode(errors="replace").splitlines()[-lines:]
    return "\n".join(shorten(line, 2000) for line in end)


def shorten_log(log: Path) -> None:
    """Drop the beginning of a log that a plugin has flooded; a process that appends to it continues after the rest."""
    if not log.is_file() or (size := log.stat().st_size) <= MAX_LOG:
        return
    with open(log, "rb+") as stream:
        stream.seek(size - MAX_LOG // 2)
        end = stream.read()
        stream.seek(0)
        stream.write(f"[{size - len(end)} bytes were here]\n".encode() + end)
        stream.truncate()
