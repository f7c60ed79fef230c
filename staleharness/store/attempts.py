"""Folders of runs under way: how they are called, whose they are, and which of them can be believed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .stored_run import RESULTS, TRACE

LEASE = "lease.json"  # of whoever works in such a folder, where machines share the file system
CHECKPOINTS = "checkpoint-*"
ASIDE = "set-aside-*"  # folders of checkpoints that did not fit where the run was continued
FINGERPRINT = "fingerprint.json"  # of what makes the checkpoints beside it
LEFT = ".left"  # ends the name of a folder that was taken away from its holder
OURS = (
    ".lock",
    LEASE,
    *RESULTS,
    TRACE,
    "manifest.json",
    FINGERPRINT,
    "failure.json",
    "log.txt",
    "metrics.jsonl",
    "timing.jsonl",
)


class Attempt(NamedTuple):
    """What the name of such a folder says. They sort as they came: a run's holders are numbered one after the other."""

    run_id: str
    number: int  # 0: of one machine alone
    nonce: str
    left: str  # not empty where it was taken away from its holder

    @property
    def under_way(self) -> bool:
        return not self.left


def holder_name(number: int) -> str:
    """A name that nobody else has, for the holder of that number."""
    return f"{number:04}-{secrets.token_hex(4)}"


def read_name(name: str) -> Attempt | None:
    """What the name says, or None where it is none of ours."""
    found = re.fullmatch(r"([0-9a-f]{12})(?:\.(\d{4,9})-([0-9a-f]{8}))?((?:\.[0-9a-f]{8}\.left)?)", name)
    return found and Attempt(found[1], int(found[2] or 0), found[3] or "", found[4])


def left_name(name: str) -> str:
    """What a folder is called once it is taken away from its holder."""
    return f"{name}.{secrets.token_hex(4)}{LEFT}"


def attempts_in(folder: Path, run_id: str = "") -> Iterator[tuple[Attempt, Path]]:
    """The folders of runs under way, in any order: those of one run, or all."""
    for name in os.listdir(folder) if folder.is_dir() else []:
        attempt = read_name(name)
        if attempt is not None and run_id in ("", attempt.run_id):
            yield attempt, folder / name


def plain(path: Path) -> bool:
    """Whether this is a folder, and what the harness writes in it are files."""
    there = [file for name in OURS if os.path.lexists(file := path / name)]
    there += path.glob(CHECKPOINTS)
    return path.is_dir() and not any(p.is_symlink() or not p.is_file() for p in there) and not path.is_symlink()
