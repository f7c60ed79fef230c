"""Lags as real systems log them: which column, in which unit, from which file."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from needs import require_extra

from staleharness.base.files import write_bytes
from staleharness.errors import UserError
from staleharness.exporters.long_csv import COLUMNS
from staleharness.logs.json_and_event_readers import scalars
from staleharness.logs.lag_log_reader import read_log, read_unconverted
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_rows import to_parquet
from staleharness.pipeline.pipeline_settings import preset
from staleharness.pipeline.pipeline_summary import histogram


def log(folder: Path, text: str, name: str = "run.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def checksum(content: bytes) -> bytes:
    """Divide bit by bit, then mask."""
    remainder = 2**32 - 1
    for bit in (byte >> i & 1 for byte in content for i in range(8)):
        remainder = remainder >> 1 ^ (0x82F63B78 if (remainder ^ bit) & 1 else 0)
    remainder ^= 2**32 - 1
    return struct.pack("<I", (((remainder >> 15) | (remainder << 17)) + 0xA282EAD8) % 2**32)


def record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + checksum(length) + event + checksum(event)


def scalar(tag: str, number: float, tensor: bool = False, step: int = 300) -> bytes:
    packed = struct.pack("<f", number)
    value = field(8, varint(1 << 3) + varint(1) + field(4, packed)) if tensor else varint(2 << 3 | 5) + packed
    place = varint(2 << 3) + varint(step % 2**64)
    return record(struct.pack("<Bd", 1 << 3 | 1, 1.7e9) + place + field(5, field(1, field(1, tag.encode()) + value)))


@pytest.mark.parametrize(
    "column, unit, system",
    [
        ("train/version_diff_avg", "gradient_steps", "Sample Factory"),
        ("info/learner/default_policy/diff_num_grad_updates_vs_sampler_policy", "gradient_steps", "RLlib"),
        ("off_policy_level/all/mean", "versions", "prime-rl"),
        ("batch/off_policy_level/mean", "versions", "prime-rl"),
        ("train/avg_trajectory_age", "versions", "NeMo-RL"),
        ("Qwen run - 3 - off_policy_level/all/mean", "versions", "prime-rl"),
        ("lag_mean", "versions", "staleharness"),
        ("phase/lag_mean", "versions", "staleharness"),
    ],
)
def test_a_column_is_known_by_its_systems_name(tmp_path: Path, column: str, unit: str, system: str) -> None:
    others = "Step,reward/mean,off_policy_level/all/max"
    found = read_log(log(tmp_path, f"{others},{column},{column}__MAX\n1,0,9,2,7\n2,0,9,,7\n3,0,9,5,7\n"))
    assert (found.column, found.unit, list(found.lags)) == (column, unit, [2.0, 5.0])
    assert system in found.note and found.mean == 3.5


def test_a_histogram_has_its_weights(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, "lag,count\n0,50\n1,45\n2,4\n9,1\n"))
    np.testing.assert_array_equal(read_log(str(tmp_path / "run.csv"), "lag=lag").weights, found.weights)
    everyone = np.repeat([0, 1, 2, 9], [50, 45, 4, 1])
    assert found.mean == pytest.approx(everyone.mean())
    for share in (0.5, 0.51, 0.95, 0.96, 1.0):
        assert found.quantile(share) == np.quantile(everyone, share, method="inverted_cdf")
    assert found.to_json()["max"] == 9 and found.to_json()["rows"] == 100


@pytest.mark.parametrize("header", ["lag, count", "lag,Count", "\n \nlag,count", "my run - lag,my run - count"])
def test_counts_are_known_where_their_lag_is(tmp_path: Path, header: str) -> None:
    read = read_log(log(tmp_path, f"{header}\n1, 2\n3, 4\n", "run.csv"))
    assert (read.mean, read.rows) == (pytest.approx(7 / 3), 6)


def test_a_histogram_of_shares_has_the_rows_of_its_table(tmp_path: Path) -> None:
    found = read_log(log(tmp_path, "lag,count\n0,0.625\n1,0.25\n9,0.1\n"))
    assert found.rows == 3 and found.mean == pytest.approx(1.15 / 0.975)


@pytest.mark.parametrize("kind", ["long", "wide", "jsonl"])
def test_phases_that_fill_the_buffer_are_in_no_own_lag(tmp_path: Path, kind: str) -> None:
    """The tables are those of `staleharness export csv`, `metrics().to_csv` and a run's own log."""
    rows = [
        {"phase": p, "steps": steps, "lag_mean": lag, "lags/trained": lag}
        for p, steps, lag in ((0, 0, 0.0), (1, 64, 2.0), (2, 128, 3.0))
    ]
    if kind == "long":
        lines = [f"a,vaco,Hopper,8,0,{row['phase']},{row['steps']},lag_mean,{row['lag_mean']}" for row in rows]
        file = log(tmp_path, "\n".join([",".join(COLUMNS), *lines, ""]))
    elif kind == "wide":
        file = log(tmp_path, pd.DataFrame(rows).to_csv(index=False))
    else:
        file = log(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "metrics.jsonl")
    found = read_log(file, "lag=lag_mean")
    assert (found.rows, found.mean, found.lags.tolist()) == (2, 2.5, [2.0, 3.0])


def test_the_first_row_of_another_table_counts(tmp_path: Path) -> None:
    assert read_log(log(tmp_path, "phase,steps,lag_mean\n0,0,1\n1,64,2\n")).mean == 1.5


def test_json_lines_are_read_with_nested_names(tmp_path: Path) -> None:
    deep = {"learners": {"default_policy": {"diff_num_grad_updates_vs_sampler_policy": 1.5}}, "it": 1}
    text = "\n".join(json.dumps(row) for row in ({"it": 0}, deep))
    found = read_log(log(tmp_path, text, "result.jsonl"))
    assert list(found.lags) == [1.5] and found.unit == "gradient_steps"


def test_columns_given_by_the_user_win(tmp_path: Path) -> None:
    file = log(tmp_path, "my lag,n,lag\n3,1,0\n5,3,0\n")
    found = read_log(file, "lag=my lag, count=n", "gradient_steps")
    assert (found.mean, found.unit) == (4.5, "gradient_steps") and "COLUMNS says so" in found.note
    assert read_log(file, "lag=my lag").unit == "versions"


def test_event_files_are_read_without_tensorboard(tmp_path: Path) -> None:
    tag, data = "train/version_diff_avg", record(b"")
    data += scalar(tag, 1.5) + scalar("loss", 7.0) + scalar(tag, 4.5, tensor=True)
    data += record(field(5, field(1, field(1, b"picture") + field(4, b"xyz"))))
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "events.out.tfevents.1").write_bytes(data + scalar(tag, 99.0)[:-9])  # still being written
    with (folder / "events.out.tfevents.1").open("rb") as stream:
        assert list(scalars(stream)) == [(tag, 300, 1.5), ("loss", 300, 7.0), (tag, 300, 4.5)]
    (folder / "events.out.tfevents.1").write_bytes(data)
    assert list(read_log(str(folder)).lags) == [1.5, 4.5]
    for broken in (b"", b"text that is no event file at all", record(b"\xff\xff"), record(b"\x2a\x7f")):
        (folder / "events.out.tfevents.1").write_bytes(broken)
        with pytest.raises(UserError, match="cannot be read"):
            read_log(str(folder))


def test_event_files_of_tensorboard_itself(tmp_path: Path) -> None:
    require_extra("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (tmp_path / "events.out.tfevents.9").open("wb") as stream:
        writer = RecordWriter(stream)
        for step, lag in enumerate((2.0, 3.0)):
            value = Summary.Value(tag="off_policy_level/all/mean", simple_value=lag)
            writer.write(Event(step=step, summary=Summary(value=[value])).SerializeToString())
        writer.flush()
        assert read_log(str(tmp_path)).mean == 2.5


def test_trace_is_read_by_decisions(tmp_path: Path) -> None:
    made = simulate(preset("in-flight", {"steps": 30}))
    write_bytes(tmp_path / "in-flight.parquet", to_parquet(made))
    found = read_log(str(tmp_path / "in-flight.parquet"))
    whole = {int(lag): int(found.weights[found.lags == lag].sum()) for lag in np.unique(found.lags)}
    assert sum(whole.values()) == made.tokens[made.step >= 0].sum()
    # The pipeline's own histogram leaves out the steps before `warm`.
    assert all(whole[lag] >= n for lag, n in histogram(made).items())
    with pytest.raises(UserError, match="COLUMNS has no meaning"):
        read_log(str(tmp_path / "in-flight.parquet"), "lag=versions")


@pytest.mark.parametrize("over", ["decisions", "rows"])
def test_the_drift_of_a_trace_is_over_what_its_mean_is_over(tmp_path: Path, over: str) -> None:
    made = simulate(preset("async", {"cap": None, "slots": 192, "lengths": "lognormal[mean=1000,cv=2]", "steps": 128}))
    write_bytes(tmp_path / "async.parquet", to_parquet(made))
    rows = pd.read_parquet(tmp_path / "async.parquet")
    rows = rows[rows["phase"] >= 0].sort_values("phase", kind="stable")
    lags = rows["phase"].to_numpy() - np.array([versions[0] for versions in rows["versions"]])  # of the whole row
    weights = np.array([ends[-1] for ends in rows["ends"]]) if over == "decisions" else np.ones(len(rows))
    quarter = len(rows) // 4
    expected = [np.average(lags[part], weights=weights[part]) for part in (slice(quarter), slice(-quarter, None))]
    found = read_unconverted(str(tmp_path / "async.parquet"), over=over).drift
    assert found is not None and list(found) == pytest.approx(expected)


def test_a_column_may_be_named_without_the_run_before_it(tmp_path: Path) -> None:
    """W&B writes the run; models of lag cannot name a column with blanks."""
    file = log(tmp_path, "Step,my run - queue/age,my run - queue/age__MIN\n0,1,8\n1,3,8\n", "run.csv")
    for name in ("queue/age", "my run - queue/age"):
        read = read_log(file, f"lag={name}")
        assert (read.column, read.mean) == ("my run - queue/age", 2.0)


def test_a_named_column_may_have_commas(tmp_path: Path) -> None:
    file = log(tmp_path, '"lr=1,bs=4 - age","lr=1,bs=8 - age"\n1,5\n3,5\n', "run.csv")
    read = read_log(file, "lag=lr=1,bs=4 - age,over=decisions")
    assert (read.column, read.mean, read.over) == ("lr=1,bs=4 - age", 2.0, "decisions")


@pytest.mark.parametrize(
    "name, text, asked, words",
    [
        ("run.csv", "a,b\n1,2\n", None, "no column has a name that is known to be a lag; say which one: COLUMNS"),
        ("run.csv", "fully_async/count/stale_samples_processed\n1\n", None, "counts how many samples are stale"),
        ("run.csv", "lag,x - lag\n1,2\n", None, "2 columns may be the lag: lag, x - lag; say which one"),
        ("run.csv", "lag\n", None, "cannot be read: it has no row below its header"),
        ("run.csv", "lag,b\n1\n", None, "line 2 has 1 cells and the header 2"),
        ("run.csv", "lag,lag\n1,1\n", None, "two of its columns have the same name"),
        ("run.csv", "lag\nsoon\n", None, "'soon' in row 1 of 'lag' is not a lag"),
        ("run.csv", "lag\n-1\n", None, "'-1' in row 1 of 'lag' is not a lag"),
        ("run.csv", "lag\ninf\n", None, "'inf' in row 1 of 'lag' is not a lag"),
        ("run.csv", "lag,b\n,1\n", None, "column 'lag' has no value"),
        ("run.csv", "age\n1\n", "lag=aje", "has no column 'aje'; did you mean 'age'?"),
        ("run.csv", "a - age,b - age\n1,2\n", "lag=age", "has 2 columns 'age', of several runs: a - age, b - age"),
        ("run.csv", "\n\n", None, "has no columns: the file is empty"),
        ("run.csv", "age\n1\n", "leg=age", "COLUMNS: 'leg' is not known; did you mean 'lag'?"),
        ("run.csv", "age\n1\n", "count=age", "does not say which column is the lag"),
        ("run.csv", "age\n1\n", "age", "'age' is not lag=NAME"),
        ("run.csv", "age\n1\n", "lag=age,lag=age", "gives lag more than once"),
        ("run.jsonl", "[1]\n", None, "line 1 is not a JSON object"),
        ("run.jsonl", "{\n", None, "cannot be read"),
        ("run.csv", 'lag,note\n1,"open\n2,a\n3,b\n', None, "line 2: unexpected end of data"),
        ("run.csv", 'lag,note\n1,"open\n2,a\n3,"b"\n', None, "line 2: ',' expected after"),
        ("run.csv", f"lag,b\n1,{'x' * 200_000}\n", None, "cannot be read: line 2: field larger than field limit"),
        ("run.jsonl", '{"lag": ' + "[" * 100_000, None, "cannot be read"),
        ("run.jsonl", '{"lag": 1' + "0" * 400 + "}\n", None, "in row 1 of 'lag' is not a lag"),
        ("run.jsonl", '{"lag": 2}\n{"lag": true}\n', None, "'True' in row 2 of 'lag' is not a lag"),
        ("run.txt", "lag\n", None, "give a .csv, a .jsonl, a trace (.parquet) or an event file"),
        ("run.parquet", "lag\n", None, "is not a trace"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_log_that_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, text: str, asked: str | None, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        read_log(log(tmp_path, text, name), asked)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_objects_at_the_limit_of_nesting_are_refused_in_one_line(tmp_path: Path) -> None:
    """Python parses them a little deeper than it can walk them."""
    for depth in range(900, 1000):
        with pytest.raises(UserError, match=r"no column has a name that is known|it is nested too deeply"):
            read_log(log(tmp_path, '{"a": ' * depth + "1" + "}" * depth, "run.jsonl"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    for text, words in ((str(tmp_path / "no.csv"), "is not a file"), (str(tmp_path), "has no event file")):
        with pytest.raises(UserError, match=words):
            read_log(text)
    with pytest.raises(UserError, match="UNIT='hours' is not known"):
        read_log(log(tmp_path, "lag\n1\n"), None, "hours")


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path, name: str) -> None:
    whole = "lag,b\n1,0\n2,0\n3,0\n" if name == "run.csv" else '{"lag": 1}\n{"lag": 2}\n{"lag": 3}\n'
    for text, lags in ((whole[:-1], [1, 2, 3]), (whole[:-3], [1, 2])):
        assert read_log(log(tmp_path, text, name)).lags.tolist() == lags
    with pytest.raises(UserError, match="cannot be read: line"):  # the writer went on after it
        read_log(log(tmp_path, whole[:-3] + "\n", name))


def test_a_quoted_cell_may_hold_lines_and_be_cut_off_at_the_end(tmp_path: Path) -> None:
    text = 'lag,note\n1,"two\nlines"\n2,""\n3,"cut'
    assert read_log(log(tmp_path, text)).lags.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_runs_of_a_table_with_a_column_per_metric_are_no_drift(tmp_path: Path, name: str) -> None:
    rows = [{"run_id": run, "off_policy/mean": lag} for run, lag in (("a", 2), ("b", 4)) for _ in range(40)]
    as_csv = "run_id,off_policy/mean\n" + "".join(f"{run},{lag}\n" for run, lag in (row.values() for row in rows))
    text = as_csv if name == "run.csv" else "\n".join(map(json.dumps, rows))
    found = read_log(log(tmp_path, text, name))
    assert found.to_json()["runs"] == 2 and found.mean == 3.0 and "drift" not in found.note


def test_nan_of_mlflows_table_is_missing(tmp_path: Path) -> None:
    rows = [f"lag,{0.0 if i % 2 else 4.0},r,{i},{bool(i % 2)}" for i in range(40)]
    found = read_log(log(tmp_path, "\n".join(["key,value,run_uuid,step,is_nan", *rows])), "lag=lag")
    assert found.lags.tolist() == [4.0] and found.to_json()["rows"] == 20


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_a_compressed_log_is_read(tmp_path: Path, name: str) -> None:
    text = "\ufefflag,b\n1,0\n2,0\n" if name == "run.csv" else '{"lag": 1}\n{"lag": 2}\n'
    content = gzip.compress(text.encode())
    (file := tmp_path / f"{name}.gz").write_bytes(content)
    assert read_log(str(file)).lags.tolist() == [1, 2]
    for broken in (content[:-9], content[:12], b"lag\n1\n", content[:14] + b"\xff\xff\xff" + content[17:]):
        file.write_bytes(broken)
        with pytest.raises(UserError, match=r"run\..*\.gz cannot be read") as caught:
            read_log(str(file))
        assert "\n" not in str(caught.value)


def test_an_object_that_is_too_long_is_not_taken_for_a_last_line(tmp_path: Path) -> None:
    long = '{"lag": 2, "x": "' + "y" * 2**23 + '"}'
    with pytest.raises(UserError, match="line 2"):
        read_log(log(tmp_path, f'{{"lag": 1}}\n{long}\n{{"lag": 3}}' + " ", "run.jsonl"))


def test_runs_of_a_long_table_are_no_drift(tmp_path: Path) -> None:
    rows = [f"{run},off_policy/mean,{lag}" for run, lag in (("a", 1), ("b", 5)) for _ in range(20)]
    two = read_log(log(tmp_path, "\n".join(["run,metric,value", *rows])))
    assert two.runs == 2 and two.drift is None
    one = read_log(log(tmp_path, "\n".join(["metric,value", *(row[2:] for row in rows)]), "one.csv"))
    assert one.runs == 1 and one.drift is not None


def test_indented_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lags.json"
    path.write_text(json.dumps([{"lag": 1}, {"lag": 4}], indent=2))
    assert read_log(str(path)).lags.tolist() == [1.0, 4.0]
    path.write_text('{"lag": 1}\n{"lag": \n')
    with pytest.raises(UserError, match="cannot be read"):
        read_log(str(path))
