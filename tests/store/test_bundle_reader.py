"""Columns of numbers as pyarrow has them, without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from staleharness.store.bundle_reader import numeric_columns

NAN = float("nan")


@pytest.mark.parametrize(
    "kind, cells, right",
    [
        (pa.float64(), [1.5, None, -0.25, NAN], [1.5, NAN, -0.25, NAN]),
        (pa.float32(), [1.5, None, 3.0], [1.5, NAN, 3.0]),
        (pa.int64(), [1, None, 2**40], [1.0, NAN, 2.0**40]),
        (pa.uint8(), [1, 255, 3], [1.0, 255.0, 3.0]),
        (pa.bool_(), [True, None, False, True] * 5, [1.0, NAN, 0.0, 1.0] * 5),
    ],
)
def test_numbers_are_what_pyarrow_makes_of_them(kind: pa.DataType, cells: list[object], right: list[float]) -> None:
    whole = pa.table({"x": pa.chunked_array([pa.array(cells[:1], kind), pa.array(cells[1:], kind)])})
    part = numeric_columns(whole.slice(1)).get("x", np.full(len(cells) - 1, NAN))
    np.testing.assert_array_equal(part, right[1:])
    np.testing.assert_array_equal(numeric_columns(whole)["x"], right)
    np.testing.assert_array_equal(numeric_columns(whole)["x"], whole["x"].to_numpy().astype(np.float64))


def test_columns_without_a_number_are_left_out() -> None:
    table = pa.table({"none": pa.array([None, None], pa.float64()), "nan": [NAN, NAN], "text": ["a", "b"], "x": [1, 2]})
    assert list(numeric_columns(table)) == ["x"]


def test_reading_numbers_loads_no_pandas(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, None], "n": [1, 2], "b": [True, None]}), tmp_path / "t.parquet")
    code = (
        "import sys; from pathlib import Path\n"
        "from staleharness.store.bundle_reader import arrow_table, numeric_columns as n\n"
        f"print(sorted(n(arrow_table(Path({str(tmp_path / 't.parquet')!r})))), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "['b', 'n', 'x'] False\n"
