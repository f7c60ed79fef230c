"""Workers that SIGKILL themselves at a chosen point of a run: before its first phase, while a phase is logged, while a
checkpoint is written, after its rename and before older ones go, or while the run is published. And workers that stay
at a phase, so that whatever is to happen to them there happens before they go on.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from staleharness.running.run_folder import RunFolder
from staleharness.running.run_record import json_line
from staleharness.running.runner_interface import Event, Job, RunEnd
from staleharness.running.runners import local
from staleharness.running.runners.local import LocalPool
from staleharness.store.store import Store
from staleharness.training import checkpoint
from staleharness.training.phase_record import PhaseRecord

MOST = {"start": 8, "log": 3, "write": 3, "rename": 4, "publish": 10}  # point -> the latest turn at which to die


class KillingPool(LocalPool):
    """A pool each of whose workers dies at a point drawn for it, until `most` have died. One that ends before it
    comes there lives."""

    def __init__(self, capacity: int, draw: random.Random, most: int) -> None:
        super().__init__(capacity)
        self.draw, self.most = draw, most
        self.points: dict[str, str] = {}  # run id -> where its present worker is to die
        self.kills: Counter[str] = Counter()  # by point

    def start(self, job: Job) -> None:
        point = self.draw.choice(list(MOST))
        nth = self.draw.randint(1, MOST[point])
        armed = self.kills.total() + len(self.points) < self.most
        if armed:
            self.points[job.run_id] = point
        order(job).write_text(json.dumps([point, nth] if armed else None))
        super().start(job)

    def poll(self, timeout: float) -> Iterator[Event]:
        for event in super().poll(timeout):
            if isinstance(event, RunEnd):
                point = self.points.pop(event.run_id, "")
                if event.cause == "signal SIGKILL":
                    self.kills[point] += 1
            yield event


def order(job: Job) -> Path:
    """The file that says where a worker is to die."""
    return Path(f"{job.root}.{job.run_id}.json")


def child(job: Job, channel: Any, gpu: str) -> None:
    """Stand in for `local._in_child`."""
    if point := json.loads(order(job).read_text()):
        ARM[point[0]](point[1])
    local._in_child(job, channel, gpu)


STAYS_AT = 6


def waiting_child(job: Job, channel: Any, gpu: str) -> None:
    """Stand in for `local._in_child`: at phase `STAYS_AT` it waits for the order to stop, or for its sweep's end."""
    local._in_child(job, WaitingChannel(channel), gpu)  # type: ignore[arg-type]


class WaitingChannel:
    def __init__(self, channel: Any) -> None:
        self.channel, self.patience = channel, 0.0

    def send(self, message: dict[str, Any]) -> None:
        self.channel.send(message)
        self.patience = 600.0 * (message.get("phase") == STAYS_AT)

    def poll(self) -> bool:
        patience, self.patience = self.patience, 0.0
        return bool(self.channel.poll(patience))

    def recv(self) -> Any:
        return self.channel.recv()


def pausing_child(job: Job, channel: Any, gpu: str) -> None:
    """Stand in for `local._in_child`: it pauses, as after SIGSTOP, once phase `STAYS_AT` is logged."""
    write, now = RunFolder.write, countdown(STAYS_AT)

    def wrapper(self: RunFolder, record: PhaseRecord) -> None:
        write(self, record)
        if now():
            os.kill(os.getpid(), signal.SIGSTOP)

    RunFolder.write = wrapper  # type: ignore[method-assign]
    local._in_child(job, channel, gpu)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def countdown(nth: int) -> Callable[[], bool]:
    """Answer True at the nth call."""
    calls = itertools.count(1)
    return lambda: next(calls) == nth


def before(owner: Any, name: str, now: Callable[[], bool]) -> None:
    """Die before a call of `owner.name`."""
    call = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if now():
            die()
        return call(*args, **kwargs)

    setattr(owner, name, wrapper)


def start(nth: int) -> None:
    """Die before the nth file is opened to be written; those of the first eight come before the first phase."""
    now = countdown(nth)
    before(os, "open", now)
    before(builtins, "open", now)


def log(nth: int) -> None:
    """Die in the nth phase of this worker, with its line in one log and half of that in the other."""
    write, now = RunFolder.write, countdown(nth)

    def wrapper(self: RunFolder, record: PhaseRecord) -> None:
        if now():
            for file, line, share in zip(self._logs.values(), (record.metrics, record.seconds), (1, 2), strict=True):
                content = json_line(line)
                file.write(content[: len(content) // share])
                file.flush()
            die()
        write(self, record)

    RunFolder.write = wrapper  # type: ignore[method-assign]


def write(nth: int) -> None:
    """Die when half of a checkpoint is written."""
    write_whole, now = checkpoint._HashingFile.write, countdown(nth)

    def wrapper(self: checkpoint._HashingFile, data: Any) -> int:
        if now():
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            die()
        return write_whole(self, data)

    checkpoint._HashingFile.write = wrapper  # type: ignore[method-assign]


def rename(nth: int) -> None:
    """Die when the nth checkpoint has its name and older ones are still there."""
    replace, now = os.replace, countdown(nth)

    def wrapper(source: Any, target: Any, **more: Any) -> None:
        replace(source, target, **more)
        if Path(target).name.startswith("checkpoint-") and now():
            die()

    os.replace = wrapper  # type: ignore[assignment]


def publish(nth: int) -> None:
    """Die at the nth disk operation of a finished run: its tables, its manifest, removals, its rename."""
    publishing, now = Store.publish, countdown(nth)

    def wrapper(self: Store, run_id: str) -> Path:
        for name in ("replace", "unlink", "rename", "fsync"):
            before(os, name, now)
        return publishing(self, run_id)

    Store.publish = wrapper  # type: ignore[method-assign]


ARM: dict[str, Callable[[int], None]] = {
    "start": start,
    "log": log,
    "write": write,
    "rename": rename,
    "publish": publish,
}
