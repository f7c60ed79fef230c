"""Time of slots and trainer: pauses, transfers that both sides wait for, rebuilt caches, failures of idle workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from summaries import summary_of

from staleharness.errors import UserError
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_settings import Pipeline
from staleharness.pipeline.pipeline_summary import summary

ONE_SLOT: dict[str, Any] = {"slots": 1, "workers": 1, "group": 1, "batch": 1, "lengths": "constant:1"}
CHEAP_ROWS: dict[str, Any] = {"slots": 64, "group": 1, "batch": 16, "lengths": "constant:100", "token_seconds": 0.01}
SWITCHES: dict[str, Any] = {"in_flight": "switch", "blocking": False, "recompute_seconds": 0.01, "train_seconds": 5.0}


@pytest.mark.parametrize("sync_seconds", [0.0, 0.001, 3.0])
def test_weights_that_arrive_end_no_pause_of_a_full_queue(sync_seconds: float) -> None:
    """A row of 1 s, then a step of 10 s during which generation stands still."""
    settings: dict[str, Any] = {**ONE_SLOT, "token_seconds": 1.0, "train_seconds": 10.0, "capacity": 1.0}
    found = summary_of(**settings, full="pause", blocking=False, sync_seconds=sync_seconds, steps=60)
    assert found["step_seconds"] == pytest.approx(11.0)
    assert found["lag"]["rows"] == {"1": 48}


@pytest.mark.parametrize("in_flight", ["keep", "switch"])
def test_rows_stand_still_while_the_queue_is_full(in_flight: Any) -> None:
    """Rows of 1.5 s on two slots, batches of two: one batch is generated after each step, however late its weights."""
    settings: dict[str, Any] = {**ONE_SLOT, "slots": 2, "batch": 2, "token_seconds": 0.5, "lengths": "constant:3"}
    pause: dict[str, Any] = {"capacity": 1.0, "full": "pause", "train_seconds": 10.0, "steps": 40}
    record = simulate(Pipeline(**settings, **pause, blocking=False, in_flight=in_flight, sync_seconds=4.0))
    assert np.diff(record.step_start) == pytest.approx(11.5)
    assert summary(record)["slots"] == {"queue": pytest.approx(10 / 11.5), "working": pytest.approx(1.5 / 11.5)}


def test_a_full_queue_of_stale_groups_pauses_nothing_for_good() -> None:
    """The row that fills the queue before weights are sent is dropped as they arrive."""
    rules: dict[str, Any] = {"capacity": 1.0, "full": "pause", "max_lag": 0, "in_flight": "drain", "sync_seconds": 1.0}
    found = summary_of(**ONE_SLOT, **rules, token_seconds=1.0, train_seconds=0.5, steps=20)
    assert found["ledger"]["rows"]["dropped_stale"] > 5


@pytest.mark.parametrize("sync_at", ["start", "end"])
def test_a_blocking_sync_delays_the_step(sync_at: Any) -> None:
    found = summary_of(**CHEAP_ROWS, train_seconds=5.0, cap=2.0, sync_seconds=3.0, sync_at=sync_at, steps=50)
    assert found["step_seconds"] == pytest.approx(8.0)
    assert found["trainer"]["syncing"] == found["slots"]["sync"] == pytest.approx(3 / 8)


def test_a_step_behind_a_sync_that_drains_waits_for_rows_and_weights() -> None:
    rules: dict[str, Any] = {"sync_at": "start", "in_flight": "drain", "sync_seconds": 3.0, "train_seconds": 5.0}
    record = simulate(Pipeline(slots=64, group=1, batch=16, **rules, steps=40))
    assert (record.step_end - record.step_start >= 8.0 - 1e-9).all()
    assert (record.step_end - record.step_start > 8.5).any()


@pytest.mark.parametrize(
    "rules",
    [
        {"max_lag": 1, "stop": True},
        {"worker_mtbf": 60.0, "worker_restart": 5.0},
        {"worker_mtbf": 60.0, "worker_restart": 5.0, "lost": "continue"},
    ],
)
def test_caches_count_as_rebuilt_as_far_as_they_are(rules: dict[str, Any]) -> None:
    """Rebuilding takes 50 s a row, and most rows are stopped or switch again before that."""
    rows: dict[str, Any] = {"slots": 32, "workers": 8, "group": 1, "batch": 8, "lengths": "constant:1000"}
    record = simulate(Pipeline(**rows, **SWITCHES | {"recompute_seconds": 0.05}, **rules, token_seconds=0.01, steps=60))
    shares = summary(record)["slots"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) >= 0 and shares["recompute"] > 0.1


def test_time_of_slots_is_work_or_rebuilding() -> None:
    found = summary_of(slots=16, batch=16, cap=4.0, steps=50, **SWITCHES)
    assert sum(found["slots"].values()) == pytest.approx(1.0)
    assert found["slots"]["recompute"] > 0.3
    assert found["binds"] == "generation", "slots that rebuild caches are busy"


def test_failures_of_idle_workers_starve_no_trainer() -> None:
    settings: dict[str, Any] = {"slots": 8, "workers": 8, "cap": 1.0, "blocking": False}
    record = simulate(Pipeline(**settings, train_seconds=1e6, worker_mtbf=100.0, steps=4))
    assert len(record.step_end) == 4


def test_steps_that_take_no_time_have_no_speed() -> None:
    rows: dict[str, Any] = {**ONE_SLOT, "slots": 10, "lengths": "constant:10", "steps": 10}
    with pytest.raises(UserError, match=r"all steps from step 2 on happen at t = 0\.2 s, so there is no speed; give"):
        summary_of(**rows, train_seconds=0.0)
