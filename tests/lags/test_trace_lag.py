"""A trace as a lag model: known by what is in it, and refused where it cannot be replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import Cli
from trace_tables import trace_table

from staleharness.base.plugins import source_hash
from staleharness.errors import UserError
from staleharness.lag import LAGS, parse_lag, read_lag
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_rows import to_parquet
from staleharness.pipeline.pipeline_settings import preset
from staleharness.rollout_schedule import NEVER, Demand
from staleharness.rollout_schedule_checks import validate_schedule
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.run_identity import lag_identity
from staleharness.study import sweep_request
from staleharness.trace import read_trace, trace_bytes

LENGTH = 20
SETTINGS = f"num_envs=2,num_steps={LENGTH},minibatches=2,epochs=1,evaluations=1"


def rows() -> pd.DataFrame:
    """Two actors in lock step, one phase behind from the second on, and a group that is never trained on."""
    lines = [(actor, phase, phase) for phase in range(3) for actor in (0, 1)] + [(1, 3, NEVER)]
    return trace_table(LENGTH, [(a, n, p, max(0, n - 1), float(i), i + 0.5) for i, (a, n, p) in enumerate(lines)])


def trace(folder: Path, table: pd.DataFrame, name: str = "t.parquet", decisions: int = LENGTH) -> Path:
    path = folder / name
    path.write_bytes(trace_bytes(table, {"source": "actors", "decisions": decisions, "fetch": 0}))
    return path


def plan_run(path: Path, steps: int = 3 * 2 * LENGTH, k: str = "2") -> PlannedRun:
    asked = sweep_request(
        env="Pendulum-v1", algo="ppo_clip", k=k, lag=f"trace:{path}", seeds="1", steps=str(steps), settings=SETTINGS
    )
    return plan(asked).runs[0]


def test_a_trace_answers_with_its_rows_and_a_ledger_that_closes(tmp_path: Path) -> None:
    model = parse_lag(f"trace:{trace(tmp_path, rows())}", 2)
    schedule = model.schedule(Demand(2, 2, 1, LENGTH, 0))
    assert schedule.phase.tolist() == [0, 0, 1, 1, NEVER, NEVER] and schedule.place.tolist() == [0, 1, 0, 1, -1, -1]
    assert schedule.oldest.tolist() == [0, 0, 0, 0, 1, 1], "what begins after the run's end is no part of it"
    assert schedule.ledger["rows"] == {"generated": 6, "queued": 2, "trained": 4}
    assert schedule.ledger["decisions"] == {"generated": 120, "queued": 40, "trained": 80}


def test_the_id_hashes_a_traces_content_and_not_its_path(tmp_path: Path) -> None:
    first, other = trace(tmp_path, rows()), trace(tmp_path, rows(), "copied.parquet")
    assert plan_run(first).run_id == plan_run(other).run_id
    assert plan_run(first).spec.lag == f"trace:{first}"
    changed = rows()
    changed.loc[2, "versions"] = [1]
    other = trace(tmp_path, changed, "copied.parquet")
    assert plan_run(first).run_id != plan_run(other).run_id
    assert source_hash(LAGS["trace"]), "its own file counts as well"


def test_a_relative_path_begins_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(tmp_path, rows())
    monkeypatch.chdir(tmp_path)
    assert read_lag("trace:t.parquet").text == f"trace:{tmp_path / 't.parquet'}"


@pytest.mark.parametrize("name", ["my runs", "a,b", "a[1]"])
def test_a_folder_that_no_spec_can_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).mkdir()
    trace(tmp_path / name, rows())
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(UserError) as error:
        read_lag("trace:t.parquet")
    assert f"t.parquet lies in {str(tmp_path / name)!r}: " in str(error.value) and "\n" not in str(error.value)
    (tmp_path / "link").symlink_to(tmp_path / name)
    linked = read_lag(f"trace:{tmp_path / 'link' / 't.parquet'}")
    assert linked.identity == read_lag(linked.text).identity


def _hole(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["phase"] != 1]


def _future(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(versions=[[2] if i == 2 else v for i, v in enumerate(table["versions"])])


def _missing(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(index=[5, 6])


def _skip_group(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(nth=[4 if i == 4 else nth for i, nth in enumerate(table["nth"])])


@pytest.mark.parametrize(
    "spoil, words",
    [
        (_hole, "has a hole: no row was trained in phase 1"),
        (_future, "trained in phase 1 with a version from the future, 2"),
        (_missing, "phase 2 has 1 rows in 1 groups; the run asks for 2 groups of 1"),
        (_skip_group, "actor 0 lacks its group 2"),
    ],
)
def test_an_impossible_trace_is_refused_by_the_plan(
    tmp_path: Path, spoil: Callable[[pd.DataFrame], pd.DataFrame], words: str
) -> None:
    with pytest.raises(UserError) as error:
        plan_run(trace(tmp_path, spoil(rows())))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_trace_of_another_shape_is_refused_in_one_line(tmp_path: Path, cli: Cli) -> None:
    path = trace(tmp_path, rows())

    def error(lag: str, settings: str = SETTINGS, k: str = "2", steps: int = 120) -> str:
        words = f"--env=Pendulum-v1 --algo=ppo_clip --k={k} --lag={lag} --set={settings} --steps={steps} --seeds=1"
        code, _, line = cli("sweep", *words.split(), f"--out={tmp_path / 'out'}", "--dry")
        assert code == 2 and "\n" not in line.strip()
        return line

    assert "has 3 phases; the run has 4" in error(f"trace:{path}", steps=160)
    assert "is of rows of 20 decisions; the run's have 10" in error(
        f"trace:{path}", SETTINGS.replace("num_steps=20", "num_steps=10"), steps=60
    )
    assert "the run asks for 4 groups of 1" in error(f"trace:{path}", SETTINGS.replace("num_envs=2", "num_envs=4"))
    assert "has lags of up to 1 phases, and K=1 holds lags 0 to 0; give K=2" in error(f"trace:{path}", k="1")
    assert "there is no such file" in error(f"trace:{path}x")
    (tmp_path / "text").write_text("rows")
    assert "is not a trace" in error(f"trace:{tmp_path / 'text'}")
    assert "file is missing" in error("trace")
    assert not (tmp_path / "out").exists()


def test_a_kind_without_actors_says_so(tmp_path: Path) -> None:
    from known_plugins import TABULAR, loaded_plugins

    with loaded_plugins(TABULAR):
        for lag in ("async", f"trace:{trace(tmp_path, rows())}"):
            with pytest.raises(UserError, match=r"which random-mdp-0 does not support; give uniform"):
                plan(sweep_request(env="random-mdp-0", algo="ppo_clip", k="2", lag=lag, seeds="1"))


def test_the_header_says_what_a_trace_is(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    said = json.loads(pq.read_table(trace(tmp_path, rows())).schema.metadata[b"staleharness.trace"])
    assert (
        said["format"] == 3
        and said["source"] == "actors"
        and list(said["columns"]) == [*rows(), "finished_in", "left_in"]
    )


def test_longer_rows_are_cut_or_scaled(tmp_path: Path) -> None:
    table = rows()
    both = zip(table["versions"], table["phase"], strict=True)
    table["versions"] = [[v[0], v[0] + 1] if phase > v[0] else v for v, phase in both]
    table["ends"] = [[15, 20] if len(v) == 2 else [20] for v in table["versions"]]
    path = trace(tmp_path, table)
    demand = Demand(phases=3, groups=2, rows=1, length=12, seed=0)
    with pytest.raises(UserError, match="is of rows of 20 decisions; the run's have 12"):
        read_lag(f"trace:{path}").schedule(demand)
    plans = {how: read_lag(f"trace[file={path},lengths={how}]").schedule(demand) for how in ("cut", "scale")}
    for how, made in plans.items():
        validate_schedule(made, demand, how).check_capacity(3, how)
        assert made.end[made.first[1:] - 1].tolist() == [12] * len(made)
    trained = plans["scale"].trained_in(2)[0]
    first = slice(*plans["scale"].first[trained : trained + 2])
    assert plans["scale"].version[first].tolist() == [1, 2] and plans["scale"].end[first].tolist() == [9, 12]
    assert plans["cut"].version[slice(*plans["cut"].first[trained : trained + 2])].tolist() == [
        1
    ]  # 15 of 20 come first
    assert len({lag_identity(f"trace:{path}"), *(lag_identity(f"trace[file={path},lengths={x}]") for x in plans)}) == 3


def test_rows_that_were_given_up_are_not_scaled(tmp_path: Path) -> None:
    table = rows()
    table.loc[6, ["fate", "made_at"]] = "dropped_stale", np.nan  # given up after 5 of its decisions
    table.at[6, "ends"] = [5]
    table.loc[[4, 5], "phase"], table.loc[[4, 5], "fate"] = NEVER, "in_flight"  # in a group that is not finished
    table.at[5, "ends"] = [10]
    demand = Demand(phases=2, groups=2, rows=1, length=40, seed=0)
    file = trace(tmp_path, table.assign(versions=[[0]] * 7), decisions=LENGTH)
    made = read_lag(f"trace[file={file},lengths=scale]").schedule(demand)
    assert made.lengths.tolist() == [40] * 6 + [5]


def test_a_trace_of_a_pipeline_with_groups_is_replayed_on_control(tmp_path: Path) -> None:
    settings = {"slots": 24, "batch": 16, "group": 8, "steps": 3, "cap": 1, "lengths": f"constant:{LENGTH}"}
    file = tmp_path / "async.parquet"
    file.write_bytes(to_parquet(simulate(preset("async", settings))))
    shape = SETTINGS.replace("num_envs=2", "num_envs=16,envs_per_actor=8")
    of_run = {"env": "Pendulum-v1", "algo": "ppo_clip", "k": "4", "seeds": "1", "steps": str(3 * 16 * LENGTH)}
    assert plan(sweep_request(**of_run, lag=f"trace:{file}", settings=shape)).runs
    header, made = read_trace(str(file))
    slots = made.assign(actor=made["row"], nth=0)  # as traces had it before: an actor per row
    file.write_bytes(trace_bytes(slots, header))
    with pytest.raises(
        UserError, match="has to make all rows of a group at one time; write the trace of a pipeline anew"
    ):
        plan(sweep_request(**of_run, lag=f"trace:{file}", settings=shape))


def test_a_trace_of_long_tailed_rows_is_trained_on(tmp_path: Path) -> None:
    settings = {"slots": 8, "batch": 4, "group": 1, "steps": 6, "cap": 2, "lengths": "lognormal[mean=900,cv=1.5]"}
    (tmp_path / "async.parquet").write_bytes(to_parquet(simulate(preset("async", settings))))
    demand = Demand(phases=6, groups=4, rows=1, length=16, seed=0)
    plans = [
        read_lag(f"trace[file={tmp_path / 'async.parquet'},lengths={how}]").schedule(demand) for how in ("cut", "scale")
    ]
    for made in plans:
        validate_schedule(made, demand, "trace")
    np.testing.assert_array_equal(plans[0].oldest, plans[1].oldest)  # lengths fit, lags stay
