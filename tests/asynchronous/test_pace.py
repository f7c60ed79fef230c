"""The pace that a run states, by a clock that only waiting moves."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
from toy_actors import LENGTH, Toy, version

from staleharness.asynchronous import actor, processes, recorder
from staleharness.asynchronous.actor import Load, Made, Post, serve
from staleharness.asynchronous.board import Board
from staleharness.asynchronous.processes import Processes
from staleharness.asynchronous.tally import Tally
from staleharness.control.spec import ControlSpec
from staleharness.lag import read_lag
from staleharness.lags.real_time import Async
from staleharness.simulator.buffer import PolicyBuffer
from staleharness.simulator.ledger import Count, Flow


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (actor, processes, recorder):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_every_decision_of_a_row_has_its_time_the_last_one_too(clock: Clock) -> None:
    context = multiprocessing.get_context("forkserver")
    board = Board(context, version(0))
    board.publish(version(0))
    orders, sent = [0, 1, None], list[Made]()
    channel: Any = SimpleNamespace(recv=lambda: orders.pop(0), send=sent.append)
    serve(Post(Toy(), 0, board, Load(0, 0.25), Tally(context, 2, 1), 1, ""), channel)
    assert [made.made - made.began for made in sent] == pytest.approx([LENGTH * 0.25] * 2)
    assert [made.total for made in sent] == [Count(2, 8), Count(4, 16)], "what it has finished so far"


def test_a_phase_of_training_takes_its_time_until_its_version_is_published(clock: Clock) -> None:
    spec = ControlSpec(env="Pendulum-v1", algorithm="ppo_clip", lag="async[train=2.0]")
    model = read_lag(spec.lag)
    assert isinstance(model, Async)
    source = Processes(Toy(), spec, model, ())
    published: list[float] = []
    source.fleet = SimpleNamespace(  # type: ignore[assignment]
        board=SimpleNamespace(publish=lambda newest: published.append(clock.now)),
        take=lambda phase: ([], Flow(Count())),
    )
    buffer = PolicyBuffer(4)
    buffer.push(version(0))
    source.taken = source.recorder.now()  # the batch of phase 0
    begun = clock.now
    for phase, work in ((1, 0.5), (2, 1.9), (3, 7.0)):
        clock.now += work
        source.take(buffer, phase)
    assert [at - begun for at in published] == pytest.approx([2.0, 4.0, 11.0])
