"""Slots that are slow for good, alone and in groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staleharness.lag import read_lag
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_event_log import PipelineRecord
from staleharness.pipeline.pipeline_rows import ledger
from staleharness.pipeline.pipeline_settings import Pipeline
from staleharness.pipeline_lag_model import PipelineLag
from staleharness.rollout_schedule import Demand


def pipeline(**settings: Any) -> Pipeline:
    """Eight groups of four at once, of which the last six are slow; rows take a second each, or three."""
    given = {
        "slots": 32,
        "workers": 1,
        "group": 4,
        "batch": 16,
        "unit": "group",
        "lengths": "constant:100",
        "token_seconds": 0.01,
        "slow": 0.75,
        "slow_factor": 3.0,
        "train_seconds": 2.2,
        "steps": 40,
    }
    return Pipeline(**{**given, **settings})


def took(record: PipelineRecord) -> np.ndarray[Any, Any]:
    return record.finish_time - record.start_time


def test_a_fast_and_a_slow_group_of_slots_worked_out_by_hand() -> None:
    """Steps of 1, groups of 1.4 in one pair of slots and of 3.64 in the other, a group a batch, in phases:

    made at 1.4 (version 0), 2.8 (0), slow 3.64 (0), 4.2 (1), 5.6 (2), 7.0 (3), slow 7.28 (1), 8.4 (5); taken at 1.4,
    2.8, 3.8, 4.8, 5.8, 7.0, 8.0, 9.0.
    """
    plan = read_lag("queue[row_time=1.4,cv=0,slow=0.5,slow_factor=2.6]").schedule(
        Demand(phases=8, groups=1, rows=2, length=10, seed=0)
    )
    taken = [plan.oldest[plan.phase == phase].tolist() for phase in range(8)]
    assert taken == [[v, v] for v in (0, 0, 0, 1, 2, 3, 1, 5)]
    assert [phase - v[0] for phase, v in enumerate(taken)] == [0, 1, 2, 2, 2, 2, 5, 2]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_lag": 1},
        {"max_lag": 1, "stale": "recycle"},
        {"max_lag": 2, "stop": True},
        {"capacity": 1.0},
        {"cap": 1.0, "order": "submitted"},
        {"unit": "batch", "slow": 0.5},
        {"unit": "row"},
        {"in_flight": "drain"},
        {"slots": 30, "group": 1, "batch": 10},
    ],
    ids=str,
)
def test_rows_in_slow_slots_take_their_time_again_and_again(settings: dict[str, Any]) -> None:
    asked = pipeline(**settings)
    record = simulate(asked)
    slow = record.slot >= asked.slots - asked.slow_slots
    made = ~np.isnan(record.finish_time)
    assert took(record)[made] == pytest.approx(np.where(slow, 3.0, 1.0)[made])
    assert 0 < slow.mean() < 1
    whole = slow[: len(slow) // asked.group * asked.group].reshape(-1, asked.group)
    alike = (whole == whole[:, :1]).all()
    assert alike or asked.unit == "row", "rows of a group are slow together"
    ledger(record)


def test_lengths_are_drawn_as_without_slow_slots() -> None:
    """A row that is made again in a slot of another kind takes the time of that slot."""
    settings = {"lengths": "lognormal[mean=100,cv=1]", "max_lag": 1, "stale": "recycle"}
    record, plain = (simulate(pipeline(**settings, **kind)) for kind in ({}, {"slow": 0.0, "slow_factor": 1.0}))
    assert record.tokens[:32].tolist() == plain.tokens[:32].tolist()
    made = ~np.isnan(record.finish_time)
    assert made.sum() > 640, "some are made again"
    pace = np.where(record.slot >= 8, 3.0, 1.0)
    assert took(record)[made] == pytest.approx((pace * record.tokens * 0.01)[made])


@pytest.mark.parametrize("lost", ["again", "continue"])
def test_a_row_that_goes_on_elsewhere_has_the_pace_of_that_slot(lost: Any) -> None:
    """Workers fail. A row that begins again is one of the slot that it ends in; one that goes on is of both."""
    asked = pipeline(unit="row", workers=8, worker_mtbf=5.0, worker_restart=0.5, lost=lost, in_flight="switch")
    record = simulate(asked)
    made = ~np.isnan(record.finish_time)
    if lost == "again":
        assert took(record)[made] == pytest.approx(np.where(record.slot >= 8, 3.0, 1.0)[made])
    assert (took(record)[made] >= 1 - 1e-9).all()
    assert (record.done[made] == 100).all()
    ledger(record)


def test_weights_change_inside_slow_rows_where_they_are() -> None:
    """Steps of 2.2 seconds, rows of 3 at an even pace: a version that comes s seconds into a row finds 100 s / 3 of its
    decisions made."""
    record = simulate(pipeline(in_flight="switch", slow=1.0))
    first = np.searchsorted(record.segment_row, np.arange(len(record.slot)))
    cut = np.setdiff1d(np.arange(len(record.segment_row)), first)
    row = record.segment_row[cut]
    came = np.array(record.step_end)[record.segment_version[cut] - 1]
    made = (came - record.start_time[row]) / 3 * 100
    np.testing.assert_allclose(record.segment_end[cut - 1], np.floor(made), atol=1.01)
    assert len(cut) > 100


def test_throughput_is_that_of_both_kinds() -> None:
    """The trainer waits: two groups of four rows a second from fast slots, six every three seconds from the others."""
    record = simulate(pipeline(train_seconds=0.0, steps=200))
    rate = 200 * 16 / record.seconds
    assert rate == pytest.approx(2 * 4 + 6 * 4 / 3, rel=0.01)


def test_rows_paced_by_length_take_longer_in_slow_slots() -> None:
    """With all rows of the longest length, this equals the model whose rows take a constant time."""
    demand = Demand(phases=20, groups=4, rows=2, length=40, seed=0)
    kinds = "row_time=1.7,slow=0.5,slow_factor=2.6"
    paced = read_lag(f"queue[{kinds},pace=length]")
    assert isinstance(paced, PipelineLag)
    found = paced.schedule_by_length(demand, lambda group, version: [40, 40])
    drawn = read_lag(f"queue[{kinds},cv=0]").schedule(demand)
    np.testing.assert_array_equal(found.phase, drawn.phase)
    np.testing.assert_array_equal(found.version, drawn.version)
