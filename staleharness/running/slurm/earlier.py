"""What a sweep that was killed has left in Slurm: the next one goes on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...base.logger import LOGGER
from . import commands
from .array import Array
from .followed import ENDED, WAITING, Followed


def take_over(root: Path, runs: Mapping[str, Followed], options: Sequence[str]) -> list[Array]:
    """The arrays below `root` that are still alive. Where one of their tasks is for one of `runs`, by id, that run is
    this task from now on; those that still wait, on other terms than now, are cancelled. Raises `SlurmError`."""
    return [array for array in Array.all(root) if _is_known(array) and _take(array, runs, options)]


def _is_known(array: Array) -> bool:
    """Whether Slurm knows an array of its name. What the folder says of its id does not count: a sweep may not have
    lived to write it down, and in a folder from another cluster it is that of any other job here."""
    if (array_id := commands.find(array.name)) is None:
        array.forget()
        return False
    if array_id != array.id:
        array.submitted(array_id)
    return True


def _take(array: Array, runs: Mapping[str, Followed], options: Sequence[str]) -> bool:
    """Whether any task of it is alive, and not cancelled now."""
    states, stale, ours = commands.look([str(array.id)]), [], 0
    for index, job in enumerate(array.jobs):
        state = states.get(array.task(index))
        if state is None or state.word in ENDED:
            continue
        run = runs.get(job.run_id)
        if run is None:
            array.live.add(index)
        elif run.array is None and (state.word not in WAITING or (job, array.options) == (run.job, options)):
            run.take(array, index, state)
            ours += 1
        else:
            stale.append(array.task(index))
    commands.cancel(stale)
    if ours:
        LOGGER.warning("going on with %d tasks of array %s, of an earlier sweep", ours, array.id)
    if others := len(array.live) - ours:
        text = "array %s goes on with %d tasks of an earlier sweep, which this one does not ask for"
        LOGGER.warning(text, array.id, others)
    if not array.live:
        array.forget()
    return bool(array.live)
