"""The actors' processes, and the bounded queue between them and the learner.

An actor is told which group to generate, sends it, and is told the next one once the queue has room for it, so that a
slow learner holds fast actors back. Each actor has a pipe of its own and shares no lock, so that one that is killed
loses only the group that it was generating; another, with a new number and environments of its own, takes its place.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.plugin_files import PATH_VARIABLE
from ..base.process_launch import short_names, without_main_module
from ..errors import ActorsNotStarted
from ..training.lag_stats import add_histograms
from ..training.policy_buffer import Version
from ..training.sample_ledger import Count, Flow
from .actor_process import ActorConfig, ActorTiming, FinishedGroup, GroupMaker, ProgressCounter, work
from .group_lifecycle import Recorder
from .shared_weights import SharedWeights

MAX_DEATHS = 3  # in a row, with no group handed over in between
PATIENCE = 20.0  # seconds that actors have to end
PAUSE = 0.5  # seconds before a killed fork server is replaced


@dataclass(frozen=True)
class PoolConfig:
    """Settings of the actors of a run and of their queue."""

    open: Callable[[int], GroupMaker]  # makes actor `number`, in its own process; can be sent there
    timings: Sequence[ActorTiming]  # of each actor that works at one time
    groups: int  # of a batch
    rows: int  # of a group
    room: int  # groups that the queue holds
    max_lag: int  # of a group that may be trained on, in phases; older ones are dropped
    length: int  # decisions of the longest row
    preload: Sequence[str] = ()  # modules that actors need


@dataclass
class _ActorProcess:
    number: int
    place: int
    process: Any
    channel: Connection
    counter: ProgressCounter
    total: Count = field(default_factory=Count)  # finished so far, by its own count
    nth: int = -1
    group: int = -1  # number of the group in progress


class ActorPool:
    """Actor processes and their queue. `take` gives the learner a batch; a thread receives groups while it trains."""

    def __init__(self, config: PoolConfig, recorder: Recorder, newest: Version) -> None:
        self.config, self.recorder = config, recorder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["staleharness.asynchronous.actor_process", *config.preload])
        self.weights = SharedWeights(self.context, newest)
        self.weights.publish(newest)
        self.phase = newest.phase  # the next one to train
        self.queue: deque[tuple[int, FinishedGroup]] = deque()
        self.overflow: deque[tuple[_ActorProcess, int, FinishedGroup]] = deque()  # finished, and waiting for room
        self.error: BaseException | None = None
        self.deaths = 0
        self.dropped = Count()  # since the learner took its last batch
        self.dropped_lags: list[int] = []
        self.members: list[_ActorProcess] = []
        self.condition = threading.Condition()
        numbers = [entry.actor for entry in recorder.entries]
        self.next_number = max(numbers, default=-1) + 1
        with self.condition:
            for place in range(len(config.timings)):
                self._spawn(place)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def take(self, phase: int) -> tuple[list[bytes], Flow]:
        """Wait for the groups that this phase trains on; return them in the order in which they were finished, and the
        flow of all groups since the last call.

        Raises the error of an actor that failed.
        """
        with self.condition:
            while len(self.queue) < self.config.groups or self._drop_stale(phase):
                if self.error is not None:
                    raise self.error
                self._admit()
                if len(self.queue) < self.config.groups:
                    self.condition.wait()
            batch = [self.queue.popleft() for _ in range(self.config.groups)]
            now = self.recorder.now()
            for place, (group, _) in enumerate(batch):
                entry = self.recorder.entries[group]
                entry.fate, entry.phase, entry.place, entry.trained_at = "trained", phase, place, now
                entry.left_in = phase
            self.phase = phase + 1
            self._admit()
            flow = self._flow()
        return [group_data.content for _, group_data in batch], flow

    def _flow(self) -> Flow:
        """Return what was generated, dropped and lost since the last call, and what waits now."""
        waiting_groups = [*(group for _, group in self.queue), *(group for _, _, group in self.overflow)]
        waiting = sum((group.count for group in waiting_groups), Count())
        generated, lost = self.recorder.pop_counts()
        flow = Flow(generated, self.dropped, waiting, lost=lost, dropped_lags=self.dropped_lags)
        self.dropped, self.dropped_lags = Count(), []
        return flow

    def state_dict(self) -> dict[str, Any]:
        """Return the record, with the progress of the groups that actors are generating."""
        with self.condition:
            progress = {m.group: m.counter.read(m.group) for m in self.members if m.group >= 0}
            return self.recorder.state_dict({group: p for group, p in progress.items() if p is not None})

    def close(self) -> None:
        """End all actors; the record keeps how far their groups had come."""
        self.weights.closed.value = 1
        with self.condition:
            for member, _, _ in self.overflow:
                _send(member, None)
        self.thread.join(PATIENCE)
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):  # `Process.kill` spares it where its server is gone
                os.kill(member.process.pid, signal.SIGKILL)
        self.thread.join()

    def _drop_stale(self, phase: int) -> bool:
        """Drop groups that are too old to be trained on; return whether there were any."""
        old = [item for item in self.queue if phase - item[1].versions[0] > self.config.max_lag]
        for item in old:
            self.queue.remove(item)
            entry = self.recorder.entries[item[0]]
            entry.fate, entry.left_in = "dropped_stale", phase
            self.dropped += item[1].count
            self.dropped_lags = add_histograms(self.dropped_lags, np.bincount(phase - _versions(item[1])).tolist())
        return bool(old)

    def _admit(self) -> None:
        """Move groups from the overflow into the queue while it has room; their actors begin another."""
        while self.overflow and len(self.queue) < self.config.room:
            member, group, group_data = self.overflow.popleft()
            self.recorder.entries[group].queued_at = self.recorder.now()
            self.queue.append((group, group_data))
            self.condition.notify()
            self._next(member)

    def _next(self, member: _ActorProcess) -> None:
        """Tell an actor to make another group."""
        if self.weights.closed.value:
            _send(member, None)
            return
        member.nth += 1
        member.group = self.recorder.begin(member.number, member.nth)
        _send(member, member.group)

    def _spawn(self, place: int) -> None:
        """Start a process with a number of its own. Raises `ActorsNotStarted`."""
        member = self._start(self.next_number, place)
        self.next_number += 1
        self.members.append(member)
        self._next(member)

    def _start(self, number: int, place: int) -> _ActorProcess:
        """Start a process through the fork server, which multiprocessing restarts if it is killed. An actor that a
        killed server had started finds its pipe closed, and ends."""
        config, timing = self.config, self.config.timings[place]
        segments = -(-config.length // (timing.fetch or config.length))
        plugins = os.environ.get(PATH_VARIABLE, "")
        for _ in range(MAX_DEATHS + 1):
            own_end, actor_end = self.context.Pipe()
            counter = ProgressCounter(self.context, config.rows, segments)
            actor = ActorConfig(config.open, number, self.weights, timing, counter, torch.get_num_threads(), plugins)
            process = self.context.Process(target=work, args=(actor, actor_end), name=f"actor-{number}", daemon=True)
            try:
                with without_main_module(), short_names():
                    process.start()
                return _ActorProcess(number, place, process, own_end, counter)
            except (EOFError, ConnectionError):
                own_end.close()
                time.sleep(PAUSE)
            finally:
                actor_end.close()
        raise ActorsNotStarted(
            f"the process that starts the actors was killed {MAX_DEATHS + 1} times in a row, perhaps for lack of "
            "memory; the same command resumes from the last checkpoint"
        )

    def _listen(self) -> None:
        """Receive messages until no actor is left."""
        try:
            while self.members:
                ready = wait([member.channel for member in self.members])
                for member in [m for m in self.members if m.channel in ready]:
                    try:
                        message = member.channel.recv()
                    except (EOFError, OSError):
                        message = EOFError
                    with self.condition:
                        self._handle_message(member, message)
        except BaseException as error:
            self._fail(error)

    def _handle_message(self, member: _ActorProcess, message: Any) -> None:
        group, member.group = member.group, -1
        if isinstance(message, FinishedGroup):
            self.recorder.record_finished(group, message, self.phase)
            self.recorder.generated += message.total - member.total
            member.total = message.total
            self.deaths = 0
            self.overflow.append((member, group, message))
            self._admit()
            if self.weights.closed.value:  # `close` has told only the actors that were waiting then
                _send(member, None)
        elif message is EOFError:
            self._handle_exit(member, group)
        else:
            self._fail(message.error(member.number))

    def _handle_exit(self, member: _ActorProcess, group: int) -> None:
        """Remove a process that has ended, and replace it unless the run is closing."""
        self.members.remove(member)
        member.process.join()
        member.channel.close()
        progress = member.counter.read(group) if group >= 0 else None
        if progress is not None:
            self.recorder.record_progress(group, progress)
        if self.weights.closed.value or self.error is not None:
            return
        if progress is not None:
            self.recorder.generated += progress.count
            self.recorder.record_loss(group, self.phase)
        self.deaths += 1
        if self.deaths > MAX_DEATHS:
            exit_code = f"the last one with exit code {member.process.exitcode}"
            self._fail(RuntimeError(f"{self.deaths} actors died without delivering data, {exit_code}"))
            return
        self._spawn(member.place)

    def _fail(self, error: BaseException) -> None:
        """Report an error to the learner, and end the other actors."""
        with self.condition:
            self.error = self.error or error
            self.weights.closed.value = 1
            self.condition.notify()


def _versions(group_data: FinishedGroup) -> NDArray[np.int64]:
    """Return the version of every decision of a group, row by row."""
    times = [np.diff([*np.minimum(group_data.starts, length), length]) for length in group_data.lengths]
    return np.concatenate([np.repeat(group_data.versions, counts) for counts in times])


def _send(member: _ActorProcess, group: int | None) -> None:
    """Send an actor the group to make next; None: no more. A process that is gone is noticed by `_listen`."""
    with contextlib.suppress(OSError):
        member.channel.send(group)
