"""Minimum times of decisions and of training, by a clock that only sleeping moves."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
from toy_actors import LENGTH, Toy, version

from staleharness.asynchronous import actor_process, actor_rollout_source, group_lifecycle
from staleharness.asynchronous.actor_process import ActorConfig, ActorTiming, FinishedGroup, ProgressCounter, serve
from staleharness.asynchronous.actor_rollout_source import ProcessRollouts
from staleharness.asynchronous.shared_weights import SharedWeights
from staleharness.control.spec import ControlSpec
from staleharness.lag import read_lag
from staleharness.lags.real_time import Async
from staleharness.training.policy_buffer import PolicyBuffer
from staleharness.training.sample_ledger import Count, Flow


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
    for module in (actor_process, actor_rollout_source, group_lifecycle):
        monkeypatch.setattr(module, "time", clock)
    return clock


def test_every_decision_of_a_row_takes_its_minimum_time(clock: Clock) -> None:
    context = multiprocessing.get_context("forkserver")
    weights = SharedWeights(context, version(0))
    weights.publish(version(0))
    orders, sent = [0, 1, None], list[FinishedGroup]()
    channel: Any = SimpleNamespace(recv=lambda: orders.pop(0), send=sent.append)
    serve(ActorConfig(Toy(), 0, weights, ActorTiming(0, 0.25), ProgressCounter(context, 2, 1), 1, ""), channel)
    assert [group.finished_at - group.began for group in sent] == pytest.approx([LENGTH * 0.25] * 2)
    assert [group.total for group in sent] == [Count(2, 8), Count(4, 16)], "what it has finished so far"


def test_a_version_is_published_after_the_minimum_training_time(clock: Clock) -> None:
    spec = ControlSpec(env="Pendulum-v1", algorithm="ppo_clip", lag="async[train=2.0]")
    model = read_lag(spec.lag)
    assert isinstance(model, Async)
    source = ProcessRollouts(Toy(), spec, model, ())
    published: list[float] = []
    source.pool = SimpleNamespace(  # type: ignore[assignment]
        weights=SimpleNamespace(publish=lambda newest: published.append(clock.now)),
        take=lambda phase: ([], Flow(Count())),
    )
    buffer = PolicyBuffer(4)
    buffer.push(version(0))
    source.batch_time = source.recorder.now()  # the batch of phase 0
    begun = clock.now
    for phase, work in ((1, 0.5), (2, 1.9), (3, 7.0)):
        clock.now += work
        source.take(buffer, phase)
    assert [at - begun for at in published] == pytest.approx([2.0, 4.0, 11.0])
