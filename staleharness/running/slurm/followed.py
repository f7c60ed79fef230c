"""A run in Slurm's hands: which task it is, what that has told, and how often it was put back in the queue."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..job import Job
from ..runner import NOTE, PREPARING, Progress
from .array import Array
from .commands import State

FLAPS = 4, 600.0  # a task that falls more often than this within so many seconds is not put back again
ENDED = (
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED RECONFIG_FAIL "
    "REVOKED TIMEOUT UNKNOWN"
).split()
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
NOT_ITS_FAULT = ("BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED", "RECONFIG_FAIL", "REVOKED")
ENDS = {  # Slurm's word -> class of the failure, and how the worker ended
    "CANCELLED": ("Cancelled", "a cancellation in Slurm"),
    "DEADLINE": ("TimeOut", "its deadline in Slurm"),
    "OUT_OF_MEMORY": ("OOM", "taking more memory than Slurm gives it; SLURM='--mem=...' asks for more"),
    "TIMEOUT": ("TimeOut", "its time limit, before it had done one phase; SLURM='--time=...' asks for more"),
    "UNKNOWN": ("Killed", "an end that Slurm does not remember"),
}


@dataclass
class Followed:
    job: Job
    array: Array | None = None  # None: it is still to be submitted
    index: int = 0
    state: State = field(default=State("PENDING"))
    begun: bool = False  # in this life
    word: dict[str, Any] | None = None  # its last, of this life
    since: float | None = None  # when its end, or its last word, was seen
    phase: int = 0  # the last it told of
    earlier: int = 0  # the highest of its earlier lives
    asked: bool = False  # to stop
    killed: bool = False
    stays: bool = False  # though it has said its last word
    verdict: tuple[str, str] | None = None  # class and cause, where we have ended it
    _falls: list[float] = field(default_factory=list)
    _read: int = 0  # bytes of what it told

    @property
    def task(self) -> str:
        assert self.array is not None, "it was submitted"
        return self.array.task(self.index)

    def take(self, array: Array, index: int, state: State) -> None:
        """It is this task, from now on."""
        self.array, self.index = array, index
        array.live.add(index)
        self._new_life(state)

    def let_go(self) -> None:
        """Its task has ended, and is not to be put back."""
        assert self.array is not None, "it was submitted"
        self.array.live.discard(self.index)
        self.array = None

    def again(self, state: State, now: float) -> None:
        """It was put back in the queue."""
        self._falls += [now] * (state.restarts - self.state.restarts)
        self._new_life(state)

    def fell(self, now: float) -> None:
        self._falls.append(now)

    def _new_life(self, state: State) -> None:
        self.earlier = max(self.earlier, self.phase)
        self.state, self.begun, self.word, self.since, self.stays = state, False, None, None, False
        self.phase = self._read = 0

    def flaps(self, now: float) -> bool:
        most, within = FLAPS
        self._falls = [then for then in self._falls if now - then <= within]
        return len(self._falls) > most

    def goes_on(self) -> bool:
        """Whether it did not end of itself, and is to be put back in the queue. Out of time before it has got further
        than before, it would be so for ever."""
        stopped = self.word is not None and self.word["event"] == "interrupted"
        if self.asked or self.killed or self.verdict or (self.word and not stopped):
            return False
        if self.state.word in NOT_ITS_FAULT:
            return True
        cancelled = self.state.word == "CANCELLED" and not self.stays
        if cancelled or not (stopped or self.state.word == "TIMEOUT"):
            return False
        if self.phase <= self.earlier:
            self.verdict = ENDS["TIMEOUT"]
        return self.verdict is None

    def hear(self) -> Iterator[Progress]:
        """What it has told since the last time."""
        assert self.array is not None, "it was submitted"
        try:
            with open(self.array.told(self.index, self.state.restarts), "rb") as stream:
                stream.seek(self._read)
                lines = stream.read().splitlines(keepends=True)
        except OSError:
            return  # it has told nothing yet, or the file system is away for a while
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._read += len(line)
            message = json.loads(line)
            if "event" in message:
                self.word = message
            elif "phase" in message or PREPARING in message or NOTE in message:
                self.phase = max(self.phase, message.get("phase", 0))
                yield Progress(self.job.run_id, message)

    def how(self) -> tuple[str, str]:
        """The class and the cause of an end without a word."""
        assert self.array is not None, "it was submitted"
        kind, cause = self.verdict or ENDS.get(self.state.word) or ("Killed", _code(self.state))
        where = f" (task {self.task}{f' on {self.state.node}' if self.state.node else ''})"
        if self._read or self.state.word not in ("FAILED", "LAUNCH_FAILED"):
            return kind, cause + where
        printed = self.array.printed(self.index)
        last = f"it printed: {printed.splitlines()[-1][:300]}" if printed else "does that node see OUT?"
        return kind, f"{cause}{where}, before it began; {last}"


def _code(state: State) -> str:
    """How a process ended, in words."""
    if state.status is None or state.word not in ("COMPLETED", "FAILED"):
        return f"{state.word} in Slurm"
    number = os.WTERMSIG(state.status)
    if not number:
        return f"exit code {os.WEXITSTATUS(state.status)}"
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
