"""Runner for a Slurm cluster: the runs of a sweep are tasks of an array, with a limit on tasks at a time.

All state is in Slurm and in the results folder: the sweep may be killed, and the next one finds the array and continues
with it. A task that ran out of time, was preempted or lost its node is requeued alone and resumes from its checkpoint;
one that failed is left for the next call.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...base.console_log import LOGGER
from ...errors import UserError
from ..runner_interface import Event, Job, ResourceRequest, RunEnd, RunStart, RunWait
from ..slurm import commands
from ..slurm.commands import SlurmError, State, parse_options
from ..slurm.job_array import FINAL_STATES, FLAPS, WAITING_STATES, JobArray, SlurmTask, adopt_arrays

TASK = "staleharness.running.slurm.node_main"
WARNING = 120  # seconds before its time limit that a task is warned, by default
LOOKS = 1.0, 15.0  # seconds between two looks at the queue: at first, and at most while nothing happens there
READS = 1.0  # seconds between two looks at the messages
REPEAT = 10.0  # seconds until an order is repeated: a task that was just starting does not get it
VISIBLE = 10.0  # seconds until the last message of an ended task must be visible: network file systems are slow
GRACE = 10.0  # seconds for a task to end after its last message
NO_LIMIT = 1_000_000  # tasks at a time, without JOBS
USUAL = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Dependency", "Cleaning", "")


class SlurmRunner:
    """Submits every job at once and limits how many run at a time, or leaves that to Slurm."""

    multi_machine = has_queue = True
    per_machine = 1

    def __init__(self, jobs: int | None = None, options: str = "", memory: int | None = None) -> None:
        """memory: bytes for each run, unless `options` set it."""
        self.capacity = jobs or 0
        self.options = parse_options(options)
        if memory is not None and not any(word.startswith(("--mem=", "--mem-per-")) for word in self.options):
            self.options.append(f"--mem={max(1, memory >> 20)}M")
        if shutil.which("sbatch") is None:
            raise UserError(
                "RUNNER=slurm: sbatch is not on the path; start the sweep on a machine from which jobs are submitted"
            )
        self.runs: dict[str, SlurmTask] = {}
        self.arrays: list[JobArray] = []
        self.array_limit = 0  # tasks in an array
        self._root = Path()
        self._earlier: Path | None = None  # folder in which an earlier sweep may have left arrays
        self._unsure: JobArray | None = None  # an array that may have been submitted
        self._warnings: set[str] = set()
        self._next = {"submit": 0.0, "order": 0.0, "read": 0.0, "look": 0.0}
        self._pace = LOOKS[0]

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Check that Slurm answers. Its tasks share nothing, so nothing is loaded beforehand."""
        self._root = self._earlier = root
        try:
            self.array_limit = commands.max_tasks()
        except SlurmError as error:
            raise UserError(f"RUNNER=slurm: {error}") from error

    def start(self, job: Job) -> None:
        self.runs[job.run_id] = SlurmTask(job)

    def poll(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        now = time.monotonic()
        steps = {"submit": self._submit, "order": self._order, "read": self._read, "look": self._look}
        try:
            for name, step in steps.items():
                if now >= self._next[name]:
                    for event in step(now):  # one by one: events before an error count
                        events.append(event)  # noqa: PERF402
        except SlurmError as error:
            if not error.is_transient:
                raise UserError(f"RUNNER=slurm: {error}") from error
            self._warn_once("silent", "Slurm does not answer; asking again: %s", error)
            self._next["submit"] = self._next["order"] = self._next["look"] = now + REPEAT
        if not events:
            time.sleep(timeout)
        return events

    def ask_to_stop(self, run_id: str) -> None:
        self.runs[run_id].stop_request = True
        self._next["order"] = 0.0

    def kill(self, run_id: str) -> None:
        if not self.runs[run_id].kill_request:
            self.runs[run_id].kill_request = True
            self._next["order"] = 0.0

    def leave_jobs(self) -> None:
        self.runs, self.arrays = {}, []

    def close(self) -> None:
        left = [run.task for run in self.runs.values() if run.array is not None]
        try:
            commands.cancel(left)
        except SlurmError as error:
            LOGGER.warning("Slurm does not answer, and may still run %s: %s", " ".join(left), error)
        for array in self.arrays:
            if not array.live:
                array.forget()

    def _warn_once(self, key: str, text: str, *values: object) -> None:
        if key not in self._warnings:
            self._warnings.add(key)
            LOGGER.warning(text, *values)

    # Submitting -------------------------------------------------------------------------------------------------------

    def _submit(self, now: float) -> Iterator[Event]:
        """Submit an array of the runs that wait for it, if there is room beside other arrays."""
        if self._earlier is not None:
            self.arrays += adopt_arrays(self._earlier, self.runs, self.options)
            self._earlier = None
        if not self._unsure:
            waiting = [r for r in self.runs.values() if not (r.array or r.stop_request or r.kill_request)]
            if not waiting or self._room(len(self.arrays)) < 1:
                return
            jobs = [run.job for run in waiting[: self.array_limit]]
            self._unsure = JobArray.make(self._root, jobs, self.options)
            array_id = None
        else:
            array_id = commands.find(self._unsure.name)
        array = self._unsure
        try:
            array.set_id(array_id or self._sbatch(array))
        except SlurmError as error:
            if error.is_transient:
                raise  # the submission may have succeeded
            array.forget()
            self._unsure = None
            if not error.too_many or (len(array.jobs) == 1 and not self._live(self.arrays)):
                raise
            self.array_limit = max(1, len(array.jobs) // 2)
            self._next["submit"] = now + (REPEAT if len(array.jobs) == 1 else 0.0)
            return
        self._unsure = None
        self.arrays.append(array)
        for index, job in enumerate(array.jobs):
            self.runs[job.run_id].assign(array, index, State("PENDING"))
            yield RunWait(job.run_id)
        LOGGER.warning("array %s: %d tasks, %d at a time", array.id, len(array.jobs), array.at_a_time)

    def _sbatch(self, array: JobArray) -> str:
        array.at_a_time = self._share(array, len(self.arrays))
        threads = max(int(job.spec["threads"]) for job in array.jobs)
        default = f"--cpus-per-task={threads}", f"--signal=B:USR1@{WARNING}", f"--chdir={array.jobs[0].folder}"
        command = (sys.executable, "-m", TASK, str(array.folder))
        output = f"{str(array.folder).replace('%', '%%')}/%a.out"  # of which Slurm replaces %a alone
        return commands.submit(command, len(array.jobs), array.at_a_time, array.name, output, [*default, *self.options])

    def _room(self, position: int) -> int:
        """Return how many tasks may run beside those of the first `position` arrays."""
        return (self.capacity or NO_LIMIT) - self._live(self.arrays[:position])

    def _share(self, array: JobArray, position: int) -> int:
        return max(1, min(len(array.jobs), self._room(position)))

    @staticmethod
    def _live(arrays: Iterable[JobArray]) -> int:
        return sum(len(array.live) for array in arrays)

    # Orders -----------------------------------------------------------------------------------------------------------

    def _order(self, now: float) -> Iterator[Event]:
        """Send the orders to stop, repeatedly."""
        self._next["order"] = now + REPEAT
        ending = [run for run in self.runs.values() if run.stop_request or run.kill_request]
        if not ending:
            return
        self._hurry(now)
        unsure = [job.run_id for job in self._unsure.jobs] if self._unsure else []
        for run in ending:
            if run.array is None and run.job.run_id not in unsure:
                del self.runs[run.job.run_id]
                yield RunEnd(run.job.run_id, None, "a request to stop, before it was submitted")
        in_slurm = [run for run in ending if run.array is not None]
        running = [run for run in in_slurm if run.state.name not in WAITING_STATES]
        commands.cancel([run.task for run in running if run.kill_request], "--signal=KILL", "--full")
        commands.cancel([run.task for run in in_slurm if run.kill_request])
        commands.cancel([run.task for run in in_slurm if not run.kill_request], "--state=PENDING")
        commands.cancel([run.task for run in running if not run.kill_request], "--signal=USR1", "--batch")

    # Listening --------------------------------------------------------------------------------------------------------

    def _read(self, now: float) -> Iterator[Event]:
        """Read the messages of tasks."""
        self._next["read"] = now + READS
        for run in self.runs.values():
            if run.array is None or run.state.name in WAITING_STATES:
                continue
            before = run.message
            yield from run.read_messages()
            if run.message is not None and before is None:
                run.since = now
                self._next["look"] = now

    def _look(self, now: float) -> Iterator[Event]:
        """Ask for the states of all tasks; less often while nothing happens."""
        self._pace = min(LOOKS[1], self._pace * 1.5)
        self._next["look"] = now + self._pace
        runs = [run for run in self.runs.values() if run.array is not None]
        if not runs:
            return
        states = commands.look(str(array.id) for array in self.arrays if array.live)
        self._warnings.discard("silent")
        for run in runs:
            state = states.get(run.task) or commands.look_up(run.task) or State("UNKNOWN")
            state = replace(state, restarts=max(state.restarts, run.state.restarts))  # accounting does not say
            if state != run.state:
                self._hurry(now)
            yield from self._follow(run, state, now)
        tasks = {run.task for run in self.runs.values() if run.array is not None}
        for position, array in enumerate(self.arrays):
            others = {index for index in array.live if array.task(index) not in tasks}
            array.live -= {i for i in others if states.get(array.task(i), State("UNKNOWN")).name in FINAL_STATES}
            share = self._share(array, position)
            if array.live and array.at_a_time != share:
                commands.set_at_a_time(str(array.id), share)
                array.at_a_time = share

    def _hurry(self, now: float) -> None:
        self._pace = LOOKS[0]
        self._next["look"] = now + self._pace

    def _follow(self, run: SlurmTask, state: State, now: float) -> Iterator[Event]:
        run_id = run.job.run_id
        if state.restarts > run.state.restarts:
            yield from run.read_messages()  # the last ones before the requeue
            LOGGER.warning("task %s is back in the queue, to resume from its last checkpoint", run.task)
            run.note_requeue(state, now)
            if run.stop_request or run.kill_request:
                self._next["order"] = 0.0  # the requeue may have undone it
        run.state = state
        if run.is_flapping(now) and run.verdict is None:
            run.verdict = "Flapping", f"being put back in the queue more than {FLAPS[0]} times in 10 minutes"
            self.kill(run_id)
        if state.name in WAITING_STATES:
            self._explain_wait(run)
            yield RunWait(run_id)
        elif state.name not in FINAL_STATES:
            if not (run.has_begun or run.kill_request):
                run.has_begun = True
                yield RunStart(run_id)
            if run.message is not None and run.since is not None and now - run.since > GRACE:
                run.outlives_message = True
                commands.cancel([run.task])  # a plugin's thread keeps it from ending
        else:
            yield from self._end(run, now)

    def _explain_wait(self, run: SlurmTask) -> None:
        """Release a task after a failed launch; warn if it waits for an unusual reason, which may never end."""
        reason = run.state.reason
        if reason.startswith("launch failed"):
            commands.release(run.task)
        elif reason not in USUAL:
            self._warn_once(reason, "Slurm keeps task %s waiting: %s", run.task, reason)

    def _end(self, run: SlurmTask, now: float) -> Iterator[Event]:
        """Report a task that has ended, or requeue it."""
        yield from run.read_messages()
        if run.message is None and run.state.name in ("COMPLETED", "FAILED"):
            run.since = run.since or now
            if now - run.since < VISIBLE:
                return
        if run.should_requeue():
            self._requeue(run, now)
            return
        failure, cause = run.explain_end()
        run.detach()
        del self.runs[run.job.run_id]
        yield RunEnd(run.job.run_id, None if run.verdict else run.message, cause, failure_class=failure)

    def _requeue(self, run: SlurmTask, now: float) -> None:
        """Requeue this task alone; submit it in a new array if Slurm refuses."""
        try:
            commands.requeue(run.task)
        except SlurmError as error:
            if error.is_transient:
                raise
            LOGGER.warning("task %s could not be requeued (%s), and is submitted again", run.task, error)
            run.note_resubmission(now)
            run.detach()
            self._next["submit"] = now


def make(request: ResourceRequest) -> SlurmRunner:
    """Make the runner: as many runs at a time as requested, or as Slurm finds room for."""
    if request.runs_per_gpu is not None:
        raise UserError("RUNS_PER_GPU is not for RUNNER=slurm; ask Slurm for a share of one: SLURM='--gres=shard:1'")
    return SlurmRunner(request.jobs, request.slurm, request.memory)
