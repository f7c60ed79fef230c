"""Results as one object: what its frames hold, what is computed once, and who is in a part of it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from results_helper import write_grid, write_run

from staleharness.errors import UserError
from staleharness.statistics import aggregate
from staleharness.statistics.results import Results, load
from staleharness.statistics.table import COLUMNS
from staleharness.store import run_grid
from staleharness.store.bundle_writer import pack
from staleharness.store.store import Store

QUICK = {"reps": 50, "engine": "quick"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_grid(tmp_path / "out", ("spo", "vaco"), envs=("A-v1", "B-v1"), capacities=(1, 4), seeds=2, phases=4)
    return tmp_path / "out"


def test_a_folder_and_the_bundle_made_of_it_give_the_same_frames(folder: Path, tmp_path: Path) -> None:
    pack(str(folder), str(tmp_path / "bundle"), None)
    loose, packed = load(str(folder)), load(str(tmp_path / "bundle"))
    assert len(loose) == 16
    for one, two in ((loose.runs, packed.runs), (loose.curves(), packed.curves()), (loose.scores(), packed.scores())):
        pd.testing.assert_frame_equal(one, two)
    columns = sorted(loose.metrics().drop(columns="lag_histogram"))
    pd.testing.assert_frame_equal(loose.metrics()[columns], packed.metrics()[columns])
    assert loose.table(**QUICK) == packed.table(**QUICK)


def test_frames_hold_the_values_of_the_runs(folder: Path) -> None:
    results = load(str(folder))
    for frame in (results.runs, results.curves(), results.metrics(), results.scores()):
        assert list(frame)[:5] == ["run", "algorithm", "env", "K", "seed"]
    runs, curves, metrics = results.runs.set_index("run"), results.curves(), results.metrics()
    for run in results:
        row = runs.loc[run.id]
        assert (row["algorithm"], row["seed"], row["K"]) == (run.label, run.seed, run.spec["capacity"])
        assert row["sampled"] == run.record["scores"]["sampled"]["mean"]
        assert row["lag_mean"] == run.record["summary"]["lag_mean"] and row["seconds"] == run.record["seconds"]["total"]
        mine, stored = curves[curves["run"] == run.id], run.metrics()
        sampled = mine[mine["score"] == "sampled"]
        assert sampled["value"].tolist() == stored["eval_sampled"].dropna().tolist()
        assert sampled["steps"].tolist() == stored["steps"][stored["eval_sampled"].notna()].tolist()
        assert metrics[metrics["run"] == run.id]["tv_data"].tolist() == stored["tv_data"].tolist()
    assert len(metrics) == 16 * 4


def test_column_of_some_runs_is_empty_for_the_others(tmp_path: Path) -> None:
    write_run(tmp_path, "vaco", 0, phases=3, columns={"algorithm/filter_active": [0.5, 0.25, 0.0]})
    write_run(tmp_path, "spo", 0, phases=2)
    metrics = load(str(tmp_path)).metrics().set_index("algorithm")["algorithm/filter_active"]
    assert metrics["vaco"].tolist() == [0.5, 0.25, 0.0] and metrics["spo"].isna().all()


def test_frames_have_the_forward_lag_after_the_seed(tmp_path: Path) -> None:
    write_run(tmp_path, "vaco", 0, kind="language", env="w", settings={"minibatches": 4})
    assert load(str(tmp_path)).runs["N"].tolist() == [4]
    write_run(tmp_path, "vaco", 0, kind="control", env="A-v1")
    runs = load(str(tmp_path)).runs.set_index("env")
    assert runs["N"]["w"] == 4 and pd.isna(runs["N"]["A-v1"])


def test_scores_are_the_tables_before_they_are_aggregated(folder: Path) -> None:
    results = load(str(folder))
    scores, table = results.scores(), results.table(**QUICK)
    assert scores["normalised"].min() == 0.0 and scores["normalised"].max() == 1.0
    for row in table.rows:
        mine = scores[(scores["algorithm"] == row["algorithm"]) & (scores["K"] == row["capacity"])]
        assert mine.groupby("env")["normalised"].mean().mean() == pytest.approx(row["mean"])
    raw = results.scores(score="deterministic", normalise="raw")
    assert (raw["value"] == raw["normalised"]).all() and raw["value"].tolist() != scores["value"].tolist()
    with pytest.raises(UserError, match="normalise='frozn'"):
        results.scores(normalise="frozn")


def test_the_grid_and_each_table_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"grid": 0, "table": 0}

    def count_calls(name: str, function):
        def call(*args, **kwargs):
            made[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(run_grid, "grid", count_calls("grid", run_grid.grid))
    monkeypatch.setattr(aggregate, "table", count_calls("table", aggregate.table))
    results = load(str(folder))
    assert results.grid is results.grid and results.runs is results.runs and results.curves() is results.curves()
    assert results.table(**QUICK) is results.table(**QUICK) is not results.table(reps=60, engine="quick")
    assert made == {"grid": 1, "table": 2}
    assert results.table(**QUICK).frame()["iqm"].tolist() == [r["iqm"] for r in results.table(**QUICK).rows]
    assert tuple(results.table(**QUICK).frame()) == COLUMNS


def test_runs_are_selected_by_text_or_by_values(folder: Path) -> None:
    results = load(str(folder))
    for part in (
        results.select(env="a", k="4", algo="vaco"),
        results.select(env=["A-v1"], k=4, algo=["vaco"]),
        results.select(env=np.array(["A"]), k=np.int64(4), algo=iter(["vaco"])),
        results.select(env="A-v1", k=np.array([4]), algo=("vaco",)),
        load(str(folder), env="A", k=[4], algo="vaco"),
    ):
        assert {(r.label, r.spec["capacity"], r.spec["env"]) for r in part} == {("vaco", 4, "A-v1")} and len(part) == 2
    assert len(results.select(k=[1, 4])) == len(results.select(env="all")) == 16
    assert len(results.only(["spo"])) == 8 and results.only(["spo"]).grid.labels == ["spo"]
    assert not results.select(env="A", algo="vaco").select(where={"seed": 7}) and not Results.of([]).select(algo="x")
    for name, typo, message in (
        ("algo", "vaco,sop", "ALGO: no run here is of 'sop'; did you mean 'spo'"),
        ("env", "A-v2", "ENV: no run here is of 'A-v2'; did you mean 'A-v1'"),
        ("k", [1, 5], "K: no run here has 5; known: 1, 4"),
    ):
        with pytest.raises(UserError, match=message):
            results.select(**{name: typo})
    with pytest.raises(UserError, match="K='x'"):
        results.select(k="x")


def test_runs_are_chosen_by_their_settings(tmp_path: Path) -> None:
    for lag, rate in (("uniform", 3e-4), ("oldest", 3e-4), ("oldest", 1e-3)):
        settings = {"lag": lag, "learning_rate": rate, "hyper": {"delta": 0.1}, "anneal": rate == 1e-3}
        write_run(tmp_path, "vaco", 0, settings=settings)
    results = load(str(tmp_path))
    for where, count in (
        ("lag=oldest", 2),
        ({"lag": "oldest"}, 2),
        ("learning_rate=3e-4", 2),
        ({"learning_rate": 0.0003}, 2),
        ("lag=oldest,learning_rate=.001", 1),
        ("vaco.delta=0.1", 3),
        ("anneal=true", 1),
        (None, 3),
        ("lag=cap", 0),
    ):
        assert len(results.select(where=where)) == len(load(str(tmp_path), where=where)) == count, where
    with pytest.raises(UserError, match="no run here has a setting 'learnin_rate'; did you mean 'learning_rate'"):
        results.select(where="learnin_rate=1")
    with pytest.raises(UserError, match="WHERE: 'lag' is not option=value"):
        results.select(where="lag")
    with pytest.raises(UserError, match=r"only one of them: choose with WHERE=lag=(oldest|uniform)"):
        results.select(where="learning_rate=3e-4").table(**QUICK)
    assert len(results.select(where={"lag": "oldest", "learning_rate": 3e-4}).table(**QUICK).rows) == 1


def test_no_run_is_no_row_but_every_frame_has_its_columns() -> None:
    none = Results.of([])
    for frame in (none.runs, none.curves(), none.metrics()):
        assert frame.empty and list(frame)[:5] == ["run", "algorithm", "env", "K", "seed"]
    assert Results.of(none) is none


def test_what_is_no_folder_of_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results yet"):
        load(str(tmp_path))


def test_two_runs_of_one_seed_can_be_read_but_not_tabled(tmp_path: Path) -> None:
    for size in (8, 16):
        write_run(tmp_path, "vaco", 0, settings={"num_envs": size})
    results = load(str(tmp_path))
    assert len(results.runs) == 2
    with pytest.raises(UserError, match="differ in num_envs"):
        results.table(**QUICK)


def test_a_damaged_run_is_logged_and_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (Store(folder).read_all()[0].path / "run.json").write_text("{}")
    with caplog.at_level(logging.WARNING, logger="staleharness"):
        assert len(load(str(folder))) == 15
    (line,) = caplog.messages
    assert "is damaged and does not count" in line


@pytest.mark.parametrize("packed", [False, True])
def test_runs_are_read_from_any_working_folder(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook may change it after it has loaded them, by a relative path that leads through a link."""
    write_run(tmp_path / "there/results", "spo", 0, phases=3)
    if packed:
        pack(str(tmp_path / "there/results"), str(tmp_path / "there/bundle"), None)
    (tmp_path / "here").symlink_to("there")
    monkeypatch.chdir(tmp_path)
    results = load("here/bundle" if packed else "here/results")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (run,) = results.stored_runs
    assert len(run.metrics()) == 3 and run.column("lag_mean") is not None and run.job()["label"] == "spo"
    assert run.path == tmp_path / ("here/bundle/runs" if packed else "here/results/runs") / run.id
