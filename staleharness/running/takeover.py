"""Going on with what another worker began, which may still be at it: on another machine, cut off, stopped, or late.

Where machines share the results folder, each worker of a run writes in a folder of its own. Whoever comes later takes
the earlier one's away, by renaming it, and copies what is intact; publishing is renaming the same folder, too. So the
two compete for one rename, and the file system decides: either the run is published, whole, or its folder is somebody
else's and whoever writes to it, or wants to publish it, finds that it is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..base.files import atomic_write, fsync, move_into
from ..base.logger import LOGGER
from ..errors import Interrupted
from ..simulator import checkpoint
from ..store import locks
from ..store.store import Store
from ..store.stored_run import read_run
from ..store.unfinished_runs import FINGERPRINT, LEASE, has_plain_files, parse_attempt_name, released_name
from .attempt import folders_set_aside, set_aside

PASSED_ON = "another worker has taken this run over"


@contextlib.contextmanager
def holding(store: Store, run_id: str) -> Iterator[locks.Lease]:
    """Hold the lease of an attempt. Raises `Interrupted` where a file is not to be had because it is lost."""
    attempt = store.attempt_dir(run_id)
    attempt.mkdir(parents=True, exist_ok=True)
    try:
        with locks.hold_lease(attempt / LEASE) as held:
            yield held
    except OSError as error:
        if attempt.is_dir():
            raise
        raise Interrupted(PASSED_ON) from error


def take_over(store: Store, run_id: str) -> None:
    """Leave one attempt of a run, this worker's, with what the one that got farthest has left. Raises `Interrupted`
    where this worker is not the latest."""
    own = store.attempt_dir(run_id)
    mine = parse_attempt_name(own.name)
    others = [path for path in store.attempts(run_id) if path != own]
    if mine is not None and mine.number and any(_later(path, mine.number) for path in others):
        if not checkpoint.newest_first(own):  # or else the later one has yet to take them
            shutil.rmtree(own)
        raise Interrupted(PASSED_ON)
    taken = [path for path in map(_taken_away, others) if path is not None]
    for path in [path for path in taken if not has_plain_files(path)]:
        move_into(path, store.root / "damaged")
        taken.remove(path)
    # of two that got as far, the later: it may be the copy of the other, which was being removed
    farthest = max(reversed(taken), key=lambda path: _progress(path, run_id), default=own)
    if farthest != own and _progress(farthest, run_id) > _progress(own, run_id):
        _copy(farthest, own)
        LOGGER.info("going on with what the worker in %s has left", farthest.name)
    for path in taken:
        if path != farthest:
            _copy_other_checkpoints(path, own)
        shutil.rmtree(path, ignore_errors=True)


def _later(path: Path, number: int) -> bool:
    other = parse_attempt_name(path.name)
    return other is not None and other.active and other.number > number


def _taken_away(path: Path) -> Path | None:
    """Where the folder is, now that its holder finds it no more; None where it was quicker and has published it."""
    name = parse_attempt_name(path.name)
    if name is not None and not name.active:
        return path  # by somebody who then was cut off
    left = path.with_name(released_name(path.name))
    try:
        os.rename(path, left)
    except FileNotFoundError:
        return None
    fsync(path.parent)
    return left


def _progress(path: Path, run_id: str) -> tuple[bool, str]:
    """Sorts by how far an attempt is: finished in all but its place, or else up to its newest intact checkpoint."""
    newest = next((file.name for file in checkpoint.newest_first(path) if checkpoint.is_intact(file)), "")
    return not isinstance(read_run(path, run_id), str), newest


def _copy_other_checkpoints(source: Path, target: Path) -> None:
    """Add to what `target` has set aside: what `source` has, and checkpoints that were made with something else."""
    if _fingerprint(source) != _fingerprint(target) and (newest := checkpoint.newest_first(source)):
        set_aside(source, newest)
    for folder in folders_set_aside(source):
        shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)


def _fingerprint(attempt: Path) -> bytes:
    path = attempt / FINGERPRINT
    return path.read_bytes() if path.is_file() else b""


def _copy(source: Path, target: Path) -> None:
    """Checkpoints last, which count on logs. All is copied, nothing moved: its former writer may have it open."""
    stale = checkpoint.newest_first(target)
    if stale and _fingerprint(source) != _fingerprint(target):
        set_aside(target, stale)
    for path in checkpoint.newest_first(target):
        path.unlink()
    files = [p for p in source.iterdir() if p.is_file() and not p.is_symlink() and p.name[0] != "."]
    for file in sorted(files, key=lambda file: (file.name.startswith("checkpoint-"), file.name)):
        if file.name == LEASE:
            continue
        own = target / file.name
        log = file.name == "log.txt"  # to which this worker prints already
        with open(file, "rb") as before, open(own, "ab") if log else atomic_write(own) as after:
            shutil.copyfileobj(before, after)
    for folder in [p for p in source.iterdir() if p.is_dir() and not p.is_symlink()]:  # that a plugin has left about
        shutil.copytree(folder, target / folder.name, symlinks=True, dirs_exist_ok=True)
