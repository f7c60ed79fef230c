"""Choice of the checkpoint from which a run resumes, and folders of checkpoints that are set aside."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.console_log import LOGGER
from ..base.files import atomic_write, check_not_link, fsync, read_json
from ..errors import UserError, lacks_memory, shorten
from ..store.attempt_folders import ASIDE, FINGERPRINT
from ..training import checkpoint
from ..training.loop import Simulation
from .run_record import fingerprint_differences

LOGS = ("metrics.jsonl", "timing.jsonl")


def resume(
    attempt: Path,
    run_id: str,
    make: Callable[[], Simulation[Any]],
    fingerprint: dict[str, Any],
    restart: bool = False,
    say: Callable[[str], None] = LOGGER.warning,
) -> Simulation[Any]:
    """Return a simulation that continues from the newest usable checkpoint, with logs truncated to match; a new one if
    the run has no checkpoint.

    make: builds the simulation. fingerprint: of this process; a usable checkpoint has the same one.
    restart: start over if no checkpoint is usable. say: called with a line for the user.

    A checkpoint that matches its digest is never deleted: if an earlier one or a new start takes its place, it is set
    aside with its logs, and a process with its fingerprint continues from there. Raises `UserError` if no checkpoint is
    usable and `restart` is not given.
    """
    unusable: list[str] = []
    for folder in (attempt, *folders_set_aside(attempt)):
        for path in checkpoint.newest_first(folder):
            try:
                simulation, lengths = _restore(path, run_id, make, fingerprint)
            except checkpoint.DamagedCheckpoint:
                checkpoint.remove_damaged(path, say)
            except checkpoint.Unusable as problem:
                if folder == attempt:
                    unusable.append(f"{path.name} {problem}")
            else:
                newer = checkpoint.newest_first(attempt)
                if folder == attempt:
                    newer = [other for other in newer if other > path]
                if newer:
                    aside = set_aside(attempt, newer)
                    say(f"{unusable[0]}; it stays in {aside}, and the run resumes from phase {simulation.phase}")
                if folder != attempt:
                    _bring_back(path, attempt)
                _cut_logs(attempt, lengths)
                LOGGER.info("resumed after phase %d of %d", simulation.phase, simulation.spec.phases)
                return simulation
    if unusable and not restart:
        raise UserError(
            f"{unusable[0]}; nothing was deleted: continue where it can be used, or start over with --restart "
            f"(make: RESTART=1), which keeps it in {attempt}"
        )
    if unusable:
        aside = set_aside(attempt, checkpoint.newest_first(attempt))
        say(f"{unusable[0]}; it stays in {aside}, and the run starts over")
    elif _size(attempt / LOGS[0]):
        LOGGER.info("starting over")
    simulation = make()
    _cut_logs(attempt, dict.fromkeys(LOGS, 0))
    return simulation


def _restore(
    path: Path, run_id: str, make: Callable[[], Simulation[Any]], fingerprint: dict[str, Any]
) -> tuple[Simulation[Any], dict[str, int]]:
    """Restore the simulation of a checkpoint; return it and the length of each log at that time [bytes]. Raises
    `DamagedCheckpoint` and `Unusable`."""
    state = checkpoint.load(path)
    try:
        lengths = _check(state, path, run_id, fingerprint)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise checkpoint.Unusable("was not made by this version") from error
    simulation = make()
    try:
        simulation.load_state_dict(state["simulation"])
    except BaseException as error:
        simulation.close()
        if not isinstance(error, Exception) or isinstance(error, OSError) or lacks_memory(error):
            raise
        raise checkpoint.Unusable(f"cannot be restored ({type(error).__name__}: {shorten(str(error))})") from error
    return simulation, lengths


def _check(state: dict[str, Any], path: Path, run_id: str, fingerprint: dict[str, Any]) -> dict[str, int]:
    """Return the lengths of the logs at the time of a checkpoint [bytes]. Raises `Unusable` unless it belongs to this
    run, has the same fingerprint, and agrees with its name and logs."""
    if state["run"] != run_id:
        raise checkpoint.Unusable(f"belongs to run {shorten(str(state['run']))}")
    if changes := fingerprint_differences(json.loads(state["fingerprint"]), fingerprint):
        raise checkpoint.Unusable(f"was made with other software or hardware: {'; '.join(changes)}")
    phase = state["simulation"]["phase"]
    lines = phase if json.loads(state["simulation"]["trained"]) is None else phase - 1  # the last is not evaluated yet
    if phase != checkpoint.phase_of(path):
        raise checkpoint.Unusable(f"holds another phase, {shorten(str(phase))}")
    lengths = {}
    for name in LOGS:
        length, sha = state["logs"][name]
        if _size(path.parent / name) < length:
            raise checkpoint.Unusable(f"needs lines that {name} has lost")
        with open(path.parent / name, "rb") as log:
            content = log.read(length)
        if hashlib.sha256(content).hexdigest() != sha:
            raise checkpoint.Unusable(f"does not match the logs: {name} was changed")
        if content.count(b"\n") != lines:
            raise checkpoint.Unusable(f"holds phase {phase}, but {name} ends at another")
        lengths[name] = length
    return lengths


def fingerprint_changes(attempt: Path, fingerprint: dict[str, Any]) -> list[str]:
    """List changes from the fingerprint of a run's checkpoints to this one, as lines `name: there -> here`; empty if a
    checkpoint fits, if there is none, or if only loading them would tell. Reads no tensors."""
    first: list[str] = []
    for folder in (attempt, *folders_set_aside(attempt)):
        if not checkpoint.newest_first(folder):
            if folder == attempt:
                return []  # the run has started over already
            continue
        try:
            changes = fingerprint_differences(read_json(folder / FINGERPRINT), fingerprint)
        except (OSError, ValueError, TypeError, AttributeError):
            return []
        if not changes:
            return []
        first = first or changes
    return first


def _cut_logs(attempt: Path, lengths: Mapping[str, int]) -> None:
    for name, length in lengths.items():
        with open(attempt / name, "ab") as log:
            log.truncate(length)


def folders_set_aside(attempt: Path) -> list[Path]:
    """Return the folders of checkpoints set aside, each with their logs; that of the latest phase first."""
    folders = [path for path in attempt.glob(ASIDE) if path.is_dir() and not path.is_symlink()]
    return sorted(folders, key=lambda path: [p.name for p in checkpoint.newest_first(path)], reverse=True)


def set_aside(attempt: Path, checkpoints: Sequence[Path]) -> Path:
    """Move checkpoints to a folder inside, with copies of their logs; return that folder.

    Logs first: if this is interrupted, checkpoints have logs in both places.
    """
    with open(checkpoints[0], "rb") as newest:
        folder = attempt / ASIDE.replace("*", newest.read(4).hex())
    check_not_link(folder)
    folder.mkdir(exist_ok=True)
    _copy_logs(attempt, folder)
    for path in checkpoints:
        path.rename(folder / path.name)
    fsync(folder)
    fsync(attempt)
    return folder


def _bring_back(newest: Path, attempt: Path) -> None:
    """Undo `set_aside`, up to a checkpoint."""
    folder = newest.parent
    _copy_logs(folder, attempt)
    for path in checkpoint.newest_first(folder):
        if path <= newest:
            path.rename(attempt / path.name)
    fsync(attempt)
    if not checkpoint.newest_first(folder):
        shutil.rmtree(folder)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (*LOGS, FINGERPRINT):
        if (source / name).is_file():
            with open(source / name, "rb") as log, atomic_write(target / name) as copy:
                shutil.copyfileobj(log, copy)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
