"""Where runs are carried out: what a sweep asks of a runner, and what it hears back. One file in `runners/` is one
runner, found by looking there.

A runner knows nothing of results: whether a run is finished is for the results folder to say, so a runner may lose what
a worker said, and may be cut off from it, without harm.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..base.package_registry import module_names
from ..errors import UserError, nearest, shorten
from .job import Job

RUNNERS = f"{__package__}.runners"  # the package with one file per runner
OUT_OF_MEMORY = "lack of memory"  # begins `Ended.how` of a worker that was ended for it


@dataclass(frozen=True)
class Demand:
    """What the runs of a sweep ask of the place where they are carried out."""

    jobs: int | None = None  # runs at a time; None: as many as there is room for
    threads: int = 1  # of each run, and so the cores that it takes
    device: str = "cpu"
    slurm: str = ""  # options of sbatch, as typed; for the runner of that name
    runs_per_gpu: int | None = None  # that share one; None: whatever the runner takes for granted
    memory: int | None = None  # bytes of main memory for each; None: nobody knows


PREPARING = "preparing"  # what a worker tells before its first phase: {PREPARING: "warm start: step 3 of 320"}

NOTE = "note"  # what the user should know of a run at once: {NOTE: "checkpoint-00000009.pt is damaged; ..."}


@dataclass(frozen=True)
class Progress:
    """A run has finished a phase, or got on with what comes before the first one, or has something to say."""

    run_id: str
    content: dict[str, Any]  # {phase, phases, steps, ...} or {PREPARING: what} or {NOTE: line}


@dataclass(frozen=True)
class Ended:
    """Nothing works on a run any more."""

    run_id: str
    word: dict[str, Any] | None  # {"event": "done" | "failed" | "interrupted", ...}; None: it ended without a word
    how: str  # for users, of one that ended without a word: `signal SIGKILL`, `exit code 1`, `loss of its node`
    lost: bool = False  # by no doing of its own, and its worker may even live: it is to be started again
    kind: str = "Killed"  # the class of the failure that this is then


@dataclass(frozen=True)
class Queued:
    """A run waits for its turn, in the queue of the place where it is carried out."""

    run_id: str


@dataclass(frozen=True)
class Began:
    """A run that has waited no longer does."""

    run_id: str


class Runner(Protocol):
    """Carries out jobs, some at a time. For each job started it gives any number of `Progress` and then one `Ended`.
    A runner with a queue of its own gives `Queued` while a job waits there, and `Began` when it no longer does.
    """

    capacity: int  # jobs at a time; 0 before `open` where only the place itself can tell; it may change from then on
    neighbours: int  # of these, the most that share one machine, and its memory
    shared: bool  # workers may be on other machines, which share the results folder: each job needs a `holder`
    queues: bool  # it has a queue of its own: it takes every job at once, and tells which wait and which have begun

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Get ready; called once, first. Raises `UserError` where jobs cannot be carried out after all.

        modules: what every job will import: a runner whose workers share memory, or outlive a job, loads them
        beforehand. root: the results folder, absolute, which every worker has to see.
        """

    def start(self, job: Job) -> None:
        """Begin to carry out a job (`worker.main`), in a process of its own."""

    def poll(self, timeout: float) -> Iterable[Event]:
        """What has happened since the last call; waits up to `timeout` seconds for something to happen."""

    def ask_to_stop(self, run_id: str) -> None:
        """Let the job finish its phase, write a checkpoint and end; it may have ended already."""

    def kill(self, run_id: str) -> None:
        """End the job at once; asked again until it has ended."""

    def close(self) -> None:
        """End every job that is left, at once, and let go of everything."""


Event = Progress | Ended | Queued | Began


def runner_names() -> list[str]:
    """Sorted names of the runners."""
    return module_names(RUNNERS)


def make_runner(name: str, demand: Demand | int) -> Runner:
    """The runner of that name, not opened yet; a number asks for so many jobs at a time and nothing else. Raises
    `UserError` for an unknown name, and where what the runner needs is not installed."""
    if name not in runner_names():
        raise UserError(f"RUNNER={shorten(name)!r} is unknown; {nearest(name, runner_names())}")
    demand = Demand(demand) if isinstance(demand, int) else demand
    made: Runner = importlib.import_module(f"{RUNNERS}.{name}").make(demand)
    return made
