"""Slurm's commands and their output as plain data. Tasks of an array have Slurm's names: `17_3`."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...base.process_launch import HASHING
from ...errors import UserError, shorten

PATIENCE = 60.0  # seconds for an answer
PASSED_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS")  # others may be those of a job that we run in
FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "RestartCnt", "exit_code", "Reason", "NodeList")
LATER = re.compile(
    r"timed out|contact|connect|communication|temporarily|no answer|zero bytes|message (send|receive) failure|standby"
    r"|authentication error",
    re.IGNORECASE,
)
TOO_MANY = re.compile(r"submit limit|MaxSubmit|too many|job limit", re.IGNORECASE)


class SlurmError(Exception):
    """Error message of a Slurm command."""

    @property
    def is_transient(self) -> bool:
        """True if a later attempt may succeed: the controller was not reached."""
        return bool(LATER.search(str(self)))

    @property
    def too_many(self) -> bool:
        """True if fewer tasks might be accepted."""
        return bool(TOO_MANY.search(str(self)))


@dataclass(frozen=True)
class State:
    """State of a task in Slurm."""

    name: str  # PENDING, RUNNING, COMPLETED, TIMEOUT, ...
    restarts: int = 0  # number of requeues
    status: int | None = None  # as `wait` gives it: exit code and signal
    reason: str = ""  # why it waits
    node: str = ""


def call(*words: str, stdin: str = "") -> str:
    """Return the standard output of a command. Raises `SlurmError` if it fails or gives no answer."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k in PASSED_VARIABLES}
    try:
        done = subprocess.run(
            words,
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            start_new_session=True,  # Ctrl-C is for us alone
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} gave no answer within {PATIENCE:.0f} s") from None
    except OSError as error:
        raise SlurmError(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise SlurmError(lines[-1] if lines else f"{words[0]} ended with exit code {done.returncode}")
    return done.stdout


def max_tasks() -> int:
    """Return how many tasks an array may have: indices stay below MaxArraySize."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", call("scontrol", "show", "config"), re.MULTILINE)
    return max(1, int(match[1])) if match else 1001


def submit(command: Sequence[str], count: int, at_a_time: int, name: str, output: str, options: Sequence[str]) -> str:
    """Submit an array of `count` tasks, each to execute `command`; returns its id."""
    # Ignore the warning until there is a handler: a program that is still starting would die of it.
    script = f"#!/bin/sh\ntrap '' USR1\nexport {'='.join(HASHING)}\nexec {shlex.join(command)}\n"
    array = f"--array=0-{count - 1}%{at_a_time}"
    words = ("--parsable", "--requeue", "--nodes=1", "--ntasks=1", "--export=ALL", "--open-mode=append")
    answer = call("sbatch", *words, array, f"--job-name={name}", f"--output={output}", *options, stdin=script)
    return answer.strip().partition(";")[0]


def find(name: str) -> str | None:
    """Return the id of the array of that name, or None: a submission whose answer was lost may have succeeded."""
    answer = call("squeue", "--noheader", "--states=all", f"--name={name}", "--Format=ArrayJobID:|")
    ids = {line.strip("| ") for line in answer.splitlines() if line.strip("| ")}
    return min(ids, key=int) if ids else None


def look(arrays: Iterable[str]) -> dict[str, State]:
    """Return the states of all tasks of these arrays that Slurm still knows; it forgets ended ones after minutes."""
    names, fields = ",".join(arrays), ",".join(f"{field}:|" for field in FIELDS)
    if not names:
        return {}
    try:
        answer = call("squeue", "--array", "--noheader", "--states=all", f"--jobs={names}", f"--Format={fields}")
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    states = {}
    for line in answer.splitlines():
        array, task, state, restarts, status, reason, node = (*line.split("|"), "", "")[: len(FIELDS)]
        states[f"{array}_{task}"] = State(state, _number(restarts) or 0, _number(status), reason, node)
    return states


def look_up(task: str) -> State | None:
    """Ask accounting, or `scontrol` if there is none, for a task that `look` no longer finds; None if neither knows
    it."""
    try:
        answer = call(
            "sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={task}", "--format=State,ExitCode"
        )
        for line in answer.splitlines():
            state, code = line.split("|")[:2]
            return State(state.split(" ")[0].rstrip("+"), status=_status(code))
    except SlurmError:
        pass
    try:
        answer = call("scontrol", "--oneliner", "show", "job", task)
    except SlurmError:
        return None
    facts = dict(re.findall(r"(\w+)=(\S*)", answer))
    if "JobState" not in facts:
        return None
    return State(facts["JobState"], _number(facts.get("Restarts", "")) or 0, _status(facts.get("ExitCode", "")))


def _status(code: str) -> int | None:
    """Convert `75:0`, exit code and signal, to the status of `wait`."""
    match = re.fullmatch(r"(\d+):(\d+)", code)
    return int(match[1]) << 8 | int(match[2]) if match else None


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def requeue(task: str) -> None:
    """Put one task back in the queue, never its array."""
    call("scontrol", "requeue", task)


def release(task: str) -> None:
    """Release a task that Slurm holds back."""
    _if_it_lives("scontrol", "release", task)


def set_at_a_time(array: str, number: int) -> None:
    """Set how many tasks of the array may run at a time."""
    _if_it_lives("scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={number}")


def cancel(tasks: Iterable[str], *options: str) -> None:
    """Cancel these tasks, or with `--signal=...` send them a signal."""
    if names := compress(tasks):
        _if_it_lives("scancel", "--quiet", *options, *names)


def _if_it_lives(*words: str) -> None:
    """Call a command; ignore the error that the task has ended."""
    try:
        call(*words)
    except SlurmError as error:
        if error.is_transient:
            raise


def compress(tasks: Iterable[str]) -> list[str]:
    """Abbreviate `17_1 17_2 17_3 17_7` as Slurm does: `17_[1-3,7]`."""
    pairs = sorted((int(a), int(t)) for a, _, t in (name.partition("_") for name in tasks))
    names = []
    for array, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        numbers = [task for _, task in group]
        runs = [[n for _, n in run] for _, run in itertools.groupby(enumerate(numbers), key=lambda x: x[1] - x[0])]
        text = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        names.append(f"{array}_[{text}]")
    return names


OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(=[\w.,:=+/@%*\[\]&|()-]+)?", re.ASCII)
RUNNER_OPTIONS = (
    "array chdir clusters error export export-file input job-name nodes no-requeue ntasks open-mode output parsable "
    "requeue test-only wait wrap"
).split()  # options that the runner itself sets, or that would make it lose the array
WARNING = re.compile(r"--signal=B:USR1@\d{1,5}")


def parse_options(text: str) -> list[str]:
    """Parse `SLURM=`, as in '--partition=gpu --time=4:00:00', into options for `sbatch`. Raises `UserError`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"SLURM={shorten(text)!r} cannot be read: {error}") from None
    for word in words:
        match = OPTION.fullmatch(word)
        if match is None:
            raise UserError(f"SLURM: {shorten(word)!r} is not of the form --name=value, as in --time=4:00:00")
        if option := next((name for name in RUNNER_OPTIONS if name.startswith(match["name"])), None):  # or abbreviated
            raise UserError(f"SLURM: --{option} is set by the runner, or would make it lose the array; leave it out")
        if match["name"] == "signal" and not WARNING.fullmatch(word):
            raise UserError(f"SLURM: {shorten(word)!r} must be of the form --signal=B:USR1@SECONDS")
    return words
