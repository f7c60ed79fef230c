"""Logs of real systems at the right column, unit and mean, as its source says (`framework_lag_metrics.toml`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from staleharness.errors import UserError
from staleharness.logs.lag_log_reader import LagLog, read_log
from staleharness.logs.log_statistics import SEGMENTS, DriftMeter

CASES = ROOT / "tests" / "data" / "logs"
PRIME = "off_policy/mean"
VERL = "training/off_policy/trajectory_staleness"


def log(folder: Path, text: str, name: str = "run.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def table(folder: Path, **columns: float) -> LagLog:
    """Read a log of two steps in which each column keeps its value."""
    line = ",".join(map(str, columns.values()))
    return read_log(log(folder, f"step,{','.join(columns)}\n0,{line}\n1,{line}\n"))


@pytest.mark.parametrize(
    "file, column, mean, over, largest",
    [
        ("prime_rl_now.csv", PRIME, 2.0, "rows", 4.0),
        ("areal.csv", "ppo_actor/update/version_stats/sample_staleness_theta_avg", 2.4, "decisions", 4.0),
        ("own_export_metrics.csv", "lag_mean", 2.58125, "decisions", None),
        ("excel_eu.csv", "lag", 2.0, "rows", 2.5),
        ("nan_text.csv", "lag", 2.0, "rows", 2.0),
    ],
)
def test_each_case_has_its_right_value(file: str, column: str, mean: float, over: str, largest: float | None) -> None:
    found = read_log(str(CASES / file))
    assert (found.column, found.unit, found.over) == (column, "versions", over)
    assert found.mean == pytest.approx(mean, rel=1e-12) and found.to_json()["max"] == largest


def test_samples_are_versions_of_a_batch() -> None:
    file = str(CASES / "pipelinerl_new.csv")
    for columns, unit in ((None, None), ("lag=stats/lag_mean", "samples")):
        found = read_log(file, columns, unit, 64)
        assert (found.mean, found.unit, found.to_json()["max"]) == (2.0, "versions", 8.0)
        assert "versions of 64 samples" in found.note
    with pytest.raises(UserError, match="counts samples; give BATCH=N, the samples of a version"):
        read_log(file)
    with pytest.raises(UserError, match="BATCH is for lags in samples; those of LOG=areal"):
        read_log(str(CASES / "areal.csv"), batch=64)
    with pytest.raises(UserError, match="BATCH=0 must be above 0"):
        read_log(file, batch=0)


@pytest.mark.parametrize(
    "columns, system, lag, over",
    [
        ({"dispatcher/off_policy/mean": 0.7, PRIME: 2, "off_policy/in_flight/mean": 1.5}, "prime-rl", PRIME, "rows"),
        ({f"{VERL}/mean": 1, f"{VERL}_worst/mean": 3}, "verl", f"{VERL}_worst/mean", "rows"),
        ({f"{VERL}/mean": 1}, "verl", f"{VERL}/mean", "rows"),
        ({"async/staleness_mean": 2, "async/staleness_ratio": 0.8}, "SkyRL", "async/staleness_mean", "rows"),
        (
            {"rollout/fully_async/buffer_avg_staleness": 9, "rollout/fully_async/avg_staleness": 2},
            "miles",
            "rollout/fully_async/avg_staleness",
            "rows",
        ),
        ({"num_steps_off_policy": 2, "model_step_mean": 7}, "open-instruct", "num_steps_off_policy", "rows"),
        ({"math_rule/scheduler/off_policy_ratio": 3}, "ROLL", "math_rule/scheduler/off_policy_ratio", "rows"),
        ({"train/avg_trajectory_age": 1}, "NeMo-RL", "train/avg_trajectory_age", "rows"),
        ({"fully_async/trajectory_staleness/mean": 2}, "verl", "fully_async/trajectory_staleness/mean", "decisions"),
        ({"off_policy_level/all/mean": 2}, "prime-rl", "off_policy_level/all/mean", "rows"),
    ],
    ids=lambda value: "+".join(value)[-40:] if isinstance(value, dict) else str(value)[-20:],
)
def test_a_system_is_read_at_its_column(
    tmp_path: Path, columns: dict[str, float], system: str, lag: str, over: str
) -> None:
    found = table(tmp_path, **columns)
    assert (found.system.name, found.column, found.over, found.unit) == (system, lag, over, "versions")
    assert found.mean == columns[lag] and found.system.granularity == "step" and found.system.kind == "tokens"


def test_the_newest_part_stands_beside_the_oldest(tmp_path: Path) -> None:
    found = table(tmp_path, **{f"{VERL}/mean": 1.25, f"{VERL}_worst/mean": 3.5, f"{VERL}_worst/max": 8})
    assert found.mean == 3.5 and found.to_json()["max"] == 8
    (newest,) = found.others
    assert newest.mean == 1.25 and "newest version" in newest.subject


def test_the_oldest_sample_is_no_mean(tmp_path: Path) -> None:
    file = log(tmp_path, "stats/lag\n128\n256\n")
    found = read_log(file, batch=64)
    assert found.mean == 3.0 and "the largest lag, not the mean" in found.note


def test_means_of_steps_have_no_percentile_of_rows(tmp_path: Path) -> None:
    steps = "\n".join(f"{lag},{most},{p95}" for lag, most, p95 in ((1, 4, 2), (2, 60, 3), (3, 5, 4)))
    found = read_log(log(tmp_path, f"{PRIME},off_policy/max,off_policy/p95\n{steps}\n")).to_json()
    assert (found["median"], found["p95"], found["max"]) == (None, 3.0, 60.0)
    assert found["step_means"]["max"] == 3 and found["statistics"]["p95"]["column"] == "off_policy/p95"
    rows = read_log(log(tmp_path, "lag\n1\n2\n60\n")).to_json()
    assert (rows["median"], rows["p95"], rows["max"], rows["step_means"]) == (2.0, 60.0, 60.0, None)


@pytest.mark.parametrize(
    "columns, words",
    [
        ({"dispatcher/off_policy/mean": 1}, "is of episodes still in flight"),
        ({"train/weight_sync_time_s": 1, "train/clip_ratio/region_mean": 0}, "TRL logs no lag"),
        ({"rollout/fully_async/buffer_avg_staleness": 1}, "is of groups that wait, not trained on"),
        ({"fully_async/count/stale_trajectory_processed": 1}, "counts how many samples are stale"),
        ({"async/staleness_ratio": 1}, "is the share of stale groups"),
        ({PRIME: 1, "async/staleness_mean": 1}, "2 columns may be the lag"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_lag_is_refused_with_the_reason(tmp_path: Path, columns: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        table(tmp_path, **columns)


def test_long_tables_are_read_by_metric(tmp_path: Path) -> None:
    lines = [("loss", 5, 0), (PRIME, 1, 0), (PRIME, 3, 1), ("off_policy/max", 9, 1)]
    mlflow = "key,value,step,run_id\n" + "".join(f"{key},{value},{step},a\n" for key, value, step in lines)
    found = read_log(log(tmp_path, mlflow))
    assert (found.mean, found.rows, found.to_json()["max"], found.runs) == (2.0, 2, 9.0, 1)
    objects = "\n".join(json.dumps({"key": key, "value": value, "step": step}) for key, value, step in lines)
    assert read_log(log(tmp_path, objects, "metrics.jsonl")).mean == 2.0
    two = read_log(log(tmp_path, mlflow + f"{PRIME},5,0,b\n"))
    assert two.runs == 2 and two.mean == 3.0 and "2 runs together" in two.note
    with pytest.raises(UserError, match="a table with a line per value has no counts"):
        read_log(log(tmp_path, mlflow), f"lag={PRIME},count=loss")
    wide = read_log(log(tmp_path, "name,value,lag\nx,7,1\ny,8,2\n"))
    assert wide.column == "lag" and wide.mean == 1.5


def test_decimal_commas_stand_with_semicolons_or_tabs(tmp_path: Path) -> None:
    for name, separator in (("a.csv", ";"), ("a.tsv", "\t")):
        text = "\n".join(separator.join(row) for row in (("step", "lag"), ("0", "1,5"), ("1", "2,5e1"), ("2", "null")))
        assert read_log(log(tmp_path, text + "\n", name)).lags.tolist() == [1.5, 25.0]
    for text in ("step;lag\n0;1.234,5\n", 'step,lag\n0,"1,5"\n', "step;lag\n0;1,234,567\n"):
        with pytest.raises(UserError, match="is not a lag"):
            read_log(log(tmp_path, text))


def test_a_named_column_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    file = log(tmp_path, "version_stats/sample_staleness_theta_avg,x\n1,2\n3,4\n")
    found = read_log(file, "lag=version_stats/sample_staleness_theta_avg")
    assert (found.over, found.system.granularity, found.system.name) == ("decisions", "step", "AReaL")
    assert read_log(file, "lag=x").over == "rows" and read_log(file, "lag=x,over=decisions").over == "decisions"
    with pytest.raises(UserError, match="COLUMNS: over=tokens is not known"):
        read_log(file, "lag=x,over=tokens")


def test_a_drift_is_told_and_noise_is_not(tmp_path: Path) -> None:
    steps = [0.5] * 100 + [9.5] * 100
    found = read_log(log(tmp_path, "lag\n" + "".join(f"{lag}\n" for lag in steps)))
    assert found.drift is not None and tuple(found.drift) == (0.5, 9.5)
    rng = np.random.default_rng(1)
    noise = rng.geometric(0.2, 4000)
    assert read_log(log(tmp_path, "lag\n" + "".join(f"{lag}\n" for lag in noise))).drift is None
    assert read_log(log(tmp_path, "lag\n1\n9\n")).drift is None  # too short to tell
    assert read_log(log(tmp_path, "lag,count\n0,5\n" + "9,1\n" * 40)).drift is None  # a histogram has no order


@pytest.mark.parametrize("rows", [9, 2 * SEGMENTS, 2 * SEGMENTS + 1, 7 * SEGMENTS + 3])
def test_quarters_are_of_the_rows_in_their_order(rows: int) -> None:
    lags, meter = np.arange(rows, dtype=float), DriftMeter()
    for piece in np.array_split(lags, 5):
        meter.add(piece)
    found = meter.drift()
    assert found is not None
    assert found.first == pytest.approx(rows / 8, rel=0.1, abs=1) and found.last == pytest.approx(
        rows * 7 / 8, rel=0.1, abs=1
    )
