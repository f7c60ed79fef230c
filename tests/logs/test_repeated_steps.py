"""Logs whose steps repeat, as those of a run that was restarted from a checkpoint."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from test_lag_log_reader import log, scalar

from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.logs import log_cells, logged_values
from staleharness.logs.lag_log_reader import LagLog, read_log

TAG = "off_policy/mean"
Rows = Sequence[tuple[int, float]]  # (step, lag)
RESTART = [(step, 1.0) for step in range(100)] + [(step, 9.0) for step in range(50, 100)]
TWICE = "50 steps were logged twice: the last value of each counts"


def csv(folder: Path, rows: Rows, step: str = "step", name: str = TAG) -> str:
    return log(folder, f"{step},{name}\n" + "".join(f"{step},{lag}\n" for step, lag in rows))


def jsonl(folder: Path, rows: Rows, step: str = "step", name: str = TAG) -> str:
    lines = ([{step: at, name: lag}, {"loss": 1.0, step: at}] for at, lag in rows)
    return log(folder, "".join(json.dumps(line) + "\n" for pair in lines for line in pair), "run.jsonl")


def mlflow(folder: Path, rows: Rows) -> str:
    lines = (f"{TAG},{lag},{step},a\nloss,1,{step},a\n" for step, lag in rows)
    return log(folder, "key,value,step,run_id\n" + "".join(lines), "long.csv")


def events(folder: Path, rows: Rows, name: str = TAG) -> str:
    path = folder / "events.out.tfevents.1"
    path.write_bytes(b"".join(scalar("loss", 1.0, step=step) + scalar(name, lag, step=step) for step, lag in rows))
    return str(path)


def last(rows: Rows) -> pd.Series:
    """Lags by pandas: the last of each step, in the order of steps."""
    table = pd.DataFrame(rows, columns=["step", "lag"])
    return table.drop_duplicates("step", keep="last").sort_values("step")["lag"]


FORMS = [csv, jsonl, mlflow, events]


@pytest.mark.parametrize("form", FORMS)
def test_the_last_value_of_each_step_counts(tmp_path: Path, form: Callable[[Path, Rows], str]) -> None:
    found = read_log(form(tmp_path, RESTART))
    assert (found.mean, found.rows, found.rows) == (5.0, 100, len(last(RESTART))) and found.mean == last(RESTART).mean()
    assert found.drift == (1.0, 9.0) and TWICE in found.note


@pytest.mark.parametrize("form", FORMS)
def test_steps_without_order_are_sorted(tmp_path: Path, form: Callable[[Path, Rows], str]) -> None:
    rows = [(step, 1.0 if step < 100 else 9.0) for step in range(200)]
    random.Random(5).shuffle(rows)
    found = read_log(form(tmp_path, rows))
    assert (found.rows, found.drift) == (200, (1.0, 9.0)) and found.note.endswith("; sorted by step")


def test_a_third_restart_says_how_many_values_are_left_out(tmp_path: Path) -> None:
    rows = [*RESTART, *((step, 3.0) for step in range(90, 120)), (7, 5.0)]
    found = read_log(csv(tmp_path, rows))
    assert found.mean == pytest.approx(last(rows).mean(), rel=1e-15) and found.rows == 120
    assert "51 steps were logged more than once: the last value of each counts, 61 earlier ones do not" in found.note
    found = read_log(csv(tmp_path, [(0, 1.0), (0, 3.0), (1, 5.0)]))
    assert found.mean == 4 and "1 step was logged twice" in found.note


def test_a_metric_in_a_long_table_is_no_column_of_steps(tmp_path: Path) -> None:
    lines = "".join(f"{TAG},{lag}\nglobal_step,{step}\n" for step, lag in RESTART)
    assert read_log(log(tmp_path, f"key,value\n{lines}")).note.endswith("utils.py:57)")


def test_statistics_and_other_lags_repeat_no_step(tmp_path: Path) -> None:
    verl = "training/off_policy/trajectory_staleness"
    lines = "".join(f"{step},{lag},{2 * lag},{lag / 2}\n" for step, lag in RESTART)
    found = read_log(log(tmp_path, f"step,{verl}_worst/mean,{verl}_worst/p95,{verl}/mean\n{lines}"))
    assert (found.mean, found.statistics["p95"].value, found.others[0].mean) == (5.0, 10.0, 2.5)


@pytest.mark.parametrize(
    "step",
    "Step _step global_step train/global_step trainer/global_step training/global_step rollout/step training_step "
    "system/step stats/completed_steps training_iteration".split(),
)
@pytest.mark.parametrize("form", [csv, jsonl])
def test_the_column_of_steps_is_known_by_name(tmp_path: Path, form: Callable[..., str], step: str) -> None:
    assert read_log(form(tmp_path, RESTART, step)).mean == 5.0


def test_the_training_step_comes_before_the_loggers(tmp_path: Path) -> None:
    """W&B's own step goes on counting where a resumed run repeats steps."""
    lines = "".join(f"{i},{step},{lag}\n" for i, (step, lag) in enumerate(RESTART))
    for header in (f"_step,train/global_step,{TAG}", f"Step,my run - train/global_step,my run - {TAG}"):
        assert read_log(log(tmp_path, f"{header}\n{lines}")).mean == 5.0


@pytest.mark.parametrize("form", [csv, jsonl, events])
def test_rows_of_samples_all_count(tmp_path: Path, form: Callable[..., str]) -> None:
    """Several rows per step are normal in a table of lags."""
    options = {} if form is events else {"step": "step"}
    found = read_log(form(tmp_path, RESTART, **options, name="lag"))
    assert (found.mean, found.rows) == (pytest.approx(11 / 3), 150)
    assert "50 steps occur more than once: every row counts" in found.note
    named = read_log(form(tmp_path, RESTART, **options, name="age"), "lag=age")
    assert named.rows == 150 and "50 steps occur more than once" in named.note


def test_rows_of_a_histogram_have_no_order(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, "step,lag,count\n0,1,2\n0,2,2\n1,1,4\n0,9,0\n"))
    assert (found.mean, found.rows) == (1.25, 8) and "step" not in found.note.split("in versions")[1]


@pytest.mark.parametrize("column", ["run", "run_id", "seed"])
def test_the_steps_of_two_runs_are_not_repeated(tmp_path: Path, column: str) -> None:
    for order in (sorted, lambda rows: sorted(rows, key=lambda row: row[1])):  # run by run, or step by step
        rows = order([(run, step, lag) for run, lag in (("a", 2.0), ("b", 4.0)) for step in range(20)])
        lines = "".join(f"{run},{step},{lag}\n" for run, step, lag in rows)
        found = read_log(log(tmp_path, f"{column},step,{TAG}\n{lines}"))
        assert (found.mean, found.rows, found.runs) == (3.0, 40, 2) and "logged" not in found.note


@pytest.mark.parametrize("steps, reason", [([0] * 4, "it is 0 in all"), ([0, 1, "", 1], "not all have a number there")])
def test_steps_that_say_nothing_leave_all_rows(tmp_path: Path, steps: list[object], reason: str) -> None:
    lines = "".join(f"{step},{lag}\n" for lag, step in enumerate(steps))
    found = read_log(log(tmp_path, f"step,{TAG}\n{lines}"))
    assert (found.mean, found.rows) == (1.5, 4) and f"step is not used to order 4 rows: {reason}" in found.note


def test_steps_below_zero_are_read(tmp_path: Path) -> None:
    path = events(tmp_path, [(-1, 1.0), (0, 3.0), (-1, 5.0)])
    assert read_log(path).lags.tolist() == [3.0, 5.0]


def test_draws_come_from_the_same_histogram(tmp_path: Path) -> None:
    shares = parse_lag(f"log:{csv(tmp_path, RESTART)}", 10).probabilities(50, 10)
    assert shares == {49: 0.5, 41: 0.5}


def test_long_logs_are_read_in_order_without_sorting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(step // 3, float(step % 7)) for step in range(100)]
    small = [read_log(form(tmp_path, rows)) for form in FORMS]
    monkeypatch.setattr(logged_values, "MAX_SORTED", 10)
    for piece in (1, 2, 64):
        monkeypatch.setattr(log_cells, "PIECE", piece)
        for form, expected in zip(FORMS, small, strict=True):
            assert equal(read_log(form(tmp_path, rows)), expected) and expected.mean == last(rows).mean()
    with pytest.raises(
        UserError, match=r"LOG=run.csv: column 'step': it goes down, .* are sorted; sort the file by run and step"
    ):
        read_log(csv(tmp_path, RESTART))
    found = read_log(csv(tmp_path, RESTART, name="lag"))
    assert found.rows == 150 and "step is not used to order 150 rows: it goes down" in found.note


def equal(a: LagLog, b: LagLog) -> bool:
    return a.to_json() == b.to_json() and a.weights.tolist() == b.weights.tolist()
