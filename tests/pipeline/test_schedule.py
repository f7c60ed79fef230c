"""Schedules of simulated pipelines: actors, versions and phases of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_event_log import PipelineRecord, segment_lengths, stale_segments
from staleharness.pipeline.pipeline_rows import ledger, schedule_of
from staleharness.pipeline.pipeline_settings import Pipeline, preset
from staleharness.pipeline.pipeline_summary import row_lags
from staleharness.rollout_schedule import NEVER, Schedule


@pytest.fixture(scope="module")
def simulation() -> tuple[PipelineRecord, Schedule]:
    record = simulate(preset("in-flight", {"steps": 40, "max_lag": 4, "batch": 32, "group": 4, "unit": "group"}))
    return record, schedule_of(record)


def test_the_rows_of_a_schedule_are_those_of_the_simulation(simulation: tuple[PipelineRecord, Schedule]) -> None:
    record, plan = simulation
    n = len(plan)
    assert len(record.slot) - 4 < n <= len(record.slot) and n % 4 == 0
    trained = (plan.phase != NEVER) & (plan.phase >= record.warm)
    np.testing.assert_array_equal((plan.phase - plan.oldest)[trained], row_lags(record)["start"])
    np.testing.assert_array_equal((plan.phase - plan.newest)[trained], row_lags(record)["newest"])
    assert [(plan.phase == phase).sum() for phase in range(40)] == [32] * 40
    np.testing.assert_array_equal(plan.end[plan.first[1:] - 1], record.done[:n])
    assert plan.ledger["rows"] == {**ledger(record)["rows"], "generated": n} or len(record.slot) != n


def test_actors_make_one_group_at_a_time_and_are_few(simulation: tuple[PipelineRecord, Schedule]) -> None:
    record, plan = simulation
    began, over = record.start_time[: len(plan)], record.finish_time[: len(plan)].reshape(-1, 4).max(1).repeat(4)
    for actor in range(plan.actor.max() + 1):
        rows = np.flatnonzero(plan.actor == actor)[::4]
        assert plan.nth[rows].tolist() == list(range(len(rows)))
        assert (began[rows[1:]] >= over[rows[:-1]]).all()
    first, last = began[::4], np.nan_to_num(over[::4], nan=np.inf)
    under_way = [int(((first <= t) & (last > t)).sum()) for t in first]
    assert plan.actor.max() + 1 == max(under_way)


@pytest.mark.parametrize("order", ["completed", "submitted"])
def test_places_follow_the_order_of_the_trainer(order: Any) -> None:
    record = simulate(Pipeline(order=order, cap=2.0, steps=20))
    plan = schedule_of(record)
    for phase in range(20):
        rows = np.flatnonzero(plan.phase == phase)
        rows = rows[np.argsort(plan.place[rows], kind="stable")]
        assert plan.place[rows].tolist() == np.repeat(np.arange(8), 8).tolist()
        key = record.queue_time if order == "completed" else plan.group
        assert (np.diff(key[rows]) >= 0).all()


@pytest.mark.parametrize("stale", ["mask", "drop_row"])
def test_masked_decisions_are_in_their_phase_but_not_in_the_loss(stale: Any) -> None:
    settings = {"slots": 128, "cap": 4.0, "train_seconds": 5.0, "in_flight": "switch", "steps": 60}
    free = simulate(Pipeline(**settings))
    record = simulate(Pipeline(**settings, max_lag=3, stale=stale))
    np.testing.assert_array_equal(record.step, free.step)  # a mask changes nothing in time
    hidden, row = stale_segments(record), record.segment_row
    old = (record.step[row] >= 0) & (record.step[row] - record.segment_version > 3)
    assert 0 < old.sum() < len(old)
    expected = old if stale == "mask" else np.isin(row, row[old])
    np.testing.assert_array_equal(hidden, expected)
    np.testing.assert_array_equal(schedule_of(record).kept, ~hidden[row < len(schedule_of(record))])
    accounts = ledger(record)
    assert accounts["tokens"]["masked"] == segment_lengths(record)[hidden].sum() > 0
    assert accounts["rows"]["masked"] + accounts["rows"]["trained"] == 60 * 64
    whole = np.bincount(row, ~hidden, len(record.slot)) == 0
    assert accounts["rows"]["masked"] == whole.sum()
    assert row_lags(record)["newest"].max() <= 3
