"""Logs are read piece by piece: the same lags, in memory that does not grow with the file."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_lag_log_reader import scalar

from staleharness import trace
from staleharness.errors import UserError
from staleharness.logs import json_and_event_readers, log_cells, log_statistics, log_table, logged_values
from staleharness.logs.lag_log_reader import read_log
from staleharness.logs.log_statistics import LagHistogram

TAG = "off_policy_level/all/mean"


def draw(rows: int) -> list[float]:
    """Lags, all of them distinct."""
    generator = random.Random(3)
    return [0.1 + generator.random() * 9 for _ in range(rows)]


def csv_text(folder: Path, rows: int) -> Path:
    lines = "".join(f"{i},{lag!r},text\n" for i, lag in enumerate(draw(rows)))
    (folder / f"{rows}.csv").write_text(f"step,{TAG},note\n{lines}")
    return folder / f"{rows}.csv"


def json_lines(folder: Path, rows: int) -> Path:
    lines = (json.dumps({"step": i, "off_policy_level": {"all": {"mean": x}}}) for i, x in enumerate(draw(rows)))
    (folder / f"{rows}.jsonl").write_text("\n".join(lines))
    return folder / f"{rows}.jsonl"


def json_list(folder: Path, rows: int) -> Path:
    (folder / f"{rows}.json").write_text(json.dumps([{TAG: lag} for lag in draw(rows)]))
    return folder / f"{rows}.json"


def events(folder: Path, rows: int) -> Path:
    path = folder / f"events.out.tfevents.{rows}"
    path.write_bytes(b"".join(scalar(TAG, lag, step=i) + scalar("loss", 1.0) for i, lag in enumerate(draw(rows))))
    return path


def parquet(folder: Path, rows: int) -> Path:
    import pandas as pd

    phases = np.arange(rows) // 2
    table = pd.DataFrame(
        {
            "row": range(rows),
            "group": range(rows),
            "actor": 0,
            "nth": range(rows),
            "fate": "trained",
            "phase": phases,
            "place": 0,
            "versions": [[max(0, p - 2), p] for p in phases],
            "ends": [[3, 4]] * rows,
            "began_at": 0.0,
            "made_at": 1.0,
            "queued_at": 1.0,
            "trained_at": 2.0,
            "finished_in": phases,
            "left_in": phases,
        }
    )
    path = folder / f"{rows}.parquet"
    path.write_bytes(trace.trace_bytes(table, {"source": "a test"}))
    return path


FORMS = [csv_text, json_lines, json_list, events, parquet]


def peak(path: Path) -> int:
    """Bytes of Python's and NumPy's own at most while a log is read."""
    tracemalloc.start()
    try:
        read_log(str(path))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cells, "PIECE", 200)
    monkeypatch.setattr(json_and_event_readers, "CHARACTERS", 2000)
    monkeypatch.setattr(log_statistics, "MAX_BINS", 400)
    monkeypatch.setattr(logged_values, "MAX_SORTED", 400)
    monkeypatch.setattr(trace.stream_trace, "__defaults__", (200,))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.long
def test_ten_times_the_rows_take_no_more_memory(tmp_path: Path, form: Callable[[Path, int], Path]) -> None:
    read_log(str(form(tmp_path, 10)))  # modules and caches are there
    # of a trace the phases without a hole are remembered, 8 bytes each, and two copies of them while they are joined
    assert peak(form(tmp_path, 8000)) < 1.5 * peak(form(tmp_path, 800)) + 3 * 8 * 4000 * (form is parquet)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.long
def test_pieces_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[[Path, int], Path]
) -> None:
    path = form(tmp_path, 600)
    whole = read_log(str(path))
    monkeypatch.setattr(log_cells, "PIECE", 7)
    monkeypatch.setattr(trace.stream_trace, "__defaults__", (7,))
    for piece in (1, 11, 64):
        monkeypatch.setattr(json_and_event_readers, "CHARACTERS", piece)
        pieces = read_log(str(path))
        assert pieces.to_json() == whole.to_json()
        assert pieces.lags.tolist() == whole.lags.tolist()
        assert pieces.weights.tolist() == whole.weights.tolist()


def test_a_log_of_few_lags_is_exact(tmp_path: Path) -> None:
    path = csv_text(tmp_path, 3000)
    found, lags = read_log(str(path)), np.sort(draw(3000))
    assert found.lags.tolist() == lags.tolist() and found.rows == 3000
    assert found.quantile(0.5) == lags[1499] and found.mean == pytest.approx(lags.mean(), rel=1e-14)


def test_many_distinct_lags_have_an_exact_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_statistics, "MAX_BINS", 100)
    monkeypatch.setattr(log_cells, "PIECE", 64)
    lags = np.sort(draw(3000))
    found = read_log(str(csv_text(tmp_path, 3000)))
    assert len(found.lags) <= 100 and found.rows == 3000 == found.weights.sum()
    assert found.mean == pytest.approx(lags.mean(), rel=1e-12)
    assert found.note.endswith("of its many distinct lags, quantiles are within 12% of their value")
    for quantile, place in ((0.5, 1499), (0.95, 2849), (1.0, 2999)):
        assert abs(found.quantile(quantile) / lags[place] - 1) <= 1 / 8


def test_weights_are_added_per_lag_without_zeros() -> None:
    found = LagHistogram()
    found.add(np.array([3.0, -0.0, 9.0]), np.array([1.0, 2.0, 0.0]))
    found.add(np.array([0.0, 3.0, np.nan]), np.array([5.0, np.nan, 4.0]))
    assert (found.lags.tolist(), found.weights.tolist(), found.rows) == ([0.0, 3.0], [7.0, 1.0], 4)


@pytest.mark.parametrize(
    "text, words",
    [
        ('{"lag": 1}\n{"lag": 2}\n{"lag": \n', "line 3: Expecting value"),
        ('{"lag": 1}\n{"lag": 2}\n{"lag": 3\n\n', "line 3: Expecting ',' delimiter"),
        ('{"lag": 1}\n{"lag": 2\n{"lag": 3}\n', "line 2: Expecting ',' delimiter"),
        ('{"lag": 1}\n{"lag\n', "line 2: Invalid control character\n"),
        ('{"lag": 1}\n\n{"lag" 2}\n' + '{"lag": 3}\n' * 50, "line 3: Expecting ':' delimiter"),
        ('{"lag": 1}\n7\n', "line 2 is not a JSON object"),
        ('[{"lag": 1}\n {"lag": 2}]', "line 2: no comma between two objects"),
        ('[{"lag": 1},\n]', "line 2: Expecting value"),
        ('[{"lag": 1}\n\n', "line 1: the list does not end"),
        ('{"lag": 1}]', "line 1: Expecting value"),
    ],
)
@pytest.mark.parametrize("piece", [3, 2**20])
def test_invalid_json_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str, piece: int
) -> None:
    monkeypatch.setattr(json_and_event_readers, "CHARACTERS", piece)
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(UserError, match="cannot be read") as caught:
        read_log(str(tmp_path / "run.jsonl"))
    assert words in f"{caught.value}\n"


@pytest.mark.usefixtures("small_pieces")
def test_a_bad_row_far_down_is_named(tmp_path: Path) -> None:
    path = csv_text(tmp_path, 3000)
    with path.open("a") as stream:
        stream.write("3000,soon,text\n")
    with pytest.raises(UserError, match=f"'soon' in row 3001 of '{TAG}' is not a lag"):
        read_log(str(path))
    path.write_text(path.read_text().replace("3000,soon,text", "3000,1"))
    with pytest.raises(UserError, match="line 3002 has 2 cells and the header 3"):
        read_log(str(path))


def test_unbounded_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_table, "LONGEST", 100)
    monkeypatch.setattr(json_and_event_readers, "LONGEST_OBJECT", 100)
    monkeypatch.setattr(json_and_event_readers, "CHARACTERS", 50)
    monkeypatch.setattr(json_and_event_readers, "LONGEST_RECORD", 100)
    monkeypatch.setattr(log_table, "MAX_COLUMNS", 5)
    (tmp_path / "a.csv").write_text("lag,b\n1," + "x" * 100 + "\n")
    (tmp_path / "a.jsonl").write_text('{"lag": 1}\n{"lag": 2, "b": "' + "x" * 1000 + '"}\n')
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({f"n{i}": 1}) for i in range(6)))
    (tmp_path / "events.out.tfevents.1").write_bytes(scalar("lag", 1.0) + scalar("b" * 100, 1.0))
    for name, words in (
        ("a.csv", "line 2 has 100 characters or more"),
        ("a.jsonl", "line 2: Unterminated string"),
        ("b.jsonl", "more than 5 columns"),
        ("events.out.tfevents.1", "record 2 has 1"),
    ):
        with pytest.raises(UserError, match=words):
            read_log(str(tmp_path / name))


@pytest.mark.parametrize("cell", ["1e308", "1e16"])
def test_a_number_that_no_sum_can_hold_is_no_lag(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"lag\n1\n{cell}\n")
    with pytest.raises(UserError, match=f"'{cell}' in row 2 of 'lag' is not a lag"):
        read_log(str(tmp_path / "a.csv"))


def test_two_tags_of_an_event_file_are_paired_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    values = [scalar("age", 1.0), scalar("age", 2.0), scalar("n", 3.0), scalar("n", 1.0)]
    for order in itertools.permutations(range(4)):
        if order.index(0) < order.index(1) and order.index(2) < order.index(3):
            path.write_bytes(b"".join(values[i] for i in order))
            assert read_log(str(path), "lag=age,count=n").mean == 1.25
    path.write_bytes(b"".join(values[:3]))
    with pytest.raises(UserError, match="'age' has 1 values more than the others"):
        read_log(str(path), "lag=age,count=n")


def test_a_hole_in_a_trace_is_found_across_pieces(tmp_path: Path) -> None:
    import pandas as pd

    path = parquet(tmp_path, 40)
    rows: pd.DataFrame = trace.read_trace(str(path))[1]
    path.write_bytes(trace.trace_bytes(rows[rows["phase"] != 11], {"source": "a test"}))
    _, pieces = trace.stream_trace(str(path), 8)
    with pytest.raises(UserError, match="no row was trained in phase 11"):
        list(pieces)
