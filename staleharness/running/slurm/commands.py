"""Slurm's own commands, and what they say, as plain data. A task of an array is called as Slurm calls it: `17_3`."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.processes import HASHING

PATIENCE = 60.0  # seconds for an answer
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")  # the others are those of a job that we may be inside of
FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "RestartCnt", "exit_code", "Reason", "NodeList")
LATER = re.compile(r"timed out|contact|connect|communication|temporarily|no answer", re.IGNORECASE)
TOO_MANY = re.compile(r"submit limit|MaxSubmit|too many|job limit", re.IGNORECASE)


class SlurmError(Exception):
    """What Slurm said in place of doing as it was told."""

    @property
    def passes(self) -> bool:
        """Whether the same may go well a little later: the controller was not reached."""
        return bool(LATER.search(str(self)))

    @property
    def too_many(self) -> bool:
        """Whether fewer tasks might have been taken."""
        return bool(TOO_MANY.search(str(self)))


@dataclass(frozen=True)
class State:
    """What Slurm says of a task."""

    word: str  # PENDING, RUNNING, COMPLETED, TIMEOUT, ...
    restarts: int = 0  # how often it was put back in the queue
    status: int | None = None  # as `wait` gives it: exit code and signal
    reason: str = ""  # why it waits
    node: str = ""


def call(*words: str, stdin: str = "") -> str:
    """Standard output of a command. Raises `SlurmError` where it fails or gives no answer."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in KEPT}
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


def most_tasks() -> int:
    """How many tasks an array may have: indices stay below MaxArraySize."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", call("scontrol", "show", "config"), re.MULTILINE)
    return max(1, int(found[1])) if found else 1001


def submit(command: Sequence[str], count: int, at_a_time: int, name: str, output: Path, options: Sequence[str]) -> str:
    """Submit an array of `count` tasks, each to execute `command`; returns its id."""
    # Deaf to the warning until it is understood: a program that is still starting would die of it.
    script = f"#!/bin/sh\ntrap '' USR1\nexport {'='.join(HASHING)}\nexec {shlex.join(command)}\n"
    array = f"--array=0-{count - 1}%{at_a_time}"
    words = ("--parsable", "--requeue", "--nodes=1", "--ntasks=1", "--export=ALL", "--open-mode=append")
    said = call("sbatch", *words, array, f"--job-name={name}", f"--output={output}", *options, stdin=script)
    return said.strip().partition(";")[0]


def find(name: str) -> str | None:
    """The id of the array of that name, if there is one: its submission may have gone well unheard."""
    said = call("squeue", "--noheader", "--states=all", f"--name={name}", "--Format=ArrayJobID:|")
    ids = {line.strip("| ") for line in said.splitlines() if line.strip("| ")}
    return min(ids, key=int) if ids else None


def look(arrays: Iterable[str]) -> dict[str, State]:
    """Every task of these arrays that Slurm still knows; ended ones are forgotten after some minutes."""
    wanted, fields = ",".join(arrays), ",".join(f"{field}:|" for field in FIELDS)
    if not wanted:
        return {}
    try:
        said = call("squeue", "--array", "--noheader", "--states=all", f"--jobs={wanted}", f"--Format={fields}")
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    found = {}
    for line in said.splitlines():
        array, task, word, restarts, status, reason, node = (*line.split("|"), "", "")[: len(FIELDS)]
        found[f"{array}_{task}"] = State(word, _number(restarts) or 0, _number(status), reason, node)
    return found


def remembered(task: str) -> State | None:
    """What accounting says of a task that `look` no longer finds, or `scontrol` where there is no accounting; None
    where neither knows it."""
    try:
        said = call("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={task}", "--format=State,ExitCode")
        for line in said.splitlines():
            word, code = line.split("|")[:2]
            return State(word.split(" ")[0].rstrip("+"), status=_status(code))
    except SlurmError:
        pass
    try:
        said = call("scontrol", "--oneliner", "show", "job", task)
    except SlurmError:
        return None
    facts = dict(re.findall(r"(\w+)=(\S*)", said))
    if "JobState" not in facts:
        return None
    return State(facts["JobState"], _number(facts.get("Restarts", "")) or 0, _status(facts.get("ExitCode", "")))


def _status(code: str) -> int | None:
    """`75:0`, exit code and signal, as `wait` would give them."""
    match = re.fullmatch(r"(\d+):(\d+)", code)
    return int(match[1]) << 8 | int(match[2]) if match else None


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def requeue(task: str) -> None:
    """Put one task back in the queue, never its array."""
    call("scontrol", "requeue", task)


def release(task: str) -> None:
    """Let a task that Slurm holds back wait for its turn again."""
    _if_it_lives("scontrol", "release", task)


def set_at_a_time(array: str, number: int) -> None:
    """How many tasks of the array may run at a time."""
    _if_it_lives("scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={number}")


def cancel(tasks: Iterable[str], *options: str) -> None:
    """End these tasks, or with `--signal=...` send them one."""
    if names := compressed(tasks):
        _if_it_lives("scancel", "--quiet", *options, *names)


def _if_it_lives(*words: str) -> None:
    """For Slurm, what has ended cannot be told anything; for us it need not."""
    try:
        call(*words)
    except SlurmError as error:
        if error.passes:
            raise


def compressed(tasks: Iterable[str]) -> list[str]:
    """`17_1 17_2 17_3 17_7` as Slurm writes them together: `17_[1-3,7]`."""
    pairs = sorted((int(a), int(t)) for a, _, t in (name.partition("_") for name in tasks))
    names = []
    for array, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        numbers = [task for _, task in group]
        runs = [[n for _, n in run] for _, run in itertools.groupby(enumerate(numbers), key=lambda x: x[1] - x[0])]
        text = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        names.append(f"{array}_[{text}]")
    return names
