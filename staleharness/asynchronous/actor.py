"""What runs in an actor's process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Protocol

import torch

from ..base.plugins import PATH_VARIABLE
from ..simulator.buffer import PolicyBuffer, Version
from ..simulator.ledger import Count
from .board import Board
from .tally import Tally

LONGEST_SLEEP = 0.1  # seconds, before an actor looks whether the run is over


class Stopped(Exception):
    """The run is over."""


class Making(Protocol):
    """An actor of some kind of task."""

    def make(self, group: int, nth: int, feed: Feed) -> tuple[bytes, list[int]]:
        """The group that is the actor's `nth` and the run's `group`, packed to be sent, and the decisions of each row.
        It calls `feed.step` before each decision, and decides with the versions of `feed.buffer` as that says."""


@dataclass(frozen=True)
class Made:
    """A finished group, as its actor hands it over."""

    versions: list[int]  # of each stretch
    starts: list[int]  # decisions made before it
    lengths: list[int]  # decisions of each row
    began: float  # by the clock that all processes of a machine share
    made: float
    content: bytes
    total: Count  # that this actor has finished so far, by its own count

    @property
    def count(self) -> Count:
        return Count(len(self.lengths), sum(self.lengths))


@dataclass(frozen=True)
class Load:
    """How an actor works."""

    fetch: int  # decisions after which the newest weights are fetched; 0: when a group begins
    delay: float  # seconds that a decision takes at least


@dataclass
class Feed:
    """An actor's view of the weights while it makes one group.

    buffer: every version that it has used in this group.
    """

    board: Board
    load: Load
    tally: Tally
    group: int
    buffer: PolicyBuffer = field(default_factory=lambda: PolicyBuffer(2**62))
    versions: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    began: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self.tally.begin(self.group, self.began)

    def step(self, t: int) -> int | None:
        """To be called before decision t, once those before it have had their time: the version that acts from here on,
        or None where that is the one before.

        Raises `Stopped`.
        """
        self.tally.reach([t] * self.tally.rows)
        self.last(t)
        if t and not (self.load.fetch and t % self.load.fetch == 0):
            return None
        if self.versions and self.board.newest_phase == self.versions[-1]:
            return None
        return self._take(t, self.board.newest())

    def last(self, decisions: int) -> None:
        """Wait until so many decisions have had the time that they take at least. Raises `Stopped`."""
        due = self.began + self.load.delay * decisions
        while not self.board.closed.value:
            left = due - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, LONGEST_SLEEP))
        raise Stopped

    def _take(self, t: int, version: Version) -> int | None:
        if self.versions and version.phase == self.versions[-1]:
            return None
        self.tally.add_stretch(version.phase, t)
        self.buffer.push(version)
        self.versions.append(version.phase)
        self.starts.append(t)
        return version.phase

    def finish(self, lengths: list[int]) -> None:
        """Note the decisions that rows have in the end, and wait until they have had their time. Raises `Stopped`."""
        self.tally.reach(lengths)
        self.last(max(lengths))


@dataclass(frozen=True)
class Post:
    """What a process is started with; all of it can be sent to a new process.

    open: makes the actor, in its own process. threads, plugins: as where the learner runs.
    """

    open: Callable[[int], Making]
    number: int
    board: Board
    load: Load
    tally: Tally
    threads: int
    plugins: str


def work(post: Post, channel: Connection) -> None:
    """Make groups for as long as the channel says which. A mistake of the environment's is told and ends the run."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the learner hears them and ends us
    os.environ[PATH_VARIABLE] = post.plugins
    torch.set_num_threads(post.threads)
    torch.set_deterministic_debug_mode("error")
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (as in a worker)
    try:
        serve(post, channel)
    except Stopped:
        return
    except BaseException as error:
        with contextlib.suppress(OSError):
            channel.send(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")


def serve(post: Post, channel: Connection) -> None:
    """Make groups, and hand them over. Raises `Stopped`, and whatever goes wrong in the actor."""
    actor, total = post.open(post.number), Count()
    for nth, group in enumerate(_groups(channel)):
        feed = Feed(post.board, post.load, post.tally, group)
        content, lengths = actor.make(group, nth, feed)
        feed.finish(lengths)
        total += Count(len(lengths), sum(lengths))
        made = Made(feed.versions, feed.starts, lengths, feed.began, time.monotonic(), content, total)
        with contextlib.suppress(OSError):  # the learner is gone, as the next `recv` will say
            channel.send(made)


def _groups(channel: Connection) -> Iterator[int]:
    """The groups that the channel asks for, until it asks for no more or the learner is gone."""
    while True:
        try:
            group: int | None = channel.recv()
        except (EOFError, OSError):
            return
        if group is None:
            return
        yield group
