"""Event files with wrong checksums, cells that can be read in two ways, and rows without a value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_lag_log_reader import checksum, field, log, record, scalar

from staleharness.errors import UserError
from staleharness.logs.json_and_event_readers import LONGEST_CHECKED, masked_checksum
from staleharness.logs.lag_log_reader import read_log

TAG = "off_policy/mean"


def events(folder: Path, content: bytes) -> str:
    (folder / "events.out.tfevents.1").write_bytes(content)
    return str(folder / "events.out.tfevents.1")


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def test_checksums_are_those_of_tensorflow() -> None:
    # RFC 3720, B.4: 32 zeros; the mask is that of tensorflow/core/lib/hash/crc32c.h
    crc = 0x8A9136AA
    assert masked_checksum(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    assert checksum(b"123456789") == masked_checksum(b"123456789").to_bytes(4, "little")


@pytest.mark.parametrize("tag", [TAG, "loss"])
@pytest.mark.parametrize(
    "place, part", [(0, "length"), (7, "length"), (9, "length"), (14, "data"), (30, "data"), (-1, "data")]
)
def test_a_flipped_bit_of_an_event_file_is_refused(tmp_path: Path, tag: str, place: int, part: str) -> None:
    good = [scalar(TAG, float(i), step=i) for i in range(20)]
    damaged = flip(scalar(tag, 9.0, step=20), place)
    file = events(tmp_path, b"".join([*good, damaged, *good]))
    with pytest.raises(UserError, match=f"cannot be read: the checksum of the {part} of record 21 is wrong"):
        read_log(file)


@pytest.mark.parametrize("left", [1, 8, 11, 12, 40, -1])
def test_only_a_last_record_cut_off_is_left_out(tmp_path: Path, left: int) -> None:
    whole = b"".join(scalar(TAG, float(i), step=i) for i in range(3))
    assert read_log(events(tmp_path, whole + scalar(TAG, 9.0, step=3)[:left])).lags.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="the checksum of the length of record 4 is wrong"):
        read_log(events(tmp_path, whole + bytes(40)))  # as a crash may leave a file


def test_a_long_record_is_checked_if_it_has_a_scalar(tmp_path: Path) -> None:
    numbers = scalar(TAG, 1.0, step=1) + scalar(TAG, 2.0, step=2)
    picture = record(field(5, field(1, field(4, b"x" * LONGEST_CHECKED))))
    assert read_log(events(tmp_path, numbers + flip(picture, -1))).rows == 2
    with pytest.raises(UserError, match="the checksum of the data of record 3 is wrong"):
        read_log(events(tmp_path, numbers + flip(scalar("x" * LONGEST_CHECKED, 3.0), -1)))


@pytest.mark.parametrize("name, separator", [("a.csv", ";"), ("a.tsv", "\t")])
def test_a_column_with_points_and_commas_is_refused(tmp_path: Path, name: str, separator: str) -> None:
    def table(*cells: str) -> str:
        lines = [separator.join(row) for row in [("step", "lag"), *((str(i), cell) for i, cell in enumerate(cells))]]
        return log(tmp_path, "\n".join(lines) + "\n", name)

    for cells in (("512.5", "1,024", "768.25"), ("1,024", "3", "768.25"), ("2,5", "1.024")):
        with pytest.raises(UserError, match=f"LOG={name}: 'lag' has '.*' in row . and '.*' in row .: .*thousands") as e:
            read_log(table(*cells))
        assert "\n" not in str(e.value)
    assert read_log(table("512.5", "1024", "768.25")).mean == pytest.approx((512.5 + 1024 + 768.25) / 3)
    assert read_log(table("512,5", "1024", "768,25")).mean == pytest.approx((512.5 + 1024 + 768.25) / 3)


def test_an_integer_of_thousands_of_digits_is_no_lag(tmp_path: Path) -> None:
    for cell in ("1" + "0" * 5000, "-" + "9" * 5000):
        with pytest.raises(UserError, match=r"row 1 of 'lag' is not a lag \(a number from 0 to 1e15\)"):
            read_log(log(tmp_path, f'{{"lag": {cell}}}\n', "run.jsonl"))
        assert read_log(log(tmp_path, f'{{"lag": 2, "id": {cell}}}\n', "run.jsonl")).mean == 2


@pytest.mark.parametrize("name", ["RUN.CSV", "Run.Csv", "RUN.JSONL"])
def test_the_suffix_of_a_log_may_be_in_capitals(tmp_path: Path, name: str) -> None:
    text = '{"lag": 1}\n{"lag": 2}\n' if "J" in name else "lag\n1\n2\n"
    assert read_log(log(tmp_path, text, name)).mean == 1.5


@pytest.mark.parametrize(
    "name, text",
    [
        ("empty.csv", "a,lag\n0,1\n0,\n0,nan\n0,2\n"),
        ("rows.jsonl", '{"lag": 1}\n{"loss": 1}\n{"lag": NaN}\n{"lag": 2}\n'),
        ("null.json", json.dumps([{"lag": 1}, {"lag": None}, {"lag": "nan"}, {"lag": 2}])),
        ("cut.csv", "a,lag\n0,1\n0,2\n0,\n0"),
        ("cut.jsonl", '{"lag": 1}\n{"lag": 2}\n{}\n{"la'),
        ("flagged.csv", "key,value,is_nan\nlag,1,False\nlag,0,True\nlag,nan,False\nloss,5,False\nlag,2,False\n"),
        ("counts.csv", "lag,count\n1,1\n,3\n5,\n2,1\n"),
    ],
)
def test_rows_without_a_value_are_counted(tmp_path: Path, name: str, text: str) -> None:
    found = read_log(log(tmp_path, text, name), "lag=lag" if name == "flagged.csv" else None)
    assert (found.mean, found.rows) == (1.5, 2) and "2 of 4 rows have no value" in found.note
    whole = read_log(log(tmp_path, "lag\n1\n2\n"))
    assert "no value" not in whole.note


def test_nan_of_an_event_file_is_counted(tmp_path: Path) -> None:
    numbers = [scalar(TAG, number, step=i) for i, number in enumerate((1.0, float("nan"), 2.0))]
    found = read_log(events(tmp_path, b"".join(numbers)))
    assert (found.mean, found.rows) == (1.5, 2) and "1 of 3 rows have no value" in found.note
