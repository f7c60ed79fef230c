"""Interface between a sweep and its runners: jobs, events and resources. Each file in `runners/` is a runner.

A runner knows nothing about results: the results folder says whether a run is finished. So a runner may lose messages
from a worker, or the connection to it, without harm.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..base.parsing import whole_number
from ..base.system_info import cpu_quotas
from ..errors import UserError, shorten
from ..spec import RunSpec

MAX_JOBS = 1024
MAX_PER_GPU = 64
UNITS = {"": 1, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
LEAST_MEMORY = 10**7  # bytes; a smaller number probably lacks its unit

GPUS = "CUDA_VISIBLE_DEVICES"
OUT_OF_MEMORY = "lack of memory"  # begins `RunEnd.cause` of a worker that was killed for it
PREPARING = "preparing"  # key of a message before the first phase: {PREPARING: "warm start: step 3 of 320"}
NOTE = "note"  # key of a message for the user: {NOTE: "checkpoint-00000009.pt is damaged; ..."}


@dataclass(frozen=True)
class Job:
    """One run to execute, as a worker gets it: names and plain data, never plugin objects."""

    run_id: str
    label: str  # the algorithm as the user named it
    spec: dict[str, Any]  # `RunSpec.to_dict()`
    root: str  # the results folder, absolute
    folder: str = ""  # working directory of the user: relative paths in the spec begin there
    plugins: str = ""  # `$STALEHARNESS_PLUGINS`: where the sweep found its plugins
    checkpoint_seconds: float = 30.0  # between two checkpoints
    holder: str = ""  # `Store.next_holder`, if workers on several machines share the results folder
    share: int = 1  # places on a machine that it takes: more after a run has run out of memory beside others
    runs_per_gpu: int = 1  # number of runs that share the memory of its GPU
    restart: bool = False  # start over if no checkpoint fits, instead of refusing the run


@dataclass(frozen=True)
class ResourceRequest:
    """Resources that the runs of a sweep need."""

    jobs: int | None = None  # runs at a time; None: as many as there is room for
    threads: int = 1  # of each run, and so the cores that it takes
    device: str = "cpu"
    slurm: str = ""  # options of sbatch, as typed; for the Slurm runner
    runs_per_gpu: int | None = None  # number of runs that share a GPU; None: the runner's default
    fills_gpu: bool = False  # a run takes whatever memory a GPU has
    memory: int | None = None  # bytes of main memory for each; None: unknown


@dataclass(frozen=True)
class RunProgress:
    """Message of a run: a finished phase, a step of its preparations, or a note for the user."""

    run_id: str
    content: dict[str, Any]  # {phase, phases, steps, ...}, {PREPARING: step} or {NOTE: line}


@dataclass(frozen=True)
class RunEnd:
    """End of all work on a run."""

    run_id: str
    message: dict[str, Any] | None  # last: {"event": "done" | "failed" | "interrupted", ...}; None without one
    cause: str  # for users, if there is no message: `signal SIGKILL`, `exit code 1`, `loss of its node`
    lost: bool = False  # not its own fault, and its worker may still be alive: it is to be started again
    failure_class: str = "Killed"  # of the failure, if there is no message


@dataclass(frozen=True)
class RunWait:
    """A run waits in the runner's queue."""

    run_id: str


@dataclass(frozen=True)
class RunStart:
    """A run that was queued has begun."""

    run_id: str


Event = RunProgress | RunEnd | RunWait | RunStart


class Runner(Protocol):
    """Executes jobs, several at a time. For each job it reports any number of `RunProgress` and then one `RunEnd`. A
    runner with a queue reports `RunWait` while a job waits there, and `RunStart` when it has begun.
    """

    capacity: int
    """Jobs at a time; 0 before `open` if only the cluster can tell; may change from then on."""

    per_machine: int
    """Largest number of these that share one machine and its memory."""

    multi_machine: bool
    """Workers may be on other machines, which share the results folder: each job needs a `holder`."""

    has_queue: bool
    """Accepts every job at once, and reports which wait and which have begun."""

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Prepare; called once, first. Raises `UserError` if jobs cannot be executed.

        modules: imported by every job; a runner whose workers share memory, or outlive a job, loads them beforehand.
        root: the results folder, absolute, which every worker has to see.
        """

    def start(self, job: Job) -> None:
        """Start to execute a job (`worker.main`), in a process of its own."""

    def poll(self, timeout: float) -> Iterable[Event]:
        """Return the events since the last call; wait up to `timeout` seconds for one."""

    def ask_to_stop(self, run_id: str) -> None:
        """Let the job finish its phase, write a checkpoint and end; it may have ended already."""

    def kill(self, run_id: str) -> None:
        """End the job at once; called again until it has ended."""

    def leave_jobs(self) -> None:
        """Forget the jobs that outlive this sweep, before `close`: another sweep has taken over and continues them."""

    def close(self) -> None:
        """End all remaining jobs at once and release all resources."""


def describe_exit(code: int | None) -> str:
    """Describe how a process ended, by its exit code or the negative number of a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def resource_request(spec: RunSpec, jobs: str | None, runs_per_gpu: str | None, memory: str | None) -> ResourceRequest:
    """Parse JOBS, RUNS_PER_GPU and MEMORY as typed, for runs like `spec`. Raises `UserError`."""
    per_gpu = None if runs_per_gpu is None else _count("RUNS_PER_GPU", runs_per_gpu, MAX_PER_GPU)
    if per_gpu is not None and spec.device == "cpu":
        raise UserError(f"RUNS_PER_GPU={per_gpu} is for runs on a GPU; give DEVICE=cuda with it")
    return ResourceRequest(
        jobs=None if jobs is None else _count("JOBS", jobs, MAX_JOBS),
        threads=spec.threads,
        device=spec.device,
        runs_per_gpu=per_gpu,
        fills_gpu=spec.fills_gpu,
        memory=None if memory is None else _bytes(memory),
    )


def _count(name: str, text: str, limit: int) -> int:
    number = whole_number(text, name)
    if number < 1:
        raise UserError(f"{name}={number} must be at least 1")
    if number > limit:
        raise UserError(f"{name}={number} is too many; give at most {limit}")
    return number


def _bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{0,2})\s*", text)
    if match is None or match[2].upper() not in UNITS:
        raise UserError(
            f"MEMORY={shorten(text)!r} is not an amount of memory; give what one run may take, e.g. 2G or 800M"
        )
    size = int(float(match[1]) * UNITS[match[2].upper()])
    if size < LEAST_MEMORY:
        raise UserError(
            f"MEMORY={shorten(text)} is {size} bytes, too little for a run; give it with a unit, e.g. 2G or 800M"
        )
    return size


def usable_cores() -> int:
    """Return the number of cores that this process may use, rounded down to whole ones where control groups grant a
    fraction."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cores, *cpu_quotas()])))


def usable_gpus() -> list[str]:
    """Return the GPUs that this process may use, by the names that `GPUS` takes."""
    if (names := os.environ.get(GPUS)) is not None:
        return [name.strip() for name in names.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def check_device(device: str) -> None:
    """Raise `UserError` unless some machine may have such a device."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"DEVICE={device!r} is unknown; give cpu or cuda")


def check_device_here(device: str) -> None:
    """Raise `UserError` unless torch can use it on this machine."""
    check_device(device)
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"DEVICE={device}, but torch {torch.__version__} sees no GPU on this machine; give DEVICE=cpu")
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise UserError(
            f"DEVICE={device}, but this machine has {torch.cuda.device_count()} GPU(s), numbered from cuda:0"
        )
