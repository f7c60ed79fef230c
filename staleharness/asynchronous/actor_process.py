"""Process of an actor, and the counts of its progress in shared memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from ..base.plugin_files import PATH_VARIABLE
from ..base.plugins import plugin_line
from ..errors import Diverged, UserError, one_line
from ..training.policy_buffer import PolicyBuffer
from ..training.sample_ledger import Count
from ..training.torch_setup import set_up_worker
from .shared_weights import SharedWeights

SAME_CLASS = (UserError, Diverged, MemoryError)  # errors of an actor that the learner raises as such
LONGEST_SLEEP = 0.1  # seconds between two checks whether the run is over


class StopActor(Exception):
    """The run is over."""


class GroupMaker(Protocol):
    """An actor of some kind of task."""

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        """Generate the run's group `group`, the actor's `nth`; return its packed content and the decisions of each row.
        Calls `feed.step` before each decision, and acts with the version of `feed.buffer` that it returns."""


@dataclass(frozen=True)
class GroupProgress:
    """Progress of a group: its versions and the decisions made so far."""

    versions: list[int]  # of each segment
    starts: list[int]  # decisions made before it
    lengths: list[int]  # decisions of each row
    began: float  # seconds, by the clock that all processes of a machine share

    @property
    def count(self) -> Count:
        return Count(len(self.lengths), sum(self.lengths))


@dataclass(frozen=True)
class FinishedGroup(GroupProgress):
    """A finished group, as its actor sends it."""

    finished_at: float
    content: bytes
    total: Count  # finished by this actor so far, by its own count


@dataclass(frozen=True)
class ActorTiming:
    """Pace of an actor."""

    fetch: int  # decisions after which the newest weights are fetched; 0: when a group begins
    delay: float  # minimum seconds per decision


@dataclass
class WeightFeed:
    """An actor's view of the weights while it makes one group.

    buffer: every version that it has used in this group.
    """

    weights: SharedWeights
    timing: ActorTiming
    counter: ProgressCounter
    group: int
    buffer: PolicyBuffer = field(default_factory=lambda: PolicyBuffer(2**62))
    versions: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self.counter.begin(self.group, self.began)

    def step(self, t: int) -> int | None:
        """Return the version that acts from decision t on, or None where it is the one before.

        Call it before decision t, once the earlier decisions have taken their time. Raises `StopActor`.
        """
        self.counter.reach([t] * self.counter.rows)
        self.wait(t)
        if t and not (self.timing.fetch and t % self.timing.fetch == 0):
            return None
        if self.versions and self.weights.newest_phase == self.versions[-1]:
            return None
        version = self.weights.newest()
        if self.versions and version.phase == self.versions[-1]:
            return None
        self.counter.add_segment(version.phase, t)
        self.buffer.push(version)
        self.versions.append(version.phase)
        self.starts.append(t)
        return version.phase

    def wait(self, decisions: int) -> None:
        """Wait until the minimum time of that many decisions has passed. Raises `StopActor`."""
        due = self.began + self.timing.delay * decisions
        while not self.weights.closed.value:
            left = due - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, LONGEST_SLEEP))
        raise StopActor

    def finish(self, lengths: list[int]) -> None:
        """Record the final lengths of the rows, and wait out their minimum time. Raises `StopActor`."""
        self.counter.reach(lengths)
        self.wait(max(lengths))


@dataclass(frozen=True)
class ActorFailure:
    """Error of an actor as plain text, since an exception may not survive pickling."""

    kind: str  # class
    message: str
    place: str  # in a plugin's file, `my_env.py, line 33`
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> ActorFailure:
        """Describe an error that is being handled."""
        kind = next((c for c in SAME_CLASS if isinstance(error, c)), type(error))
        return cls(kind.__name__, str(error) or "no message", plugin_line(error), traceback.format_exc())

    def error(self, number: int) -> Exception:
        """Return the error for the learner to raise: of the same class where users know it, with the traceback of actor
        `number` as a note."""
        error_class = {c.__name__: c for c in SAME_CLASS}.get(self.kind)
        place = f" ({self.place})" if self.place else ""
        text = f"actor {number} failed: {self.kind}: {one_line(self.message)}{place}"
        error = RuntimeError(text) if error_class is None else error_class(self.message)
        error.add_note(f"in the process of actor {number}:\n{self.traceback}")
        return error


@dataclass(frozen=True)
class ActorConfig:
    """Arguments with which a process is started; all of them can be sent to a new process.

    open: makes the actor, in its own process. threads, plugins: as where the learner runs.
    """

    open: Callable[[int], GroupMaker]
    number: int
    weights: SharedWeights
    timing: ActorTiming
    counter: ProgressCounter
    threads: int
    plugins: str


def work(config: ActorConfig, channel: Connection) -> None:
    """Generate the groups that the channel asks for. An error in the environment is sent to the learner, which ends the
    run."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the learner handles them and ends its actors
    os.environ[PATH_VARIABLE] = config.plugins
    set_up_worker(config.threads)
    try:
        serve(config, channel)
    except StopActor:
        return
    except BaseException as error:
        with contextlib.suppress(OSError):
            channel.send(ActorFailure.of(error))


def serve(config: ActorConfig, channel: Connection) -> None:
    """Generate groups and send them. Raises `StopActor`, and any error of the actor."""
    actor, total = config.open(config.number), Count()
    for nth, group in enumerate(_groups(channel)):
        feed = WeightFeed(config.weights, config.timing, config.counter, group)
        content, lengths = actor.make(group, nth, feed)
        feed.finish(lengths)
        total += Count(len(lengths), sum(lengths))
        message = FinishedGroup(feed.versions, feed.starts, lengths, feed.began, time.monotonic(), content, total)
        with contextlib.suppress(OSError):  # the learner is gone, as the next `recv` will say
            channel.send(message)


def _groups(channel: Connection) -> Iterator[int]:
    """The groups that the channel asks for, until it asks for no more or the learner is gone."""
    with contextlib.suppress(EOFError, OSError):
        yield from iter(channel.recv, None)


NO_GROUP = -1
GROUP, BEGAN, SEGMENTS, LENGTHS = range(4)  # places in the array; from LENGTHS on one number per row
NANO = 1e-9


class ProgressCounter:
    """Progress of one actor in shared memory. Only its process writes; a reader may be a moment behind."""

    def __init__(self, context: BaseContext, rows: int, segments: int) -> None:
        """rows: of a group. segments: of a row, at most."""
        self.rows, self.segments = rows, segments
        self.numbers: Any = context.RawArray("q", LENGTHS + rows + 2 * segments)
        self.numbers[GROUP] = NO_GROUP

    def begin(self, group: int, began: float) -> None:
        """Count for another group."""
        self.numbers[GROUP] = NO_GROUP
        self.numbers[SEGMENTS] = 0
        self.reach([0] * self.rows)
        self.numbers[BEGAN] = round(began / NANO)
        self.numbers[GROUP] = group

    def add_segment(self, version: int, start: int) -> None:
        """Record a version before the first decision that it makes."""
        place = self.numbers[SEGMENTS]
        first = LENGTHS + self.rows + 2 * place
        self.numbers[first], self.numbers[first + 1] = version, start
        self.numbers[SEGMENTS] = place + 1

    def reach(self, lengths: Sequence[int]) -> None:
        """Record how many decisions each row has."""
        self.numbers[LENGTHS : LENGTHS + self.rows] = lengths

    def read(self, group: int) -> GroupProgress | None:
        """Return the progress of a group; None before its first version is recorded."""
        if self.numbers[GROUP] != group:
            return None
        lengths = self.numbers[LENGTHS : LENGTHS + self.rows]  # before the segments, which are written first
        count, first = self.numbers[SEGMENTS], LENGTHS + self.rows
        numbers = self.numbers[first : first + 2 * count]
        began = self.numbers[BEGAN] * NANO
        return GroupProgress(numbers[::2], numbers[1::2], lengths, began) if count else None
