"""Bundles come from others: whatever they say, nothing is written but runs, and what is wrong is one line."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Cli
from crash import EVERY, every_crash
from results_helper import write_run

from staleharness.base import files
from staleharness.base.files import digest
from staleharness.errors import UserError
from staleharness.statistics.results import load
from staleharness.store.bundle_reader import FILES, RUNS
from staleharness.store.bundle_writer import pack, unpack
from staleharness.store.store import Store

Rows = list[dict[str, Any]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    for seed in range(2):
        write_run(tmp_path / "results", "spo", seed, phases=2)
    pack(str(tmp_path / "results"), str(tmp_path / "bundle"), None)
    return tmp_path / "bundle"


def forge(bundle: Path, change: Callable[[Rows], object], file: str = RUNS) -> None:
    """Change the rows of a table, and the digests with them."""
    rows = pq.read_table(bundle / file).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows), bundle / file)
    reseal(bundle)


def reseal(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"] = {name: digest(bundle / name) for name in FILES}
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def with_id(name: Any, consistent: bool = True) -> Callable[[Rows], object]:
    """A run of another name, in its record, too."""

    def change(rows: Rows) -> None:
        rows[0]["id"] = name
        if consistent:
            rows[0]["record"] = json.dumps(json.loads(rows[0]["record"]) | {"id": name})

    return change


def drop(rows: Rows, entry: str, name: str) -> None:
    record = json.loads(rows[0]["record"])
    del record[entry][name]
    rows[0]["record"] = json.dumps(record)


def with_record(**content: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[0].update(record=json.dumps(json.loads(rows[0]["record"]) | content))


def alter(path: str, value: Any = None) -> Callable[[Rows], object]:
    """The entry at a dotted path of the record set to a value."""

    def change(rows: Rows) -> None:
        record = json.loads(rows[0]["record"])
        *parents, last = path.split(".")
        functools.reduce(lambda content, name: content[name], parents, record)[last] = value
        rows[0]["record"] = json.dumps(record)

    return change


FORGED: dict[str, tuple[Callable[[Rows], object], str]] = {
    "a way out": (with_id("../../escaped"), "its name is not a run id"),
    "an absolute path": (with_id("/tmp/escaped"), "its name is not a run id"),
    "a NUL": (with_id("a\0b"), "its name is not a run id"),
    "long": (with_id("a" * 300), "its name is not a run id"),
    "nothing": (with_id(""), "its name is not a run id"),
    "another run's name": (with_id("0123456789ab", consistent=False), "its record is that of run"),
    "one run twice": (lambda rows: rows.append(rows[0]), "it is there twice"),
    "no spec": (alter("spec"), "spec: Expected `object`, got `null`"),
    "settings of before in words": (alter("before", "warmth"), "run.json.before: Expected `object`"),
    "a score in words": (alter("scores", {"sampled": "high"}), "run.json.scores[...]: Expected `object`"),
    "an extra score": (
        alter("scores.x", {"mean": 1.0, "returns": [1.0]}),
        "run.json.scores[...]: Object missing required field `std`",
    ),
    "a huge capacity": (alter("spec.capacity", 10**30), "spec.capacity: Expected `int` <= 1000000"),
    "another capacity than its job's": (alter("spec.capacity", 4), "run.json: capacity is not that of job.json"),
    "a setting that its job lacks": (alter("spec.more", 1), "run.json: more is not that of job.json"),
    "another label than its job's": (alter("label", "vaco"), "run.json: label is not that of job.json"),
    "a lag beyond the buffer": (
        alter("lag_histogram", {"8": 1}),
        "run.json.lag_histogram has a lag of 8 phases, and capacity=8",
    ),
    "no task": (alter("task", {}), "run.json.task: Object missing required field `kind`"),
    "an unknown task": (alter("task", {"kind": "../x"}), "run.json.task: Object missing required field"),
    "a list of hyper-parameters": (alter("spec.hyper", [1]), "spec.hyper: Expected `object`, got `array`"),
    "a long name": (alter("spec.env", "x" * 5_000), "spec.env: Expected `str` of length <= 150"),
    "a lag in words": (alter("lag_histogram", {"x": 1}), "run.json.lag_histogram: Expected `int`"),
    "not a number": (alter("summary.lag_mean", float("nan")), "JSON is malformed"),
    "beyond a float": (alter("summary.lag_mean", 1e300), "run.json.summary[...]: Expected `float` <= 1e+40"),
    "no score by its task": (lambda rows: drop(rows, "scores", "sampled"), "missing required field `sampled`"),
    "more phases than rows": (alter("phases", 3), "metrics.parquet does not hold its 3 phases in one piece"),
    "half a surrogate pair": (alter("label", "\ud800"), "DecodeError"),
    "a control character": (alter("label", "\x1b[31mred"), "has a control character in it"),
    "nested deeply": (
        lambda rows: rows[0].update(record='{"x":' * 9_999 + "1" + "}" * 9_999),
        "it is nested too deeply",
    ),
    "an unknown entry, nested": (alter("more", {"a": {"b": {"c": [1]}}}), "others[...][...]"),
    "a broken record": (lambda rows: rows[0].update(record="{"), "DecodeError"),
    "a record that is a list": (lambda rows: rows[0].update(record="[]"), "run.json is not a record"),
    "a job that is a number": (lambda rows: rows[0].update(job="3"), "job.json: Expected `object`, got `int`"),
    "a job without a spec": (lambda rows: rows[0].update(job='{"label": "x"}'), "job.json: Object missing"),
}


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.long
def test_a_forged_run_is_one_line_and_the_others_count(
    bundle: Path, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    change, problem = FORGED[how]
    good = Store(bundle).read_all()[1].id
    forge(bundle, change)
    before = set(tmp_path.rglob("*"))
    assert [run.id for run in Store(bundle).read_all()] == [good]
    (line,) = caplog.messages
    assert problem in line and "\n" not in line and line.isprintable() and len(line) < 500
    assert set(tmp_path.rglob("*")) == before
    unpack(str(bundle), str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == [good]
    assert [path.name for path in tmp_path.iterdir() if path not in before] == ["out"]


def test_runs_that_claim_one_place_do_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """One of three runs is forged, job and all, into the place of another: nothing says which of the two is true."""
    for capacity in (1, 4, 8):
        write_run(tmp_path / "results", "spo", 0, capacity=capacity, phases=2)
    pack(str(tmp_path / "results"), str(tmp_path / "bundle"), None)

    def change(rows: Rows) -> None:
        row = next(row for row in rows if json.loads(row["job"])["spec"]["capacity"] == 4)
        for file in ("record", "job"):
            content = json.loads(row[file])
            content["spec"]["capacity"] = 8
            row[file] = json.dumps(content)

    forge(tmp_path / "bundle", change)
    two = [run.id for run in Store(tmp_path / "bundle").read_all() if run.spec["capacity"] == 8]
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("report", "--out", "bundle", "--json")
    assert code == 0 and [row["capacity"] for row in json.loads(out)["table"]] == [1]
    assert err.count("left out: runs") == 1 and all(run in err for run in two)
    assert load("bundle").table(reps=50, engine="quick").frame()["capacity"].to_list() == [1]


def test_a_damaged_run_of_a_bundle_is_not_lost_to_the_next_one(bundle: Path, tmp_path: Path) -> None:
    forge(bundle, alter("phases", 3))
    (lost, *_) = sorted(path.name for path in (tmp_path / "results" / "runs").iterdir())
    shutil.rmtree(tmp_path / "results" / "runs" / lost)
    with pytest.raises(UserError, match="holds 1 run that"):
        pack(str(tmp_path / "results"), str(bundle), None)


def test_scattered_rows_of_a_run_are_not_read_as_others(bundle: Path, caplog: pytest.LogCaptureFixture) -> None:
    forge(bundle, lambda rows: rows.append(rows.pop(0)), "metrics.parquet")
    assert len(Store(bundle).read_all()) == 1
    assert "metrics.parquet does not hold its 2 phases in one piece" in caplog.text


def test_a_table_without_names_of_runs_is_one_line(bundle: Path) -> None:
    forge(bundle, lambda rows: [row.pop("id") for row in rows])
    with pytest.raises(UserError, match=r"damaged: runs.parquet: KeyError") as error:
        Store(bundle).read_all()
    assert "\n" not in str(error.value)


def test_a_bundle_of_another_format_is_said(bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forge(bundle, with_record(format=9))
    assert len(Store(bundle).read_all()) == 1 and "1 run is of another format than 2" in caplog.text
    assert unpack(str(bundle), str(tmp_path / "out")).startswith("unpacked 1 of 1 runs")


def test_a_run_without_its_rows_is_one_line(bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, lost = (run.id for run in Store(bundle).read_all())
    forge(bundle, lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["run"] != lost]), "metrics.parquet")
    unpack(str(bundle), str(tmp_path / "out"))
    assert [run.id for run in Store(tmp_path / "out").read_all()] == [good]
    assert f"run {lost} is damaged and does not count (metrics.parquet does not hold its 2" in caplog.text


def test_a_table_that_is_none_is_one_line(bundle: Path) -> None:
    (bundle / RUNS).write_bytes(b"PAR1 and so on")
    reseal(bundle)
    with pytest.raises(UserError, match=r"damaged: runs\.parquet"):
        Store(bundle).read_all()


def test_links_are_not_followed_out_of_a_folder_of_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = write_run(tmp_path / "results", "spo", 0, phases=2)
    secret = tmp_path / "secret"
    (run.path / "job.json").rename(secret)
    (run.path / "job.json").symlink_to(secret)
    assert Store(tmp_path / "results").read_all() == [] and "job.json is a symbolic link" in caplog.text


def test_a_manifest_names_nothing_outside_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = write_run(tmp_path / "results", "spo", 0, phases=2)
    manifest = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps(manifest | {"../../../../etc/passwd": "0" * 64}))
    assert Store(tmp_path / "results").read_all() == [] and "the manifest names" in caplog.text


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.long
def test_a_crash_while_packing_leaves_one_whole_bundle(bundle: Path, tmp_path: Path, step: int) -> None:
    write_run(tmp_path / "results", "spo", 2, phases=2)
    (bundle / "NOTES.md").write_text("what I saw")
    shutil.copytree(bundle, tmp_path / "kept")
    seen = set()

    def prepare(n: int) -> None:
        shutil.rmtree(bundle)
        shutil.copytree(tmp_path / "kept", bundle)

    for _ in every_crash(lambda n: pack(str(tmp_path / "results"), str(bundle), None), prepare, at_most=900, step=step):
        seen.add(len(Store(bundle).read_all()))
        assert (bundle / "NOTES.md").read_text() == "what I saw"
    assert pack(str(tmp_path / "results"), str(bundle), None).startswith("packed 3 runs")
    assert seen == {2, 3} and [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.long
def test_without_renameat2_the_next_call_finds_the_old_bundle(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    few = str(write_run(tmp_path / "few", "vaco", 0, phases=2).path.parents[1])
    write_run(tmp_path / "results", "spo", 2, phases=2)
    shutil.copytree(bundle, tmp_path / "kept")

    def prepare(n: int) -> None:
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", bundle)

    for _ in every_crash(lambda n: pack(str(tmp_path / "results"), str(bundle), None), prepare, at_most=900, step=step):
        with pytest.raises(UserError, match="would be lost"):  # whichever it is, its runs are known
            pack(few, str(bundle), None)
        assert len(Store(bundle).read_all()) in (2, 3)


@pytest.mark.parametrize("step", EVERY)
def test_a_crash_while_unpacking_is_repaired_by_the_next_call(bundle: Path, tmp_path: Path, step: int) -> None:
    for n in every_crash(
        lambda n: unpack(str(bundle), str(tmp_path / str(n))), at_most=900, step=11 * step if step > 1 else 1
    ):
        out = Store(tmp_path / str(n))
        if (out.root / "runs").is_dir():
            assert len(out.read_all()) == len(list((out.root / "runs").iterdir()))  # whole, or absent
        unpack(str(bundle), str(out.root))
        assert len(out.read_all()) == 2
        assert not [p for p in os.listdir(out.root) if p.startswith(".") and p != ".lock"]
