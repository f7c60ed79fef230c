"""Bundles come from others: whatever they say, nothing is written but runs, and what is wrong is one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crash import EVERY, every_crash
from results_helper import write_run

from staleharness.base import files
from staleharness.base.files import digest
from staleharness.errors import UserError
from staleharness.store.pack import pack, unpack
from staleharness.store.packed import FILES, RUNS
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


def called(name: Any, consistent: bool = True) -> Callable[[Rows], object]:
    """A run of another name, in its record, too."""

    def change(rows: Rows) -> None:
        rows[0]["id"] = name
        if consistent:
            rows[0]["record"] = json.dumps(json.loads(rows[0]["record"]) | {"id": name})

    return change


def recorded(**content: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[0].update(record=json.dumps(json.loads(rows[0]["record"]) | content))


FORGED: dict[str, tuple[Callable[[Rows], object], str]] = {
    "a way out": (called("../../escaped"), "that is not a run id"),
    "an absolute path": (called("/tmp/escaped"), "that is not a run id"),
    "a NUL": (called("a\0b"), "that is not a run id"),
    "long": (called("a" * 300), "that is not a run id"),
    "nothing": (called(""), "that is not a run id"),
    "another run's name": (called("0123456789ab", consistent=False), "its record is that of run"),
    "one run twice": (lambda rows: rows.append(rows[0]), "it is there twice"),
    "no spec": (recorded(spec=None), "no proper spec"),
    "settings of before in words": (recorded(before="warmth"), "no proper before"),
    "a score in words": (recorded(scores={"sampled": "high"}), "no proper mean"),
    "a broken record": (lambda rows: rows[0].update(record="{"), "JSONDecodeError"),
    "a record that is a list": (lambda rows: rows[0].update(record="[]"), "run.json is not a record"),
    "a job that is a number": (lambda rows: rows[0].update(job="3"), "its job.json is not a record"),
    "no column of names": (lambda rows: [row.pop("id") for row in rows], "KeyError"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_run_is_one_line_and_nothing_is_written(bundle: Path, tmp_path: Path, how: str) -> None:
    change, said = FORGED[how]
    forge(bundle, change)
    before = sorted(tmp_path.rglob("*"))
    for use in (lambda: unpack(str(bundle), str(tmp_path / "out")), lambda: Store(bundle).read_all()):
        with pytest.raises(UserError, match=said) as error:
            use()
        assert "\n" not in str(error.value) and len(str(error.value)) < 1000
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bundle_of_another_format_is_said(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forge(bundle, recorded(format=9))
    assert len(Store(bundle).read_all()) == 1 and "1 run is of another format than 2" in caplog.text
    assert unpack(str(bundle), str(tmp_path / "out")).startswith("unpacked 1 of 1 runs")


def test_a_run_without_its_rows_is_one_line(bundle: Path, tmp_path: Path) -> None:
    lost = Store(bundle).read_all()[1].id
    forge(
        bundle,
        lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["run"] != lost]),
        "metrics.parquet",
    )
    with pytest.raises(UserError, match=f"metrics.parquet has nothing of run {lost}"):
        unpack(str(bundle), str(tmp_path / "out"))
    assert [run.id for run in Store(tmp_path / "out").read_all()] != [lost]


def test_a_table_that_is_none_is_one_line(bundle: Path) -> None:
    (bundle / RUNS).write_bytes(b"PAR1 and so on")
    reseal(bundle)
    with pytest.raises(UserError, match=r"damaged: runs\.parquet"):
        Store(bundle).read_all()


def test_links_are_not_followed_out_of_a_folder_of_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_run(tmp_path / "results", "spo", 0, phases=2)
    secret = tmp_path / "secret"
    (run.path / "job.json").rename(secret)
    (run.path / "job.json").symlink_to(secret)
    assert Store(tmp_path / "results").read_all() == [] and "job.json is a link" in caplog.text


def test_a_manifest_names_nothing_outside_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = write_run(tmp_path / "results", "spo", 0, phases=2)
    manifest = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps(manifest | {"../../../../etc/passwd": "0" * 64}))
    assert Store(tmp_path / "results").read_all() == [] and "the manifest names" in caplog.text


@pytest.mark.parametrize("step", EVERY)
def test_a_crash_at_any_point_of_packing_leaves_one_bundle_or_the_other(
    bundle: Path, tmp_path: Path, step: int
) -> None:
    write_run(tmp_path / "results", "spo", 2, phases=2)
    (bundle / "NOTES.md").write_text("what I saw")
    shutil.copytree(bundle, tmp_path / "kept")
    seen = set()

    def prepare(n: int) -> None:
        shutil.rmtree(bundle)
        shutil.copytree(tmp_path / "kept", bundle)

    for _ in every_crash(
        lambda n: pack(str(tmp_path / "results"), str(bundle), None), prepare, at_most=900, step=step
    ):
        seen.add(len(Store(bundle).read_all()))
        assert (bundle / "NOTES.md").read_text() == "what I saw"
    assert pack(str(tmp_path / "results"), str(bundle), None).startswith("packed 3 runs")
    assert seen == {2, 3} and [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("step", EVERY)
def test_where_names_cannot_be_exchanged_a_crash_leaves_the_earlier_bundle_to_be_found_by_the_next_call(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    write_run(tmp_path / "results", "spo", 2, phases=2)
    shutil.copytree(bundle, tmp_path / "kept")

    def prepare(n: int) -> None:
        shutil.rmtree(bundle, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", bundle)

    for _ in every_crash(
        lambda n: pack(str(tmp_path / "results"), str(bundle), None), prepare, at_most=900, step=step
    ):
        with pytest.raises(UserError, match="would be lost"):  # whichever it is, its runs are known
            pack(str(write_run(tmp_path / "few", "vaco", 0, phases=2).path.parents[1]), str(bundle), None)
        assert len(Store(bundle).read_all()) in (2, 3)


@pytest.mark.parametrize("step", EVERY)
def test_a_crash_at_any_point_of_unpacking_is_repaired_by_the_next_call(
    bundle: Path, tmp_path: Path, step: int
) -> None:
    for n in every_crash(
        lambda n: unpack(str(bundle), str(tmp_path / str(n))), at_most=900, step=11 * step if step > 1 else 1
    ):
        out = Store(tmp_path / str(n))
        if (out.root / "runs").is_dir():
            assert len(out.read_all()) == len(list((out.root / "runs").iterdir()))  # whole, or absent
        unpack(str(bundle), str(out.root))
        assert len(out.read_all()) == 2
        assert not [p for p in os.listdir(out.root) if p.startswith(".") and p != ".lock"]
