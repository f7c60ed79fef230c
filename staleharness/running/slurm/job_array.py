"""Job arrays of Slurm: their files in the results folder, and runs as their tasks, with states, failures and requeues.

<root>/slurm/<name>/array.json      jobs, by index, and options; written before the array is submitted
<root>/slurm/<name>/id              Slurm's id of it, written after; a sweep killed in between finds it by its name
<root>/slurm/<name>/<task>.<start>  messages of a task, one per line; `start` counts its requeues
<root>/slurm/<name>/<task>.out      output before its run's log was open, and messages of Slurm

Nodes read them, and so does a later sweep, which continues the arrays of an earlier one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...base.console_log import LOGGER
from ...base.files import check_not_link, make_subfolder, read_json, write_bytes, write_json
from ..runner_interface import NOTE, PREPARING, Job, RunProgress, describe_exit
from . import commands
from .commands import State

PREFIX = "staleharness-"
FLAPS = 4, 600.0  # a task that is requeued more often than this within so many seconds is not requeued again
FINAL_STATES = (
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED RECONFIG_FAIL "
    "REVOKED TIMEOUT UNKNOWN"
).split()
WAITING_STATES = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
NOT_ITS_FAULT = ("BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED", "RECONFIG_FAIL", "REVOKED")
ENDS = {  # state in Slurm -> class of the failure, and how the worker ended
    "CANCELLED": ("Cancelled", "a cancellation in Slurm"),
    "DEADLINE": ("TimeOut", "its deadline in Slurm"),
    "OUT_OF_MEMORY": ("OOM", "taking more memory than Slurm gives it; SLURM='--mem=...' asks for more"),
    "TIMEOUT": ("TimeOut", "its time limit, before it had done one phase; SLURM='--time=...' asks for more"),
    "UNKNOWN": ("Killed", "a cause that Slurm no longer knows"),
}


@dataclass
class JobArray:
    """Slurm job array and the tasks of it that are alive."""

    folder: Path
    jobs: list[Job]
    options: list[str]
    id: str | None = None
    at_a_time: int = 0  # limit that Slurm applies
    live: set[int] = field(default_factory=set)  # tasks that have not ended

    @classmethod
    def make(cls, root: Path, jobs: Sequence[Job], options: Sequence[str]) -> JobArray:
        """Write a new array, ready to be submitted."""
        folder = make_subfolder(root, "slurm") / f"{PREFIX}{secrets.token_hex(4)}"
        folder.mkdir()
        content = {"jobs": [asdict(job) for job in jobs], "options": [*options]}
        write_json(folder / "array.json", content)
        return cls(folder, list(jobs), list(options), live=set(range(len(jobs))))

    @classmethod
    def read(cls, folder: Path) -> JobArray:
        """Read an array. Raises `OSError`, `ValueError`, `KeyError` or `TypeError` if there is none."""
        content = read_json(folder / "array.json")
        jobs = [Job(**job) for job in content["jobs"]]
        array_id = (folder / "id").read_text(encoding="utf-8").strip() if (folder / "id").is_file() else None
        return cls(folder, jobs, content["options"], array_id or None)

    @classmethod
    def read_all(cls, root: Path) -> Iterator[JobArray]:
        """Yield the arrays that earlier sweeps left in a results folder; one that cannot be read and has no id was
        never submitted, and is forgotten. Raises `UserError` if the folder of arrays is a link."""
        check_not_link(root / "slurm")
        for folder in sorted((root / "slurm").glob(f"{PREFIX}*")):
            if not re.fullmatch(f"{PREFIX}[0-9a-f]{{8}}", folder.name):
                continue  # not ours: Slurm is never asked about it
            try:
                yield cls.read(folder)
            except (OSError, ValueError, KeyError, TypeError):
                if not (folder / "id").exists():  # otherwise its tasks may need it
                    shutil.rmtree(folder, ignore_errors=True)

    @property
    def name(self) -> str:
        return self.folder.name

    def set_id(self, array_id: str) -> None:
        write_bytes(self.folder / "id", array_id.encode() + b"\n")
        self.id = array_id

    def task(self, index: int) -> str:
        return f"{self.id}_{index}"

    def messages(self, index: int, start: int) -> Path:
        """Return the file for the messages of a task since its last requeue."""
        return self.folder / f"{index}.{start}"

    def output(self, index: int) -> str:
        """Return the end of a task's output outside its run's log."""
        try:
            return (self.folder / f"{index}.out").read_text(encoding="utf-8", errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def forget(self) -> None:
        """Remove the folder: no task is alive, and all messages are read."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()


@dataclass
class SlurmTask:
    """A run as a task of an array. A task that is requeued starts again, perhaps on another node."""

    job: Job
    array: JobArray | None = None  # None: not submitted yet
    index: int = 0
    state: State = field(default=State("PENDING"))
    has_begun: bool = False  # since the last requeue
    message: dict[str, Any] | None = None  # the last of a run, since the last requeue
    since: float | None = None  # when its end, or its last message, was seen
    phase: int = 0  # the last that it reported
    best_phase: int = 0  # the highest before the last requeue
    stop_request: bool = False
    kill_request: bool = False
    outlives_message: bool = False  # a process that does not end after its last message
    verdict: tuple[str, str] | None = None  # class and cause, if the runner ended it
    _requeues: list[float] = field(default_factory=list)
    _read: int = 0  # bytes of its messages

    @property
    def task(self) -> str:
        assert self.array is not None, "it was submitted"
        return self.array.task(self.index)

    def assign(self, array: JobArray, index: int, state: State) -> None:
        """Make the run a task of an array."""
        self.array, self.index = array, index
        array.live.add(index)
        self._reset(state)

    def detach(self) -> None:
        """Give up the task, which has ended and is not requeued."""
        assert self.array is not None, "it was submitted"
        self.array.live.discard(self.index)
        self.array = None

    def note_requeue(self, state: State, now: float) -> None:
        self._requeues += [now] * (state.restarts - self.state.restarts)
        self._reset(state)

    def note_resubmission(self, now: float) -> None:
        self._requeues.append(now)

    def _reset(self, state: State) -> None:
        self.best_phase = max(self.best_phase, self.phase)
        self.state, self.has_begun, self.message, self.since, self.outlives_message = state, False, None, None, False
        self.phase = self._read = 0

    def is_flapping(self, now: float) -> bool:
        limit, window = FLAPS
        self._requeues = [then for then in self._requeues if now - then <= window]
        return len(self._requeues) > limit

    def should_requeue(self) -> bool:
        """Return whether the task did not end by itself and is to be requeued. A task that ran out of time before it
        got further than last time is not: it never would get further."""
        was_stopped = self.message is not None and self.message["event"] == "interrupted"
        if self.stop_request or self.kill_request or self.verdict or (self.message and not was_stopped):
            return False
        if self.state.name in NOT_ITS_FAULT:
            return True
        by_user = self.state.name == "CANCELLED" and not self.outlives_message
        if by_user or not (was_stopped or self.state.name == "TIMEOUT"):
            return False
        if self.phase <= self.best_phase:
            self.verdict = ENDS["TIMEOUT"]
        return self.verdict is None

    def read_messages(self) -> Iterator[RunProgress]:
        """Yield the messages since the last call."""
        assert self.array is not None, "it was submitted"
        try:
            with open(self.array.messages(self.index, self.state.restarts), "rb") as stream:
                stream.seek(self._read)
                lines = stream.read().splitlines(keepends=True)
        except OSError:
            return  # there is none yet, or the file system is unavailable
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._read += len(line)
            try:
                message = json.loads(line)
            except ValueError:  # a full disk has cut it off, and the next message continues its line
                continue
            if not isinstance(message, dict):
                continue
            if "event" in message:
                self.message = message
            elif "phase" in message or PREPARING in message or NOTE in message:
                self.phase = max(self.phase, message.get("phase", 0))
                yield RunProgress(self.job.run_id, message)

    def explain_end(self) -> tuple[str, str]:
        """Return the class and the cause of an end without a message."""
        assert self.array is not None, "it was submitted"
        failure, cause = self.verdict or ENDS.get(self.state.name) or _process_end(self.state)
        task = f" (task {self.task}{f' on {self.state.node}' if self.state.node else ''})"
        if self._read or self.state.name not in ("FAILED", "LAUNCH_FAILED"):
            return failure, cause + task
        output = self.array.output(self.index)
        hint = f"it printed: {output.splitlines()[-1][:300]}" if output else "does that node see OUT?"
        return failure, f"{cause}{task}, before it began; {hint}"


def _process_end(state: State) -> tuple[str, str]:
    """Return the class and the cause of a failure that Slurm has no name for."""
    if state.status is None or state.name not in ("COMPLETED", "FAILED"):
        return "Killed", f"{state.name} in Slurm"
    by_signal = os.WIFSIGNALED(state.status)
    code = -os.WTERMSIG(state.status) if by_signal else os.WEXITSTATUS(state.status)
    return "Killed" if by_signal else "Exited", describe_exit(code)


def adopt_arrays(root: Path, runs: Mapping[str, SlurmTask], options: Sequence[str]) -> list[JobArray]:
    """Return the arrays below `root` that are still alive; assign their tasks to `runs` with the same id.

    Tasks that still wait, with other options or jobs than now, are cancelled. Raises `SlurmError`.
    """
    return [array for array in JobArray.read_all(root) if _is_known(array) and _adopt(array, runs, options)]


def _is_known(array: JobArray) -> bool:
    """Return whether Slurm knows an array of its name. The id in its folder does not count: a killed sweep may not have
    written it, and in a folder from another cluster it may be the id of another job here."""
    if (array_id := commands.find(array.name)) is None:
        array.forget()
        return False
    if array_id != array.id:
        array.set_id(array_id)
    return True


def _adopt(array: JobArray, runs: Mapping[str, SlurmTask], options: Sequence[str]) -> bool:
    """Assign its tasks; return whether one is alive and not cancelled now."""
    states, stale, adoptions = commands.look([str(array.id)]), [], 0
    for index, job in enumerate(array.jobs):
        state = states.get(array.task(index))
        if state is None or state.name in FINAL_STATES:
            continue
        run = runs.get(job.run_id)
        if run is None:
            array.live.add(index)
        elif run.array is None and (state.name not in WAITING_STATES or (job, array.options) == (run.job, options)):
            run.assign(array, index, state)
            adoptions += 1
        else:
            stale.append(array.task(index))
    commands.cancel(stale)
    if adoptions:
        LOGGER.warning("continuing with %d tasks of array %s from an earlier sweep", adoptions, array.id)
    if others := len(array.live) - adoptions:
        text = "array %s goes on with %d tasks of an earlier sweep, which this one does not ask for"
        LOGGER.warning(text, array.id, others)
    if not array.live:
        array.forget()
    return bool(array.live)
