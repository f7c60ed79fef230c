"""Models of real systems on tokens: what a round trains on is what the schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.language.spec import LanguageSpec
from staleharness.simulator.loop import simulation_of
from staleharness.task import find_env

Specs = Callable[..., LanguageSpec]


@pytest.mark.parametrize(
    "lag",
    [
        "areal[eta=2,row_time=2.0]",
        "areal[eta=2,interruptible=false]",
        "partial",
        "delay:2",
        "slime:2",
        "megatron[lag=0.0,submit=R,consume=G]",
        "queue[max_lag=1,on_stale=mask_tokens,slots=1.5]",
    ],
)
def test_the_lags_of_a_round_are_those_of_its_schedule(spec: Specs, lag: str) -> None:
    asked = spec(capacity=12, prompts=3, steps=6, lag=lag)
    assert asked.demand is not None
    plan = parse_lag(lag, asked.capacity).schedule(asked.demand)
    simulation: Any = simulation_of(asked)
    for phase, record in enumerate(simulation):
        rows = plan.trained_in(phase)
        versions, kept = plan.along(rows, asked.completion_tokens)
        begun = phase - versions[:, 0]
        said: dict[str, Any] = record.metrics
        assert said["lag_max"] <= (phase - versions).max()
        if kept.all() and (plan.newest[rows] == plan.oldest[rows]).all() and begun.min() == begun.max():
            assert said["lag_mean"] == pytest.approx(begun[0])
        if kept.all():
            assert np.flatnonzero(said["lag_histogram"]).max() <= begun.max()


def test_a_buffer_that_is_too_small_is_said_with_the_one_that_is_needed(spec: Specs) -> None:
    asked = spec(capacity=2, prompts=3, steps=30, lag="areal:4")
    with pytest.raises(UserError, match=r"has lags of up to \d+ phases, and K=2 .*; give K=\d+"):
        find_env(asked.env)[1].check(asked)
