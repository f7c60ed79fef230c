"""The rules one by one: who may begin, who stands still, what is dropped, what a failure takes."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from summaries import summary_of

from staleharness.errors import UserError
from staleharness.pipeline.event_simulation import StarvationError, simulate
from staleharness.pipeline.pipeline_event_log import FATES, PipelineRecord, segment_lengths, stale_segments
from staleharness.pipeline.pipeline_rows import ledger
from staleharness.pipeline.pipeline_settings import PRESETS, Pipeline, preset
from staleharness.pipeline.pipeline_summary import row_lags, summary
from staleharness.pipeline.workload_sampler import Workload

TRAINED = FATES.index("trained")
TAILED = "lognormal[mean=1000,cv=2]"
ONE_ROW: dict[str, Any] = {"slots": 1, "workers": 1, "group": 1, "batch": 1, "lengths": "constant:100"}
NEWEST: dict[str, Any] = {"lengths": "constant:50", "group": 1, "train_seconds": 10, "steps": 100}
NEWEST |= {"capacity": 1.0, "full": "drop_oldest"}  # rows of one second, of which the queue keeps the last


def starts(record: PipelineRecord) -> np.ndarray[Any, Any]:
    first = np.searchsorted(record.segment_row, np.arange(len(record.slot)))
    return record.segment_version[first]


def literal(pipeline: Pipeline, seed: int) -> tuple[list[int], list[int]]:
    """Simulate single rows, a cap and no transfer times literally, event by event. (version begun with, step) of each
    row that was trained."""
    work = Workload(pipeline, seed)
    events: list[tuple[float, int, str, int]] = []  # when, trainer before rows, what, row
    version, begun, under_way, training = 0, 0, 0, False
    began: list[int] = []
    trained: dict[int, int] = {}
    queue: list[int] = []
    now = 0.0
    while version < pipeline.steps:
        if not training and len(queue) >= pipeline.batch:
            for row in queue[: pipeline.batch]:
                trained[row] = version
            queue, training = queue[pipeline.batch :], True
            heapq.heappush(events, (now + pipeline.train_seconds, 0, "step", -1))
        while under_way < pipeline.slots and begun < (version + 1 + pipeline.cap) * pipeline.batch:  # type: ignore[operator]
            work.next_group()
            began.append(version)
            heapq.heappush(events, (now + work.seconds[begun], 1, "row", begun))
            begun, under_way = begun + 1, under_way + 1
        now, _, what, row = heapq.heappop(events)
        if what == "step":
            version, training = version + 1, False
        else:
            queue.append(row)
            under_way -= 1
    return [began[row] for row in sorted(trained)], [trained[row] for row in sorted(trained)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("slots, cap, train", [(5, 1, 3.0), (64, 2, 20.0), (33, 0, 50.0), (200, 7, 0.1)])
def test_a_literal_event_loop_has_the_same_rows(slots: int, cap: int, train: float, seed: int) -> None:
    apart = "lognormal[mean=1,cv=0.5]"  # no two rows finish at the same time
    settings: dict[str, Any] = {"slots": slots, "cap": float(cap), "train_seconds": train, "environment": apart}
    pipeline = Pipeline(workers=1, group=1, batch=16, steps=60, **settings)
    record = simulate(pipeline, seed)
    trained = record.fate == TRAINED
    assert (starts(record)[trained].tolist(), record.step[trained].tolist()) == literal(pipeline, seed)


def test_presets_have_the_lags_that_they_are_named_for() -> None:
    lags = {name: row_lags(simulate(preset(name, {"steps": 60}))) for name in PRESETS}
    assert set(lags["sync"]["start"]) == {0}
    assert set(lags["one-step-off"]["start"]) == {1}
    assert lags["async"]["start"].std() > 0 and (lags["async"]["start"] == lags["async"]["newest"]).all()
    in_flight = lags["in-flight"]
    assert (in_flight["newest"] <= in_flight["oldest"]).all()
    assert in_flight["newest"].mean() < in_flight["oldest"].mean()
    for found in lags.values():
        np.testing.assert_array_equal(found["start"], found["before_queue"] + found["in_queue"])


def test_a_trainer_that_takes_no_time_leaves_nothing_in_the_queue() -> None:
    found = row_lags(simulate(preset("async", {"train_seconds": 0.0, "steps": 60})))
    np.testing.assert_array_equal(found["start"], found["before_queue"] + found["in_queue"])
    assert found["in_queue"].min() == 0


def test_settings_and_seed_say_everything() -> None:
    pipeline = preset("in-flight", {"steps": 30, "worker_mtbf": 200.0})
    one, same, other = simulate(pipeline, 3), simulate(pipeline, 3), simulate(pipeline, 4)
    for name in ("start_time", "finish_time", "step", "segment_version", "segment_end"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.start_time[:500], other.start_time[:500])


SETTINGS = st.fixed_dictionaries(
    {
        "slots": st.sampled_from([16, 40, 90]),
        "workers": st.sampled_from([1, 4]),
        "group": st.sampled_from([1, 4]),
        "cap": st.sampled_from([None, 0.0, 0.5, 3.0]),
        "order": st.sampled_from(["completed", "submitted", "window", "version"]),
        "capacity": st.sampled_from([None, 1.0, 2.5]),
        "full": st.sampled_from(["block", "drop_oldest", "drop_newest"]),
        "max_lag": st.sampled_from([None, 1, 3]),
        "stale": st.sampled_from(["drop", "recycle", "drop_row", "mask"]),
        "cap_counts": st.sampled_from(["begun", "finished"]),
        "cap_version": st.sampled_from(["slots", "trainer"]),
        "train_seconds": st.sampled_from([0.0, 5.0, 30.0]),
        "sync_seconds": st.sampled_from([0.0, 2.0, 25.0]),
        "sync_every": st.sampled_from([1, 3]),
        "blocking": st.booleans(),
        "in_flight": st.sampled_from(["keep", "switch", "drain"]),
        "recompute_seconds": st.sampled_from([0.0, 0.005]),
        "worker_mtbf": st.sampled_from([None, 150.0]),
        "lost": st.sampled_from(["again", "continue"]),
        "trainer_mtbf": st.sampled_from([None, 80.0]),
        "counters": st.sampled_from(["keep", "forget"]),
        "environment": st.sampled_from(["constant:0", "lognormal[mean=5,cv=1]"]),
        "unit": st.sampled_from(["row", "group", "batch", "backfill"]),
        "stop": st.sampled_from([False, False, True]),
    }
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(SETTINGS)
def test_ledgers_close_and_time_goes_forward_at_any_setting(given_: dict[str, Any]) -> None:
    try:
        record = simulate(Pipeline(batch=16, steps=25, **given_), 0)
    except UserError as error:  # combinations that are refused, or starve; one line each
        assert "\n" not in str(error)
        return
    accounts = ledger(record)
    assert accounts["rows"]["trained"] + accounts["rows"]["masked"] == 25 * 16
    made = ~np.isnan(record.finish_time)
    assert (record.done[made] == record.tokens[made]).all()
    assert (record.done[~made] <= record.tokens[~made]).all()
    trained = record.fate == TRAINED
    assert made[trained].all()
    assert (record.finish_time[trained] >= record.start_time[trained]).all()
    assert (record.queue_time[trained] >= record.finish_time[trained]).all()
    assert (record.step_start[record.step[trained]] >= record.queue_time[trained]).all()
    assert np.bincount(record.step[trained]).tolist() == [16] * 25
    assert (segment_lengths(record) >= 0).all()
    within = np.diff(record.segment_row) == 0
    assert (np.diff(record.segment_version)[within] >= 0).all()
    row = record.segment_row
    assert (record.segment_version <= record.step[row])[trained[row]].all()
    if given_["max_lag"] is not None and given_["worker_mtbf"] is None:
        lag = record.step[record.segment_row] - record.segment_version
        kept = trained[record.segment_row] & ~stale_segments(record)
        assert (lag[kept] <= given_["max_lag"]).all()
    try:
        found = summary(record)
    except UserError as error:  # a bound that masks everything
        assert "max_lag=1 masks all that is trained on" in str(error)
        return
    for side in ("trainer", "slots"):
        assert sum(found[side].values()) == pytest.approx(1, abs=1e-6), side
        assert min(found[side].values()) > -1e-9, side


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cap": 0.0, "sync_every": 4}, r"deadlock at t = \d+\.\d s: .*cap=0 admits no row.*raise cap"),
        # a full queue behind a slow row
        (
            {"order": "submitted", "capacity": 1.0, "group": 1, "lengths": TAILED},
            "deadlock at t = .* find no room in it; raise capacity=1",
        ),
        # an odd version never has rows of its own
        (
            {"max_lag": 0, "sync_every": 2},
            r"the trainer starves at t = \d+\.\d s, before step \d+: .*max_lag=0 is too strict",
        ),
        # the same where batches are made up ahead, and where groups are aborted
        ({"max_lag": 0, "sync_every": 2, "ahead": 1}, "max_lag=0 is too strict"),
        ({"max_lag": 0, "sync_every": 2, "stop": True, "stale": "recycle", "ahead": 0}, "max_lag=0 is too strict"),
        # a batch of old rows in the queue keeps generation from making younger ones
        (
            {"max_lag": 1, "stale": "wait", "capacity": 1.0, "full": "pause", "group": 1, "lengths": TAILED},
            "deadlock at t = .*generation stands still while capacity=1 batches wait; raise capacity",
        ),
        ({"cap": 1.0, "worker_mtbf": 0.01, "worker_restart": 0.0}, "starves at t = .*; worker_mtbf=0.01 is too short"),
        ({"cap": 1.0, "trainer_mtbf": 0.1}, "the trainer starves at t = .*; trainer_mtbf=0.1 is too short"),
    ],
)
def test_settings_under_which_training_stops_are_found(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(StarvationError, match=words):
        simulate(Pipeline(**settings))


def test_generation_without_end_is_found() -> None:
    """Without a cap a row of an earlier version is always under way, so that no batch is fresh enough."""
    with pytest.raises(UserError, match=r"rows have begun by t = .*, far more than are trained on; set a cap"):
        simulate(Pipeline(max_lag=0, stale="wait", cap=None, steps=20, slots=16, batch=16, group=4))


def test_a_row_that_ends_as_weights_arrive_is_not_switched() -> None:
    settings = {"in_flight": "switch", "cap": 2.0, "steps": 30, "sync_at": "start"}
    free, costly = (simulate(Pipeline(**settings, recompute_seconds=seconds)) for seconds in (0.0, 0.01))
    for record in (free, costly):
        trained = record.step >= 0
        np.testing.assert_array_equal(record.done[trained], record.tokens[trained])
        assert (np.diff(record.finish_time[trained & (record.slot == 0)]) > 0).all()
    assert costly.seconds > free.seconds


def test_a_cap_that_a_sync_can_serve_is_no_deadlock() -> None:
    simulate(Pipeline(cap=3.0, sync_every=4, steps=20))


def test_blocking_sync_stops_both_sides() -> None:
    still, free = (
        summary_of(sync_seconds=10, blocking=blocking, train_seconds=5, lengths="lognormal[mean=1000,cv=0.1]")
        for blocking in (True, False)
    )
    assert still["trainer"]["syncing"] == pytest.approx(10 / still["step_seconds"], rel=0.01)
    assert still["slots"]["sync"] == pytest.approx(10 / still["step_seconds"], rel=0.01)
    assert "syncing" not in free["trainer"] and "sync" not in free["slots"]
    assert still["step_seconds"] == pytest.approx(free["step_seconds"] + 10, rel=0.02)
    assert free["lag"]["start_mean"] > still["lag"]["start_mean"]  # rows begin meanwhile, with earlier weights


@pytest.mark.parametrize("seconds", [0.0, 5.0])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_sync_that_waits_for_rows_to_finish_mixes_no_versions(blocking: bool, seconds: float) -> None:
    """All rows begun before it are over when the first one with new weights begins."""
    record = simulate(Pipeline(in_flight="drain", blocking=blocking, sync_seconds=seconds, steps=60))
    versions = np.unique(starts(record))
    assert len(versions) > 15
    for before, after in itertools.pairwise(versions):
        begun = record.start_time[starts(record) == after].min()
        assert np.nanmax(record.finish_time[starts(record) == before]) <= begun - seconds


def test_weights_that_arrive_seldom_are_older() -> None:
    """Short rows, and a queue that keeps the newest: all are of the weights that were there in the step before."""
    lag = [summary_of(sync_every=every, **NEWEST)["lag"]["rows"] for every in (1, 4)]
    assert set(lag[0]) == {"1"}
    assert set(lag[1]) == {"1", "2", "3", "4"} and len(set(lag[1].values())) == 1


def test_a_newer_version_replaces_one_that_waits_for_transfer() -> None:
    """A step takes 10 s and a transfer 25: the next one begins as the last one arrives, with the version of then."""
    record = simulate(Pipeline(sync_seconds=25, blocking=False, **NEWEST))
    versions = np.unique(starts(record))
    assert set(np.diff(versions[1:])) == {2, 3}
    first = [record.start_time[starts(record) == version].min() for version in versions[2:]]
    assert np.diff(first) == pytest.approx(25, abs=1.01)  # rows take a second, so that some begin a little later


def test_a_queue_as_long_as_the_run_is_sorted_out_at_once() -> None:
    """Thousands of stale groups in it, when the trainer comes for the next batch."""
    found = summary_of(
        slots=64, group=1, batch=1, max_lag=0, stale="drop", train_seconds=400, steps=6, lengths="constant:50"
    )
    assert found["ledger"]["rows"]["dropped_stale"] > 5 * 20_000
    assert found["lag"]["start_max"] == 0


def test_stale_groups_make_room_for_those_that_wait_outside() -> None:
    found = summary_of(slots=90, workers=1, group=4, batch=16, capacity=1.0, max_lag=1, sync_every=2, train_seconds=5)
    assert found["ledger"]["rows"]["dropped_stale"] > 0 and found["slots"]["queue"] > 0


@pytest.mark.parametrize("unit", ["row", "group"])
@pytest.mark.parametrize("order", ["completed", "submitted"])
def test_what_is_too_old_is_stopped_when_it_becomes_so(unit: Any, order: Any) -> None:
    """A version v is more than two behind from the end of step v + 2 on: whoever is under way then ends there, and no
    slot stands idle for it."""
    settings: dict[str, Any] = {"slots": 64, "workers": 1, "group": 4, "batch": 16, "train_seconds": 8, "steps": 80}
    asked = Pipeline(unit=unit, order=order, max_lag=2, stop=True, in_flight="keep", lengths=TAILED, **settings)
    record = simulate(asked, 0)
    groups = len(record.start_time) // 4
    began = record.start_time[: 4 * groups].reshape(-1, 4)
    first = np.searchsorted(record.segment_row, np.arange(4 * groups))
    oldest = record.segment_version[first].reshape(-1, 4).min(1)
    due = np.append(record.step_end, [np.inf] * 3)[oldest + 2]
    made = record.finish_time[: 4 * groups].reshape(-1, 4)
    stopped = record.abort_time[: 4 * groups : 4]
    given_up = ~np.isnan(stopped)
    assert 20 < given_up.sum() < groups - 20
    np.testing.assert_array_equal(stopped[given_up], due[given_up])
    assert np.isnan(made[given_up]).any(1).all() and (made[~given_up].max(1) > due[~given_up]).sum() == 0
    assert (began.max(1)[given_up] <= due[given_up]).all()
    fate, done = record.fate[: 4 * groups].reshape(-1, 4), record.done[: 4 * groups].reshape(-1, 4)
    assert (fate[given_up] == FATES.index("dropped_stale")).all()
    assert (done[given_up].sum(1) < record.tokens[: 4 * groups].reshape(-1, 4)[given_up].sum(1)).all()
    if unit == "row":
        assert summary(record)["slots"] == {"working": pytest.approx(1.0)}
    assert summary(simulate(replace(asked, stop=False), 0))["rows_per_second"] != summary(record)["rows_per_second"]
    ledger(record)


def test_what_is_made_as_a_step_ends_waits_for_no_version() -> None:
    """Rows and steps of 10 s: row n is there as step n begins, and the version before is made by then."""
    pipeline = Pipeline(**ONE_ROW, token_seconds=0.1, blocking=False, train_seconds=10.0, steps=20)
    found = row_lags(simulate(pipeline))
    assert (found["in_queue"] == 0).all() and (found["before_queue"] == 1).all()


def test_the_newest_version_is_sent_after_draining() -> None:
    """Versions made while rows drain are skipped, but the last."""
    settings: dict[str, Any] = {"slots": 64, "group": 1, "batch": 16, "train_seconds": 1.0, "steps": 60}
    record = simulate(Pipeline(in_flight="drain", blocking=False, lengths=TAILED, **settings))
    version = starts(record)
    sent = np.flatnonzero(np.diff(version, prepend=0))
    assert np.diff(version[sent]).max() > 1
    there = np.searchsorted(record.step_end, record.start_time[sent], side="right")
    np.testing.assert_array_equal(version[sent], there)


def test_a_regenerated_row_has_new_weights_only() -> None:
    """Its first version is that of its second beginning."""
    rows: dict[str, Any] = {"slots": 16, "workers": 4, "group": 1, "batch": 4, "lengths": "constant:1000"}
    times: dict[str, Any] = {"token_seconds": 0.1, "train_seconds": 5.0, "worker_mtbf": 150.0, "worker_restart": 20.0}
    record = simulate(Pipeline(in_flight="switch", blocking=False, steps=100, **rows, **times))
    assert record.lost > 1000
    along = record.segment_row[1:] == record.segment_row[:-1]
    assert (np.diff(record.segment_version)[along] > 0).all()
    made = ~np.isnan(record.finish_time)
    known = np.searchsorted(record.step_end, record.start_time, side="right")
    np.testing.assert_array_equal(starts(record)[made], known[made])


def test_a_row_that_goes_on_after_a_failure_pays_for_its_cache() -> None:
    """One slot, rows of 100 s: the time of a row that was stopped once is that, the restart, and half a second for each
    decision that it had; up to a second more for the decision that was under way, and another restart where the second
    failure came before the cache was there."""
    failures: dict[str, Any] = {"lost": "continue", "worker_mtbf": 150.0, "worker_restart": 30.0}
    times = {"token_seconds": 1.0, "recompute_seconds": 0.5, "train_seconds": 1.0}
    record = simulate(Pipeline(steps=200, **ONE_ROW, **failures, **times))
    trained = record.fate == TRAINED
    takes, parts = (record.finish_time - record.start_time)[trained], np.bincount(record.segment_row)[trained]
    first = record.segment_end[np.searchsorted(record.segment_row, np.flatnonzero(trained))]
    late = (takes - 130.0 - 0.5 * first)[parts == 2]
    assert (late >= 0.0).all() and (late < 1.0).sum() > 30 and not ((late >= 1.0) & (late < 30.0)).any()


def test_a_gate_on_finished_batches_holds_with_aborted_groups() -> None:
    """An aborted group was not finished and gives no place back. Groups that were dropped later are left out here."""
    rows: dict[str, Any] = {"slots": 64, "group": 4, "unit": "group", "batch": 16, "lengths": TAILED}
    rules: dict[str, Any] = {"cap": 1.0, "cap_counts": "finished", "blocking": False, "max_lag": 1, "stop": True}
    asked = Pipeline(train_seconds=10, steps=80, **rows, **rules)
    record = simulate(asked)
    assert (~np.isnan(record.abort_time)).sum() > 400
    groups = len(record.slot) // 4
    made, kept = record.finish_time[: 4 * groups].reshape(-1, 4).max(1), record.step[: 4 * groups : 4] >= 0
    before = np.searchsorted(np.sort(made[kept]), record.start_time[: 4 * groups : 4])
    assert (before < (starts(record)[: 4 * groups : 4] + 2) * asked.groups).all()


def test_stopping_needs_a_bound_and_a_rule_that_drops() -> None:
    for changes in ({}, {"max_lag": 2, "stale": "mask"}):
        with pytest.raises(UserError, match="stop=true needs a max_lag, and stale=drop or recycle"):
            Pipeline().with_settings({"stop": True, **changes})


@pytest.mark.parametrize("stale", ["drop", "recycle", "wait"])
def test_a_queue_of_whole_batches_looks_at_no_ages(stale: str) -> None:
    batches = {"holds": "batches", "full": "drop_oldest", "capacity": 4.0, "max_lag": 1}
    with pytest.raises(UserError, match=f"max_lag with holds=batches needs stale=drop_row or mask, not {stale}"):
        Pipeline().with_settings({**batches, "stale": stale})
    Pipeline().with_settings({**batches, "stale": "mask"})


def test_a_group_that_is_dropped_gives_its_place_back() -> None:
    found = summary_of(slots=256, cap=3.0, max_lag=1, train_seconds=3, steps=100)
    assert found["ledger"]["rows"]["dropped_stale"] > 4 * 64  # more than the cap lets begin ahead


def test_a_row_that_switches_pays_for_its_cache() -> None:
    free, paid = (
        summary_of(in_flight="switch", recompute_seconds=seconds, group=1, train_seconds=1) for seconds in (0.0, 0.01)
    )
    share = paid["slots"]["recompute"]
    assert share > 0.2
    assert paid["rows_per_second"] == pytest.approx(free["rows_per_second"] * (1 - share), rel=0.03)


@pytest.mark.parametrize("lost", ["again", "continue"])
def test_rows_of_a_worker_that_failed(lost: str) -> None:
    """Half of the time down: half of the rows, less what is made twice."""
    well = summary_of(train_seconds=1, group=1)
    ill = summary_of(train_seconds=1, group=1, worker_mtbf=300.0, worker_restart=300.0, lost=lost)
    assert ill["slots"]["down"] == pytest.approx(0.5, abs=0.05)
    twice = ill["ledger"]["tokens"]["lost"] / ill["ledger"]["tokens"]["generated"]
    assert (twice > 0.02) is (lost == "again")
    assert ill["tokens_per_second"] == pytest.approx(well["tokens_per_second"] * 0.5 * (1 - twice), rel=0.1)


def test_a_step_that_is_interrupted_is_made_again() -> None:
    found = summary_of(slots=640, cap=2.0, train_seconds=50, trainer_mtbf=500.0, trainer_restart=100.0, steps=2000)
    # A step of 50 s is hit once in ten; each hit costs the restart and, in the mean, half a step
    assert found["step_seconds"] == pytest.approx(50 + 0.1 * (100 + 25), rel=0.05)
    assert found["lag"]["start_mean"] == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    "changes, binds",
    [
        ({"train_seconds": 100.0}, "trainer"),
        ({"train_seconds": 1.0}, "generation"),
        ({"cap": 0.0}, "admission"),
        ({"sync_seconds": 100.0, "train_seconds": 1.0, "slots": 640, "workers": 8}, "sync"),
        ({"unit": "batch", "order": "submitted", "train_seconds": 1.0}, "unit"),
        ({"worker_mtbf": 100.0, "worker_restart": 900.0, "train_seconds": 1.0}, "down"),
        ({"trainer_mtbf": 100.0, "trainer_restart": 50.0, "train_seconds": 30.0, "slots": 640}, "trainer"),
        ({"trainer_mtbf": 100.0, "trainer_restart": 50.0, "train_seconds": 30.0, "slots": 640, "cap": 9.0}, "trainer"),
        ({"slots": 640, "order": "window", "window": 1, "cap": 3.0, "train_seconds": 1.0}, "admission"),
    ],
)
def test_what_binds(changes: dict[str, Any], binds: str) -> None:
    assert summary_of(**changes, steps=100)["binds"] == binds


@pytest.mark.parametrize("full", ["drop_oldest", "drop_newest", "block", "pause"])
def test_a_full_queue(full: str) -> None:
    """Three times as many rows as can be trained: two thirds are dropped, or the slots wait."""
    found = summary_of(group=1, train_seconds=60, capacity=2.0, full=full, steps=300)
    dropped = found["ledger"]["rows"]["dropped_full"] / found["ledger"]["rows"]["generated"]
    waits = full in ("block", "pause")
    assert dropped == pytest.approx(0 if waits else 2 / 3, abs=0.02)
    assert found["slots"].get("queue", 0) == pytest.approx(2 / 3 if waits else 0, abs=0.03)
    assert "sync" not in found["slots"], "the weights take no time"
    if full == "drop_newest":  # what is kept has waited longer
        assert found["lag"]["in_queue_mean"] > 1.9


def test_a_cap_may_count_what_is_finished() -> None:
    """Then what is under way comes on top: 64 slots beyond a cap of one batch of 64."""
    settings: dict[str, Any] = {"cap": 1.0, "lengths": "constant:100", "group": 1, "train_seconds": 100.0, "steps": 40}
    begun, finished = (
        summary_of(cap_counts=counts, **settings)["lag"]["start_mean"] for counts in ("begun", "finished")
    )
    assert begun == pytest.approx(1, abs=0.01)
    assert finished == pytest.approx(2, abs=0.05)


def test_a_cap_may_go_by_the_version_of_the_trainer() -> None:
    """Weights are sent every fourth step; the next batch begins all the same."""
    settings: dict[str, Any] = {"cap": 1.0, "unit": "batch", "order": "submitted", "sync_every": 4, "steps": 40}
    with pytest.raises(StarvationError):
        simulate(Pipeline(**settings))
    found = summary_of(cap_version="trainer", **settings)["lag"]["rows"]
    assert set(found) == {"1", "2", "3", "4"} or set(found) == {"0", "1", "2", "3", "4"}


def test_order_of_versions_trains_older_weights_first() -> None:
    record = simulate(Pipeline(order="version", cap=3.0, group=1, lengths=TAILED, steps=100))
    version, step = starts(record), record.step
    steps = [version[step == s] for s in range(100)]
    assert all(before.max() <= after.min() for before, after in itertools.pairwise(steps))
    strict = simulate(Pipeline(order="submitted", cap=3.0, group=1, lengths=TAILED, steps=100))
    assert record.seconds < strict.seconds, "those of one version may pass each other"


def test_the_summary_shows_what_dropping_does_to_lengths() -> None:
    settings: dict[str, Any] = {"slots": 120, "batch": 120, "group": 1, "lengths": TAILED}
    free, dropped, masked = (
        summary_of(**settings, **stale)["lag"] for stale in ({}, {"max_lag": 1}, {"max_lag": 1, "stale": "drop_row"})
    )
    assert abs(free["length_bias"]) < 0.03
    assert dropped["length_bias"] < -0.2 and masked["length_bias"] < -0.1


def test_instant_rows_may_begin_during_a_delivery(tmp_path: Path) -> None:
    """Such rows finish before the row that is being delivered, and no slot is lost."""
    (tmp_path / "env.txt").write_text("0\n0\n0\n5\n")
    rows: dict[str, Any] = {"slots": 8, "workers": 1, "group": 2, "batch": 4, "lengths": "constant:10"}
    rows |= {"token_seconds": 0.0, "environment": f"file:{tmp_path / 'env.txt'}"}
    rules: dict[str, Any] = {"cap": 4.0, "capacity": 1.5, "full": "drop_newest", "order": "submitted"}
    rules |= {"max_lag": 2, "stale": "recycle"}
    record = simulate(Pipeline(train_seconds=0.0, sync_seconds=1.0, steps=15, **rows, **rules))
    assert (record.fate == TRAINED).sum() == 2 * 15 * 2
    for slot in range(8):
        began, made = (at[record.slot == slot] for at in (record.start_time, record.finish_time))
        assert not np.isnan(made[:-1]).any() and (made[:-1] <= began[1:]).all()


@pytest.mark.parametrize("order", ["completed", "began", "submitted"])
@pytest.mark.parametrize("max_lag", [1, 2, 4])
def test_no_step_begins_while_a_row_under_way_has_the_largest_lag(order: str, max_lag: int) -> None:
    pipeline = replace(preset("async", {"steps": 30, "cap": None, "lengths": TAILED}), order=order, max_lag=max_lag)
    ages = []
    for stale in ("wait", "mask"):
        record = simulate(replace(pipeline, stale=stale))
        under_way = [
            (record.start_time < begin) & (begin < np.nan_to_num(record.finish_time, nan=np.inf))
            for begin in record.step_start
        ]
        ages.append(max(step - starts(record)[rows].min() for step, rows in enumerate(under_way) if rows.any()))
    assert ages[0] == max_lag - 1 < ages[1]
