"""Settings of a pipeline, and error lines for those that are impossible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from staleharness.errors import UserError
from staleharness.pipeline.distributions import read_distribution
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_settings import Pipeline, preset
from staleharness.pipeline.workload_sampler import Workload


@pytest.mark.parametrize(
    "values, words",
    [
        ({"slot": 4}, "unknown option 'slot'; did you mean 'slots'?"),
        ({"slots": 0}, "slots must be at least 1, not 0"),
        ({"slots": 1.5}, "SET: slots=1.5 is not a whole number"),
        ({"batch": 60}, "batch must be a multiple of group=8, not 60"),
        ({"cap": -1.0}, "cap must be above -1, or none, not -1.0"),
        ({"capacity": 0.5}, "capacity must be at least 1 batch, or none, not 0.5"),
        ({"cap": 1e308}, "cap must be at most 1e+09, or none, not 1e+308"),
        ({"capacity": 1e308}, "capacity must be at most 1e+09, or none, not 1e+308"),
        ({"slots": 10**9}, "slots must be at most 20000000, not 1000000000"),
        ({"full": "drop_oldest"}, "full=drop_oldest needs a capacity"),
        ({"full": "drop"}, "SET: full=drop is not one of block, pause, drop_oldest, drop_newest"),
        ({"full": "drop_oldest", "capacity": 1, "order": "submitted"}, "full=drop_oldest needs order=completed"),
        ({"window": 3}, "window=3 needs order=window, not completed"),
        ({"unit": "batch", "slots": 32}, "slots must be at least one batch of 64, not 32"),
        ({"unit": "group", "worker_mtbf": 9.0}, "worker_mtbf needs unit=row, not group"),
        ({"train_seconds": -1.0}, "train_seconds must be from 0 to 1e9, not -1.0"),
        ({"train_seconds": 1e308}, "train_seconds must be from 0 to 1e9, not 1e+308"),
        ({"slow": 0.5, "slow_factor": 1e300}, "slow_factor must be from 1 to 1e9, not 1e+300"),
        ({"environment": "constant:1e300"}, "constant: value must be from 0 to 1e9, not 1e+300"),
        ({"slow": 2.0, "slow_factor": 2.0}, "slow must be from 0 to 1, not 2.0"),
        ({"slow": 0.5, "slow_factor": 0.5}, "slow_factor must be from 1 to 1e9, not 0.5"),
        ({"slow": 0.5}, "slow, above 0, and slow_factor, above 1, go together"),
        ({"slow_factor": 2.0}, "slow, above 0, and slow_factor, above 1, go together"),
        (
            {"slow": 1e-3, "slow_factor": 2.0},
            "slow must be enough for some but not all of 64 units of 1 slots, or 1, not 0.001",
        ),
        (
            {"slow": 0.75, "slow_factor": 2.0, "unit": "batch", "slots": 128},
            "slow must be enough for some but not all of 2 units of 64 slots, or 1, not 0.75",
        ),
        (
            {"slow": 0.5, "slow_factor": 2.0, "unit": "group", "slots": 60},
            "slots must be a multiple of 8 where some are slow, not 60",
        ),
        ({"workers": 65}, "workers must be at most one a slot (64), not 65"),
        ({"steps": 10**9}, "steps must be at most 312500, not 1000000000"),
        ({"token_seconds": 0.0}, "a row takes no time: token_seconds or environment must be above 0"),
        ({"lengths": "lognormol:5"}, "lengths=lognormol:5 is not a distribution; did you mean 'lognormal'?"),
        ({"lengths": "lognormal"}, "lengths=lognormal: mean is missing; give lognormal:<mean>"),
        ({"lengths": "lognormal[mean=-4]"}, "lognormal: mean must be above 0 and at most 1e9, not -4.0"),
        ({"lengths": "lognormal[mean=4,cw=1]"}, "lengths: unknown option 'cw'; did you mean 'cv'?"),
        ({"lengths": "constant:0"}, "lengths=constant:0: a row has at least one decision; give a value of at least 1"),
        ({"lengths": "lognormal:0.2"}, "lengths=lognormal:0.2: a row has at least one decision; give a mean of at"),
        ({"environment": "file:nowhere.csv"}, "file: nowhere.csv is not a file"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_one_line_with_the_remedy(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as raised:
        Pipeline().with_settings(values)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_an_unknown_preset_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match="no preset is called 'asinc'; did you mean 'async'"):
        preset("asinc")


def test_settings_survive_being_written_down() -> None:
    pipeline = preset("in-flight", {"cap": 2})
    assert Pipeline().with_settings(pipeline.to_json()) == pipeline
    assert (pipeline.cap, pipeline.in_flight) == (2.0, "switch")


def test_lengths_have_the_mean_and_spread_that_were_asked_for() -> None:
    drawn = read_distribution("lognormal[mean=800,cv=1.5]", "lengths").sample(np.random.default_rng(0), 400_000)
    assert drawn.mean() == pytest.approx(800, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(1.5, rel=0.05)
    assert set(read_distribution("constant:7", "lengths").sample(np.random.default_rng(0), 5)) == {7.0}


def test_measured_lengths_are_those_of_the_file(tmp_path: Path) -> None:
    values = [3, 5, 5, 900]
    (tmp_path / "lines.txt").write_text("\n".join(map(str, values)))
    (tmp_path / "of an editor.txt").write_text("\n".join(map(str, values)), encoding="utf-8-sig")
    pd.DataFrame({"tokens": values, "other": 1}).to_csv(tmp_path / "table.csv")
    pd.DataFrame({"tokens": values}).to_parquet(tmp_path / "table.parquet")
    for name in ("lines.txt", "of an editor.txt", "table.csv", "table.parquet"):
        record = simulate(Pipeline(lengths=f"file:{tmp_path / name}", steps=40))
        assert set(record.tokens) == set(values)
        assert (record.tokens == 5).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.txt", "1\ntwo\n", "cannot be read as numbers"),
        ("b.txt", "1\n-2\n", "must hold numbers from 0 to 1e.09"),
        ("c.csv", "lengths\n1\n", "has no column tokens"),
        ("e.txt", "1\n1e300\n", "must hold numbers from 0 to 1e.09"),
        ("d.txt", "nan\n", "must hold numbers from 0 to 1e.09"),
    ],
)
def test_a_file_that_holds_no_lengths(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=words):
        Pipeline(lengths=f"file:{tmp_path / name}")


def test_long_rows_are_cut_and_each_row_takes_its_time() -> None:
    work = Workload(Pipeline(lengths="lognormal[mean=1000,cv=2]", max_tokens=1500, environment="constant:3"), 0)
    for _ in range(200):
        work.next_group()
    assert max(work.tokens) == 1500 and min(work.tokens) >= 1
    assert work.seconds == pytest.approx([3 + 0.02 * n for n in work.tokens])
    before = work.tokens[8:16]
    work.recycle(1)
    work.next_group()
    assert work.tokens[-8:] == before
