"""Lags as a log has them, as a lag model: their shares, their unit, and what a buffer cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.lag import Draw, parse_lag
from staleharness.lags.log_file import MAX_LAG
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_rows import to_parquet
from staleharness.pipeline.pipeline_settings import preset
from staleharness.pipeline.pipeline_summary import row_lags
from staleharness.running.run_identity import lag_identity
from staleharness.store.record_schema import MAX_VERSIONS
from staleharness.task import find_env


def log(folder: Path, text: str, name: str = "run.csv") -> str:
    """Write a log whose lines are separated by blanks in `text`."""
    (folder / name).write_text(text.replace(" ", "\n"))
    return str(folder / name)


def test_rows_have_the_lags_of_the_log(tmp_path: Path) -> None:
    model = parse_lag(f"log:{log(tmp_path, 'lag,count 0,50 1,45 2,4 9,1 ')}", 10)
    assert model.probabilities(40, 10) == pytest.approx({40: 0.5, 39: 0.45, 38: 0.04, 31: 0.01})
    assert model.probabilities(1, 10) == pytest.approx({1: 0.5, 0: 0.5})  # none is older than the first version
    lags = 40 - model.assign(Draw(40, 20_000, 10, 1, 3, (40,))).starts
    assert np.bincount(lags)[[0, 1, 2, 9]] / 20_000 == pytest.approx([0.5, 0.45, 0.04, 0.01], abs=0.02)


def test_a_lag_between_two_phases_keeps_its_mean(tmp_path: Path) -> None:
    file = log(tmp_path, "off_policy/mean 1.25 3 ")
    assert parse_lag(f"log:{file}", 4).probabilities(9, 4) == pytest.approx({8: 0.375, 7: 0.125, 6: 0.5})
    halves = parse_lag(f"log[file={file},per_phase=2]", 4).probabilities(9, 4)  # lags 0.625 and 1.5
    assert sum((9 - version) * p for version, p in halves.items()) == pytest.approx((0.625 + 1.5) / 2)


def test_samples_and_gradient_steps_need_their_number_in_a_phase(tmp_path: Path) -> None:
    for column, unit in (("stats/lag_mean", "samples"), ("train/version_diff_avg", "gradient steps")):
        file = log(tmp_path, f"{column} 128 128 ")
        with pytest.raises(UserError, match=f"has lags in {unit}; give per_phase=N, the {unit} of a phase"):
            parse_lag(f"log:{file}", 4)
        assert parse_lag(f"log[file={file},per_phase=64]", 4).probabilities(9, 4) == {7: 1.0}


def test_lags_that_a_buffer_cannot_hold_are_refused_or_cut(tmp_path: Path) -> None:
    file = log(tmp_path, "lag,count 0,50 1,46 9,4 ")
    with pytest.raises(UserError, match=r"lags of up to 9 phases.*give K=10, or tail=cut for the 96.0% within"):
        parse_lag(f"log:{file}", 4)
    cut = parse_lag(f"log[file={file},tail=cut]", 4)
    assert cut.probabilities(40, 4) == pytest.approx({40: 50 / 96, 39: 46 / 96})
    with pytest.raises(UserError, match=r"give K=10$"):
        parse_lag(f"log[file={log(tmp_path, 'lag 9 ', 'b.csv')},tail=cut]", 4)
    beyond = "lags of up to 1,000,000,000 phases, and K=4 holds lags 0 to 3; give "
    with pytest.raises(UserError, match=f"{beyond}a larger per_phase, since no buffer holds them$"):
        parse_lag(f"log:{log(tmp_path, 'lag 1e9 ', 'c.csv')}", 4)
    with pytest.raises(UserError, match=f"{beyond}tail=cut for the 50.0% within$"):
        parse_lag(f"log:{log(tmp_path, 'lag 1e9 2 ', 'd.csv')}", 4)


def test_the_largest_buffer_holds_all_lags_below_it(tmp_path: Path) -> None:
    file = log(tmp_path, "lag 1 69999 ")
    with pytest.raises(UserError, match=r"give K=70000, or tail=cut for the 50\.0% within"):
        parse_lag(f"log:{file}", 2)
    shares = parse_lag(f"log:{file}", 70_000).probabilities(80_000, 70_000)
    assert shares == pytest.approx({79_999: 0.5, 10_001: 0.5})
    assert MAX_LAG == MAX_VERSIONS
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=70_000, lag=f"log:{file}")
    find_env("Hopper-v5")[1].check(spec)


def test_the_content_of_the_log_is_the_identity(tmp_path: Path) -> None:
    one = f"log:{log(tmp_path, 'lag 1 ')}"
    same, other = f"log:{log(tmp_path, 'lag 1 ', 'b.csv')}", f"log:{log(tmp_path, 'lag 2 ', 'c.csv')}"
    assert lag_identity(one) == lag_identity(same) != lag_identity(other)
    assert lag_identity(one) != lag_identity(one.replace("log:", "log[file=") + ",per_phase=2]")
    assert str(tmp_path) not in lag_identity(one)
    assert parse_lag(one, 3).probabilities(5, 3) == {4: 1.0}
    log(tmp_path, "lag 2 ")
    assert parse_lag(one, 3).probabilities(5, 3) == {3: 1.0}  # a changed file is read again
    log(tmp_path, "lag 2 9 ")
    with pytest.raises(UserError, match="give K=10"):
        parse_lag(one, 3)  # and checked again
    with pytest.raises(UserError, match="there is no such file"):
        parse_lag(f"log:{tmp_path / 'no.csv'}", 3)
    for model in ("log", "trace"):
        with pytest.raises(UserError, match="is a folder; give a file"):
            parse_lag(f"{model}:{tmp_path}", 3)


@pytest.mark.parametrize("wrapper", ["sync:3", "cap:1", "sync:3/cap:1"])
def test_the_content_of_a_log_inside_a_wrapper_counts(wrapper: str, tmp_path: Path) -> None:
    one = f"log[file={log(tmp_path, 'lag 0 1 ')},tail=cut]/{wrapper}"
    same, other = one.replace("run.csv", "b.csv"), one.replace("run.csv", "c.csv")
    log(tmp_path, "lag 0 1 ", "b.csv")
    log(tmp_path, "lag 0 0 ", "c.csv")
    assert lag_identity(one) == lag_identity(same) != lag_identity(other)
    assert str(tmp_path) not in lag_identity(one)


def test_rows_of_a_trace_count_once_each(tmp_path: Path) -> None:
    made = simulate(preset("async", {"steps": 40, "slots": 64, "batch": 32, "lengths": "lognormal[mean=900,cv=1.2]"}))
    (tmp_path / "async.parquet").write_bytes(to_parquet(made))
    shares = parse_lag(f"log:{tmp_path / 'async.parquet'}", 60).probabilities(99, 60)
    mean = sum((99 - version) * p for version, p in shares.items())
    trained = made.step >= 0
    first = made.segment_version[np.searchsorted(made.segment_row, np.arange(len(trained)))]
    assert mean == pytest.approx((made.step - first)[trained].mean())
    assert mean == pytest.approx(row_lags(made)["start"].mean(), rel=0.3)
