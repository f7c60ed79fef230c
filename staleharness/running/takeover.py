"""Takeover of a run from another worker, which may be on another machine, cut off, stopped, or late.

If machines share the results folder, each worker of a run writes in a folder of its own. A later worker renames the
earlier one's folder and copies what is intact; publishing renames the same folder. So the two compete for one rename,
and the file system decides: either the run is published, whole, or its folder is gone for the worker that still writes
to it or wants to publish it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..base.console_log import LOGGER
from ..base.files import atomic_write, fsync, is_temporary, move_into
from ..errors import Interrupted
from ..store.attempt_folders import (
    CHECKPOINTS,
    FINGERPRINT,
    LEASE,
    RUN_FILES,
    attempts_in,
    has_plain_files,
    parse_attempt_name,
    released_name,
)
from ..store.stored_run import read_run
from ..training import checkpoint
from .checkpoint_recovery import folders_set_aside, set_aside

TAKEN_OVER = "another worker has taken this run over"


def take_over(target: Path, trash: Path) -> None:
    """Merge all folders of a run into this worker's, with the content of the one that got farthest.

    trash: where folders with links go. Raises `Interrupted` if this worker is not the latest.
    """
    name = parse_attempt_name(target.name)
    assert name is not None, "the results folder gave the name"
    others = [(other, path) for other, path in sorted(attempts_in(target.parent, name.run_id)) if path != target]
    if name.number and any(other.active and other.number > name.number for other, _ in others):
        if not checkpoint.newest_first(target):  # otherwise the later worker has yet to copy them
            shutil.rmtree(target)
        raise Interrupted(TAKEN_OVER)
    # one that is not active was renamed by a worker that was killed afterwards
    places = [_rename(path) if other.active else path for other, path in others]
    folders = [path for path in places if path is not None]
    for path in [path for path in folders if not has_plain_files(path)]:
        move_into(path, trash)
        folders.remove(path)
    # of two that got equally far, the later: it may be a copy of the other, which was being removed
    farthest = max([target, *reversed(folders)], key=lambda path: _progress(path, name.run_id))
    if farthest != target:
        _copy(farthest, target)
        LOGGER.info("continuing from what the worker in %s left", farthest.name)
    for path in folders:
        if path != farthest:
            _copy_other_checkpoints(path, target)
        shutil.rmtree(path, ignore_errors=True)


def _rename(path: Path) -> Path | None:
    """Take a folder away from its holder; return its new path, or None if the holder has just published it."""
    target = path.with_name(released_name(path.name))
    try:
        os.rename(path, target)
    except FileNotFoundError:
        return None
    fsync(path.parent)
    return target


def _progress(path: Path, run_id: str) -> tuple[bool, str]:
    """Return a sort key for how far a folder is: finished but for its place, or up to its newest intact checkpoint."""
    newest = next((file.name for file in checkpoint.newest_first(path) if checkpoint.is_intact(file)), "")
    return not isinstance(read_run(path, run_id), str), newest


def _copy_other_checkpoints(source: Path, target: Path) -> None:
    """Add to the checkpoints that `target` has set aside: those of `source`, and its own if the fingerprints differ."""
    if _fingerprint(source) != _fingerprint(target) and (newest := checkpoint.newest_first(source)):
        set_aside(source, newest)
    for folder in folders_set_aside(source):
        shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)


def _fingerprint(attempt: Path) -> bytes:
    path = attempt / FINGERPRINT
    return path.read_bytes() if path.is_file() else b""


def _copy(source: Path, target: Path) -> None:
    """Copy all files, checkpoints last because they need the logs. Nothing is moved: the former worker may still have
    files open."""
    stale = checkpoint.newest_first(target)
    if stale and _fingerprint(source) != _fingerprint(target):
        set_aside(target, stale)
    for path in checkpoint.newest_first(target):
        path.unlink()
    files = [p for p in source.iterdir() if p.is_file() and not p.is_symlink() and p.name not in (".lock", LEASE)]
    files = [p for p in files if not is_temporary(p.name, *RUN_FILES, CHECKPOINTS)]
    for file in sorted(files, key=lambda file: (file.name.startswith("checkpoint-"), file.name)):
        copy = target / file.name
        is_log = file.name == "log.txt"  # this worker already prints to it
        with open(file, "rb") as reader, open(copy, "ab") if is_log else atomic_write(copy) as writer:
            shutil.copyfileobj(reader, writer)
    for folder in [p for p in source.iterdir() if p.is_dir() and not p.is_symlink()]:  # of a plugin
        shutil.copytree(folder, target / folder.name, symlinks=True, dirs_exist_ok=True)
