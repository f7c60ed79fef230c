"""A Slurm cluster: the runs of a sweep are the tasks of an array, of which so many run at a time.

Slurm and the results folder are all that is talked through: the sweep may be killed, and the next one finds the array
and goes on with it. A task that ran out of time, or lost its node or its place, is put back in the queue, it alone,
and goes on from its checkpoint; one that failed is left for the next call.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...base.logger import LOGGER
from ...errors import UserError
from ..job import Job
from ..runner import Began, Demand, Ended, Event, Queued
from ..slurm import commands
from ..slurm.array import Array
from ..slurm.commands import SlurmError, State
from ..slurm.earlier import take_over
from ..slurm.followed import ENDED, FLAPS, WAITING, Followed
from ..slurm.options import parse

TASK = "staleharness.running.slurm.task"
WARNING = 120  # seconds before its time limit that a task is warned, where the user does not say
LOOKS = 1.0, 15.0  # seconds between two looks at the queue: at first, and at most while nothing happens there
READS = 1.0  # and between two looks at what the tasks tell
AGAIN = 10.0  # until an order is given once more: a task that was just starting does not hear it
VISIBLE = 10.0  # until the last word of a task that has ended is there to read: network file systems take their time
GRACE = 10.0  # for a task to end after its last word
NO_END = 1_000_000  # tasks at a time, where JOBS is not given
USUAL = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Dependency", "Cleaning", "")


class Slurm:
    """Takes every job at once, and has Slurm run so many of them at a time, or as many as it likes."""

    shared = queues = True
    neighbours = 1

    def __init__(self, jobs: int | None = None, options: str = "", memory: int | None = None) -> None:
        """memory: bytes for each run, where `options` do not say."""
        self.capacity = jobs or 0
        self.options = parse(options)
        if memory is not None and not any(word.startswith("--mem") for word in self.options):
            self.options.append(f"--mem={max(1, memory >> 20)}M")
        if shutil.which("sbatch") is None:
            raise UserError("RUNNER=slurm: there is no sbatch here; start the sweep where jobs are submitted")
        self.runs: dict[str, Followed] = {}
        self.arrays: list[Array] = []
        self.most = 0  # tasks in an array
        self._root = Path()
        self._left: Path | None = None  # where an earlier sweep may have left arrays
        self._unsure: Array | None = None  # submitted, it may be
        self._said: set[str] = set()
        self._next = {"submit": 0.0, "order": 0.0, "read": 0.0, "look": 0.0}
        self._pace = LOOKS[0]

    def open(self, modules: Sequence[str], root: Path) -> None:
        """See that Slurm answers. Its tasks share nothing, so nothing is loaded beforehand."""
        self._root = self._left = root
        try:
            self.most = commands.most_tasks()
        except SlurmError as error:
            raise UserError(f"RUNNER=slurm: {error}") from error

    def start(self, job: Job) -> None:
        self.runs[job.run_id] = Followed(job)

    def poll(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        now = time.monotonic()
        steps = {"submit": self._submit, "order": self._order, "read": self._read, "look": self._look}
        try:
            for name, step in steps.items():
                if now >= self._next[name]:
                    for event in step(now):  # one by one: what was heard counts, whatever happens to the rest
                        events.append(event)  # noqa: PERF402
        except SlurmError as error:
            if not error.passes:
                raise UserError(f"RUNNER=slurm: {error}") from error
            self._say("silent", "Slurm does not answer, and is asked again: %s", error)
            self._next["submit"] = self._next["order"] = self._next["look"] = now + AGAIN
        if not events:
            time.sleep(timeout)
        return events

    def ask_to_stop(self, run_id: str) -> None:
        self.runs[run_id].asked = True
        self._next["order"] = 0.0

    def kill(self, run_id: str) -> None:
        if not self.runs[run_id].killed:
            self.runs[run_id].killed = True
            self._next["order"] = 0.0

    def close(self) -> None:
        left = [run.task for run in self.runs.values() if run.array is not None]
        try:
            commands.cancel(left)
        except SlurmError as error:
            LOGGER.warning("Slurm does not answer, and may still run %s: %s", " ".join(left), error)
        for array in self.arrays:
            if not array.live:
                array.forget()

    def _say(self, key: str, text: str, *what: object) -> None:
        """Say it, once."""
        if key not in self._said:
            self._said.add(key)
            LOGGER.warning(text, *what)

    # Submitting -------------------------------------------------------------------------------------------------------

    def _submit(self, now: float) -> Iterator[Event]:
        """An array of what waits to be submitted, as far as there is room beside those under way."""
        if self._left is not None:
            self.arrays += take_over(self._left, self.runs, self.options)
            self._left = None
        if not self._unsure:
            waiting = [run for run in self.runs.values() if not (run.array or run.asked or run.killed)]
            if not waiting or self._room(len(self.arrays)) < 1:
                return
            jobs = [run.job for run in waiting[: self.most]]
            self._unsure = Array.make(self._root, jobs, self.options)
            array_id = None
        else:
            array_id = commands.find(self._unsure.name)
        array = self._unsure
        try:
            array.submitted(array_id or self._sbatch(array))
        except SlurmError as error:
            if error.passes:
                raise  # it may have been heard all the same
            array.forget()
            self._unsure = None
            if not error.too_many or (len(array.jobs) == 1 and not self._live(self.arrays)):
                raise
            self.most = max(1, len(array.jobs) // 2)
            self._next["submit"] = now + (AGAIN if len(array.jobs) == 1 else 0.0)
            return
        self._unsure = None
        self.arrays.append(array)
        for index, job in enumerate(array.jobs):
            self.runs[job.run_id].take(array, index, State("PENDING"))
            yield Queued(job.run_id)
        LOGGER.warning("array %s: %d tasks, %d at a time", array.id, len(array.jobs), array.at_a_time)

    def _sbatch(self, array: Array) -> str:
        array.at_a_time = self._share(array, len(self.arrays))
        threads = max(int(job.spec["threads"]) for job in array.jobs)
        usual = f"--cpus-per-task={threads}", f"--signal=B:USR1@{WARNING}", f"--chdir={array.jobs[0].folder}"
        command = (sys.executable, "-m", TASK, str(array.folder))
        output = array.folder / "%a.out"
        return commands.submit(command, len(array.jobs), array.at_a_time, array.name, output, [*usual, *self.options])

    def _room(self, place: int) -> int:
        """How many tasks may run beside those of the arrays before this place."""
        return (self.capacity or NO_END) - self._live(self.arrays[:place])

    def _share(self, array: Array, place: int) -> int:
        return max(1, min(len(array.jobs), self._room(place)))

    @staticmethod
    def _live(arrays: Iterable[Array]) -> int:
        return sum(len(array.live) for array in arrays)

    # Orders -----------------------------------------------------------------------------------------------------------

    def _order(self, now: float) -> Iterator[Event]:
        """Let those tasks hear of it that are to end, again and again."""
        self._next["order"] = now + AGAIN
        ending = [run for run in self.runs.values() if run.asked or run.killed]
        if not ending:
            return
        self._hurry(now)
        unsure = [job.run_id for job in self._unsure.jobs] if self._unsure else []
        for run in ending:
            if run.array is None and run.job.run_id not in unsure:
                del self.runs[run.job.run_id]
                yield Ended(run.job.run_id, None, "an order, before it was submitted")
        submitted = [run for run in ending if run.array is not None]
        running = [run for run in submitted if run.state.word not in WAITING]
        commands.cancel([run.task for run in running if run.killed], "--signal=KILL", "--full")
        commands.cancel([run.task for run in submitted if run.killed])
        commands.cancel([run.task for run in submitted if not run.killed], "--state=PENDING")
        commands.cancel([run.task for run in running if not run.killed], "--signal=USR1", "--batch")

    # Listening --------------------------------------------------------------------------------------------------------

    def _read(self, now: float) -> Iterator[Event]:
        """What tasks have told."""
        self._next["read"] = now + READS
        for run in self.runs.values():
            if run.array is None or run.state.word in WAITING:
                continue
            before = run.word
            yield from run.hear()
            if run.word is not None and before is None:
                run.since = now
                self._next["look"] = now

    def _look(self, now: float) -> Iterator[Event]:
        """What has become of each task. While nothing happens, looks are further and further apart."""
        self._pace = min(LOOKS[1], self._pace * 1.5)
        self._next["look"] = now + self._pace
        followed = [run for run in self.runs.values() if run.array is not None]
        if not followed:
            return
        states = commands.look(str(array.id) for array in self.arrays if array.live)
        self._said.discard("silent")
        for run in followed:
            state = states.get(run.task) or commands.remembered(run.task) or State("UNKNOWN")
            if state != run.state:
                self._hurry(now)
            yield from self._follow(run, state, now)
        mine = {run.task for run in self.runs.values() if run.array is not None}
        for place, array in enumerate(self.arrays):
            others = {index for index in array.live if array.task(index) not in mine}
            array.live -= {i for i in others if states.get(array.task(i), State("UNKNOWN")).word in ENDED}
            share = self._share(array, place)
            if array.live and array.at_a_time != share:
                commands.set_at_a_time(str(array.id), share)
                array.at_a_time = share

    def _hurry(self, now: float) -> None:
        self._pace = LOOKS[0]
        self._next["look"] = now + self._pace

    def _follow(self, run: Followed, state: State, now: float) -> Iterator[Event]:
        run_id = run.job.run_id
        if state.restarts > run.state.restarts:
            yield from run.hear()  # what its last life still had to say
            LOGGER.warning("task %s is back in the queue, to resume from its last checkpoint", run.task)
            run.again(state, now)
        run.state = state
        if run.flaps(now) and run.verdict is None:
            run.verdict = "Flapping", f"being put back in the queue more than {FLAPS[0]} times in 10 minutes"
            self.kill(run_id)
        if state.word in WAITING:
            self._say_why(run)
            yield Queued(run_id)
        elif state.word not in ENDED:
            if not run.begun:
                run.begun = True
                yield Began(run_id)
            if run.word is not None and run.since is not None and now - run.since > GRACE:
                run.stays = True
                commands.cancel([run.task])  # a thread of a plugin's holds it, and has nothing more to say
        else:
            yield from self._end(run, now)

    def _say_why(self, run: Followed) -> None:
        """A task may wait for something that never comes."""
        reason = run.state.reason
        if reason.startswith("launch failed"):
            commands.release(run.task)
        elif reason not in USUAL:
            self._say(reason, "Slurm keeps task %s waiting: %s", run.task, reason)

    def _end(self, run: Followed, now: float) -> Iterator[Event]:
        """A task has ended, for good or to be put back in the queue."""
        yield from run.hear()
        if run.word is None and run.state.word in ("COMPLETED", "FAILED"):
            run.since = run.since or now
            if now - run.since < VISIBLE:
                return
        if run.goes_on():
            self._put_back(run, now)
            return
        kind, how = run.how()
        run.let_go()
        del self.runs[run.job.run_id]
        yield Ended(run.job.run_id, None if run.verdict else run.word, how, kind=kind)

    def _put_back(self, run: Followed, now: float) -> None:
        """Back in the queue, this task alone; where Slurm does not do that any more, in an array of its own."""
        try:
            commands.requeue(run.task)
        except SlurmError as error:
            if error.passes:
                raise
            LOGGER.warning("task %s could not be put back in the queue (%s), and is submitted anew", run.task, error)
            run.fell(now)
            run.let_go()
            self._next["submit"] = now


def make(demand: Demand) -> Slurm:
    """As many runs at a time as asked for, or as Slurm finds room for."""
    if demand.runs_per_gpu is not None:
        raise UserError("RUNS_PER_GPU is not for RUNNER=slurm; ask Slurm for a share of one: SLURM='--gres=shard:1'")
    return Slurm(demand.jobs, demand.slurm, demand.memory)
