"""A trace says of each row by whom, with which versions and when it was made, and is checked when it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from staleharness.errors import UserError
from staleharness.logs.lag_log_reader import read_log
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_event_log import PipelineRecord
from staleharness.pipeline.pipeline_rows import schedule_of, to_parquet, trace_of
from staleharness.pipeline.pipeline_settings import Pipeline, preset
from staleharness.pipeline.pipeline_summary import histogram, row_lags
from staleharness.trace import COLUMNS, KEY, check, read_replay, read_trace


@pytest.fixture(scope="module")
def record() -> PipelineRecord:
    return simulate(preset("in-flight", {"steps": 40, "worker_mtbf": 400.0, "lost": "continue", "max_lag": 4}))


def test_a_trace_is_read_as_it_was_written(record: PipelineRecord, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(to_parquet(record))
    header, rows = read_trace(str(tmp_path / "t.parquet"))
    assert header["pipeline"] == record.pipeline.to_json() and header["seed"] == record.seed
    assert list(rows) == list(COLUMNS) == list(header["columns"])
    assert len(rows) == len(record.slot)
    pd.testing.assert_frame_equal(rows, trace_of(record), check_dtype=False)
    assert to_parquet(record) == to_parquet(record)


def test_the_lags_of_a_run_can_be_counted_from_its_trace(record: PipelineRecord) -> None:
    rows = trace_of(record)
    trained = rows[rows["phase"] >= record.warm]
    start = [phase - versions[0] for phase, versions in zip(trained["phase"], trained["versions"], strict=True)]
    np.testing.assert_array_equal(start, row_lags(record)["start"])
    counted: dict[int, int] = {}
    for phase, versions, ends in zip(trained["phase"], trained["versions"], trained["ends"], strict=True):
        for version, n in zip(versions, np.diff(ends, prepend=0), strict=True):
            counted[phase - version] = counted.get(phase - version, 0) + int(n)
    assert dict(sorted(counted.items())) == histogram(record)


def test_rows_of_an_actor_are_counted_and_times_go_forward(record: PipelineRecord) -> None:
    rows = trace_of(record)
    for _, mine in rows.groupby("actor"):
        groups = mine.drop_duplicates("group")
        assert groups["nth"].tolist() == list(range(len(groups)))
    trained = rows[rows["phase"] >= 0]
    assert (trained["fate"] == "trained").all() and (rows[rows["phase"] < 0]["fate"] != "trained").all()
    times = trained[["began_at", "made_at", "queued_at", "trained_at"]].to_numpy()
    assert (np.diff(times, axis=1) >= 0).all()
    assert set(rows["fate"]) >= {"trained", "in_flight", "dropped_stale"}
    assert (trained.groupby("phase").size() == record.pipeline.batch).all()


@pytest.mark.parametrize("order", ["completed", "began"])
def test_places_and_actors_are_those_of_the_schedule(order: Any) -> None:
    """So one actor makes all rows of a group, as runs on control need it."""
    record = simulate(Pipeline(order=order, cap=2.0, steps=20))
    plan, rows = schedule_of(record), trace_of(record)
    assert 0 < len(rows) - len(plan) < record.pipeline.group
    for name in ("place", "actor", "nth"):
        assert rows[name].tolist()[: len(plan)] == getattr(plan, name).tolist()
        assert (rows.groupby("group")[name].nunique() == 1).all()


def test_a_group_is_finished_once_all_its_rows_have_begun() -> None:
    """Before a sync, rows under way are finished but no others begin."""
    rules: dict[str, Any] = {"in_flight": "drain", "blocking": False, "sync_seconds": 1e3, "train_seconds": 99.0}
    rows = trace_of(simulate(Pipeline(slots=3, workers=1, batch=8, group=8, lengths="constant:9", **rules, steps=4)))
    last = rows[rows["group"] == rows["group"].max()]
    assert len(last) < 8 and last["made_at"].notna().all() and (last["finished_in"] == -1).all()


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"max_lag": 2, "stale": "mask"}, "stale=mask, but does not say what is left out of the loss"),
        ({"max_lag": 2, "stale": "drop_row"}, "stale=drop_row, but does not say"),
        (
            {"holds": "batches", "full": "drop_oldest", "capacity": 4.0, "order": "random", "uses": 2},
            "uses=2, but does not say what is trained on again",
        ),
    ],
)
def test_rules_that_a_trace_does_not_hold_are_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(to_parquet(simulate(preset("async", {"steps": 12, **settings}))))
    for read in (read_replay, read_log):
        with pytest.raises(UserError, match=words):
            read(str(path))


def _hole(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["phase"] != 7]


def _future(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(versions=[v + 30 * (i == 0) for i, v in enumerate(rows["versions"])])


def _unequal(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(ends=[v[: None if i != 1 else 0] for i, v in enumerate(rows["ends"])])


def _backwards(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(versions=[v[::-1] for v in rows["versions"]])


@pytest.mark.parametrize(
    "spoil, words",
    [
        (_hole, "has a hole: no row was trained in phase 7"),
        (_future, "row 0: .* a version from the future"),
        (_unequal, "row 1: 1 versions and 0 ends"),
        (_backwards, "versions decrease, or a segment is empty"),
    ],
)
def test_a_trace_that_cannot_be(
    record: PipelineRecord, spoil: Callable[[pd.DataFrame], pd.DataFrame], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        check(spoil(trace_of(record)), "t.parquet")


def test_a_file_that_is_no_trace(record: PipelineRecord, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("rows")
    pq.write_table(pa.table({"row": [1]}), tmp_path / "other")
    pq.write_table(pa.table({"row": [1]}).replace_schema_metadata({KEY: b"{}"}), tmp_path / "short")
    (tmp_path / "cut").write_bytes((tmp_path / "other").read_bytes()[:-40])
    for name, words in (
        ("text", "is not a trace: not a Parquet file"),
        ("other", "is not a trace: a Parquet file, but not one that staleharness wrote"),
        ("cut", "is not a trace: the file is damaged, or cut off"),
        ("none", "is not a trace: there is no such file"),
        ("", "is not a trace: a folder"),
        ("short", "has no column group"),
    ):
        with pytest.raises(UserError, match=words):
            read_trace(str(tmp_path / name))
