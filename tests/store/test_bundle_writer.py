"""Packed results hold what the directories held, can be read like them, and turned back into them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import Cli
from results_helper import write_run

from staleharness.base import reference_results
from staleharness.base.files import remove_folder, write_json
from staleharness.errors import UserError
from staleharness.statistics.aggregate import table
from staleharness.store import bundle_reader, bundle_writer, study_runs
from staleharness.store.bundle_reader import FILES
from staleharness.store.bundle_writer import pack, unpack
from staleharness.store.locks_and_leases import MARKER, hold_bundle
from staleharness.store.store import Store
from staleharness.store.stored_run import write_manifest

STUDY = """
question = "Which?"
env = "Hopper"
algorithm = ["vaco", "spo"]
capacity = [1, 8]
seeds = 2
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for label in ("vaco", "spo", "impala"):
        for capacity in (1, 8):
            for seed in range(2):
                extra = {"algorithm/filter_active": [0.5] * 12, "counted": list(range(12))} if label == "vaco" else {}
                write_run(
                    tmp_path / "results", label, seed, capacity=capacity, sampled=100.0 + seed + capacity, columns=extra
                )
    return tmp_path / "results"


def test_every_number_of_every_run_survives_packing_and_unpacking(results: Path, tmp_path: Path) -> None:
    assert pack(str(results), str(tmp_path / "bundle"), None).startswith("packed 12 runs")
    assert unpack(str(tmp_path / "bundle"), str(tmp_path / "again")).startswith("unpacked 12 of 12 runs")
    loose, packed, again = (Store(f).read_all() for f in (results, tmp_path / "bundle", tmp_path / "again"))
    assert len(loose) == len(packed) == len(again) == 12
    for one, two, three in zip(loose, packed, again, strict=True):
        assert one.record == two.record == three.record
        assert one.job() == two.job() == three.job()
        assert one.seal == two.seal
        for name in ("metrics", "timing"):
            first = one.table(name)
            for other in (two, three):
                pd.testing.assert_frame_equal(first[sorted(first.columns)], other.table(name), check_like=False)
    vaco = next(run for run in packed if run.record["label"] == "vaco")
    assert vaco.metrics()["counted"].dtype == "int64"  # though other runs have no such column
    spo = next(run for run in packed if run.record["label"] == "spo")
    assert "counted" not in spo.metrics()


def test_a_table_of_packed_results_is_that_of_the_directories(results: Path, tmp_path: Path) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    tables = []
    for folder in (results, tmp_path / "bundle"):
        runs = Store(folder).read_all()
        tables.append((table(runs, []).to_json(), [run.metrics()["tv_data"].sum() for run in runs]))
    assert tables[0] == tables[1]


def test_a_study_selects_the_runs_to_pack_and_is_packed_too(results: Path, tmp_path: Path) -> None:
    study = tmp_path / "which.toml"
    study.write_text(STUDY.replace("seeds = 2", "seeds = 3"))
    assert pack(str(results), str(tmp_path / "bundle"), str(study)).startswith("packed 8 of 12 runs")
    assert (tmp_path / "bundle" / "study.toml").read_text() == study.read_text()
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert manifest["runs"] == 8
    assert manifest["dates"] == ["2026-11-20"]
    assert manifest["command"] == f"staleharness sweep --spec {study}"
    assert manifest["fingerprints"][0]["torch"] == "2.13.0"


def test_packing_again_without_a_study_keeps_that_of_the_bundle(results: Path, tmp_path: Path) -> None:
    study, bundle = tmp_path / "which.toml", tmp_path / "bundle"
    study.write_text(STUDY)
    pack(str(results), str(bundle), str(study))
    assert pack(str(results), str(bundle), None).startswith("packed 12 runs")
    assert (bundle / "study.toml").read_text() == STUDY
    pack(str(results), str(tmp_path / "other"), str(study))
    study.write_text(STUDY.replace("Which?", "Which one?"))
    pack(str(results), str(tmp_path / "other"), str(study))
    assert (tmp_path / "other" / "study.toml").read_text() == study.read_text(), "a study given again replaces it"


@pytest.mark.parametrize(
    ("folder", "path"), [("experiments", "experiments/which one.toml"), ("elsewhere", "elsewhere/which one.toml")]
)
def test_the_command_names_the_study_as_typed_and_stays_with_it(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bundle_writer, "builtin_folder", lambda kind: tmp_path / kind)
    (tmp_path / folder).mkdir()
    (tmp_path / path).write_text(STUDY)
    given = str(tmp_path / path) if folder == "experiments" else path
    pack(str(results), "bundle", given)
    assert manifest_of(tmp_path / "bundle")["command"] == f"staleharness sweep --spec '{path}'"
    pack(str(results), "bundle", None, command_of=lambda runs: "other")
    assert manifest_of(tmp_path / "bundle")["command"] == f"staleharness sweep --spec '{path}'"
    pack(str(results), "without", None, command_of=lambda runs: "other")
    assert manifest_of(tmp_path / "without")["command"] == "other"


def manifest_of(bundle: Path) -> dict[str, Any]:
    return dict(json.loads((bundle / "manifest.json").read_text()))


def test_runs_that_the_study_does_not_ask_for_are_said_to_be_so(results: Path, tmp_path: Path) -> None:
    (tmp_path / "which.toml").write_text(STUDY)
    pack(str(results), str(tmp_path / "bundle"), None)
    said = "holds 4 runs that the study does not ask for and that would be lost; give another folder$"
    with pytest.raises(UserError, match=said):
        pack(str(results), str(tmp_path / "bundle"), str(tmp_path / "which.toml"))


def test_a_file_of_a_bundle_that_may_not_be_read_is_named(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)

    def refuse(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(bundle_reader, "digest", refuse)
    with pytest.raises(UserError, match=f"^{tmp_path}/bundle/{FILES[0]} cannot be read: Permission denied$"):
        Store(tmp_path / "bundle").read_all()


def test_two_calls_at_a_time_do_not_pack_into_one_folder(results: Path, tmp_path: Path, cli: Cli) -> None:
    words = "pack", str(results), str(tmp_path / "new" / "bundle")
    with hold_bundle(tmp_path / "new" / "bundle"):
        code, out, err = cli(*words)
    assert (code, out) == (2, "") and "another call of pack is writing" in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()
    assert cli(*words)[0] == 0 and (tmp_path / "new" / "bundle" / "manifest.json").is_file()


def test_packing_again_adds_runs_and_never_loses_any(results: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "bundle")
    pack(str(results), target, None)
    write_run(results, "spo", 7)
    assert pack(str(results), target, None).startswith("packed 13 runs")
    assert len(Store(target).read_all()) == 13
    write_run(tmp_path / "few", "spo", 0)
    before = {name: (tmp_path / "bundle" / name).read_bytes() for name in FILES}
    with pytest.raises(UserError, match=r"holds 12 runs that .* lacks and that would be lost"):
        pack(str(tmp_path / "few"), target, None)
    assert before == {name: (tmp_path / "bundle" / name).read_bytes() for name in FILES}


def test_packing_again_leaves_other_files_wherever_they_are(results: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    pack(str(results), str(bundle), None)
    notes = [bundle / "notes.txt", *(bundle / "analysis" / name for name in ("study.toml", "traces", *FILES))]
    (bundle / "analysis").mkdir()
    for path in notes:
        path.write_text("mine")
    write_run(results, "ppo_clip", 0)
    pack(str(results), str(bundle), None)
    assert [path.read_text() for path in notes] == ["mine"] * len(notes)


def test_earlier_ids_survive_packing_again(results: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "bundle" / "manifest.json"
    pack(str(results), str(tmp_path / "bundle"), None)
    assert "renamed" not in json.loads(manifest.read_text())
    told = [{"ids": {"0123456789ab": "ba9876543210"}}]
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "renamed": told}))
    write_run(results, "spo", 7)
    pack(str(results), str(tmp_path / "bundle"), None)
    assert json.loads(manifest.read_text())["renamed"] == told


def test_a_bundle_grows_by_parts_and_rewrites_no_table(results: Path, tmp_path: Path) -> None:
    bundle, sources = tmp_path / "bundle", tmp_path / "sources"
    pack(str(results), str(bundle), None)
    unpack(str(bundle), str(sources))
    for seed in (7, 8):
        before = {path.name: path.read_bytes() for path in bundle.glob("*.parquet")}
        write_run(sources, "vaco", seed)
        pack(str(sources), str(bundle), None)
        after = {path.name: path.read_bytes() for path in bundle.glob("*.parquet")}
        assert before.items() <= after.items(), "the tables are as they were"
        assert set(after) - set(before) == {f"{name}-{seed - 6}.parquet" for name in ("runs", "metrics", "timing")}
    loose, packed = Store(sources).read_all(), Store(bundle).read_all()
    for one, other in zip(loose, packed, strict=True):
        assert (one.record, one.job()) == (other.record, other.job())
        for name in ("metrics", "timing"):
            pd.testing.assert_frame_equal(one.table(name), other.table(name)[list(one.table(name))])
    assert pack(str(sources), str(bundle), None).startswith("packed 14 runs")
    assert after == {path.name: path.read_bytes() for path in bundle.glob("*.parquet")}, "nothing is new"
    (bundle / "metrics-2.parquet").unlink()
    with pytest.raises(UserError, match=r"metrics-2\.parquet|manifest\.json"):
        Store(bundle).read_all()


def test_a_bundle_with_a_run_that_changed_is_written_anew(results: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    pack(str(results), str(bundle), None)
    write_run(results, "spo", 7)
    pack(str(results), str(bundle), None)
    (run,) = (run for run in Store(results).read_all() if run.spec["seed"] == 7)
    write_json(run.path / "run.json", run.record | {"date": "2026-01-02"})
    write_manifest(run.path)
    assert pack(str(results), str(bundle), None).startswith("packed 13 runs")
    assert sorted(path.name for path in bundle.glob("*.parquet")) == sorted(FILES)
    assert [run.record for run in Store(bundle).read_all()] == [run.record for run in Store(results).read_all()]


def test_other_numbers_of_a_run_replace_none_in_a_bundle(results: Path, tmp_path: Path, cli: Cli) -> None:
    bundle, other = tmp_path / "bundle", tmp_path / "other"
    pack(str(results), str(bundle), None)
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    shutil.copytree(results, other)
    run = next(run for run in Store(other).read_all() if (run.record["label"], run.seed) == ("spo", 0))
    shutil.rmtree(run.path)
    write_run(other, "spo", 0, capacity=run.spec["capacity"], sampled=1.0)
    code, _, err = cli("pack", str(other), str(bundle))
    assert code == 2 and f"holds other numbers of {run.id}, which would be lost; give another folder" in err
    assert before == {path.name: path.read_bytes() for path in bundle.iterdir()}
    code, out, err = cli("unpack", str(bundle), str(other))
    assert (code, out[:23]) == (0, "unpacked 0 of 12 runs i") and f"keeps its own numbers of {run.id}; those of" in err


def test_packing_the_same_runs_gives_the_same_bytes(results: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack(str(results), str(tmp_path / name / "bundle"), None)
    for name in (*FILES, "manifest.json", "staleharness.json"):
        one, two = (tmp_path / folder / "bundle" / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_damaged_bundle_is_named_in_one_line(results: Path, tmp_path: Path, name: str) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    whole = (tmp_path / "bundle" / name).read_bytes()
    (tmp_path / "bundle" / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=f"are damaged: {name}"):
        Store(tmp_path / "bundle").read_all()
    (tmp_path / "bundle" / name).unlink()
    if name != FILES[0]:  # by which it is known for a bundle
        with pytest.raises(UserError, match=f"are damaged: {name}"):
            Store(tmp_path / "bundle").read_all()


def test_a_bundle_without_its_runs_is_neither_read_nor_added_to(results: Path, tmp_path: Path) -> None:
    """Copied half-way."""
    pack(str(results), str(tmp_path / "bundle"), None)
    (tmp_path / "bundle" / FILES[0]).unlink()
    for call in (Store(tmp_path / "bundle").check_readable, Store(tmp_path / "bundle").open_for_writing):
        with pytest.raises(UserError, match=r"are damaged: runs\.parquet is missing; get them again"):
            call()


@pytest.mark.parametrize(("mark", "said"), [('{"format": 3}', "is of format 3"), (None, "no staleharness.json")])
def test_a_bundle_of_another_format_stays_as_it_is(results: Path, tmp_path: Path, mark: str | None, said: str) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    marker = tmp_path / "bundle" / MARKER
    marker.unlink() if mark is None else marker.write_text(mark)
    for name, call in (("BUNDLE", unpack), ("TO", lambda bundle, _: pack(str(results), bundle, None))):
        with pytest.raises(UserError, match=rf"^{name}={tmp_path}/bundle .*{said}"):
            call(str(tmp_path / "bundle"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert (marker.read_text() if marker.exists() else None) == mark


def test_nothing_is_added_to_packed_results(results: Path, tmp_path: Path) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    with pytest.raises(UserError, match="holds packed results, to which nothing can be added; `staleharness unpack"):
        Store(tmp_path / "bundle").check()


def test_unpacking_leaves_what_is_there(results: Path, tmp_path: Path) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    some = Store(results).read_all()[0]
    before = (some.path / "run.json").stat().st_mtime_ns
    (Store(results).read_all()[1].path).rename(tmp_path / "taken away")
    assert unpack(str(tmp_path / "bundle"), str(results)).startswith("unpacked 1 of 12 runs")
    assert (some.path / "run.json").stat().st_mtime_ns == before
    assert len(Store(results).read_all()) == 12


def test_a_bundle_that_is_half_packed_is_not_published(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sweep reads the published bundles, also while another process packs, or after it was killed."""
    reference = tmp_path / "reference"
    monkeypatch.setattr(reference_results, "reference_folder", lambda: reference)
    monkeypatch.chdir(tmp_path)
    pack(str(results), str(reference / "bundle"), None)
    shutil.copytree(reference / "bundle", reference / ".other.packing")
    (reference / ".other.packing" / "manifest.json").unlink()
    assert study_runs.published_bundles() == [reference / "bundle"]
    Store(reference).check()  # a place for results all the same


@pytest.mark.parametrize(("target", "said"), [("file", "is a file"), ("full", "holds something other than a bundle")])
def test_where_a_bundle_cannot_go_nothing_is_touched(results: Path, tmp_path: Path, target: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with pytest.raises(UserError, match=said):
        pack(str(results), str(tmp_path / target), None)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["notes"]


def test_what_holds_no_runs_or_is_no_bundle_is_refused(results: Path, tmp_path: Path) -> None:
    study = tmp_path / "which.toml"
    study.write_text(STUDY.replace("Hopper", "Ant"))
    with pytest.raises(UserError, match="holds no run to pack that the study asks for"):
        pack(str(results), str(tmp_path / "bundle"), str(study))
    assert not (tmp_path / "bundle").exists()
    with pytest.raises(UserError, match="is not a bundle; `staleharness pack` makes one"):
        unpack(str(results), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_read_only_bundle_stays_and_blocks_no_later_call(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    pack(str(results), str(bundle), None)
    shutil.copytree(bundle, tmp_path / ".bundle.packing" / "inside")  # as a call of an earlier version left it
    for folder in (bundle, tmp_path / ".bundle.packing" / "inside", tmp_path / ".bundle.packing"):
        folder.chmod(0o555)
    manifest = (bundle / "manifest.json").read_bytes()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).stat().st_mode & 0o222 != 0)  # though we may be root
    with pytest.raises(UserError, match=f"^TO={bundle} is read-only; make it writable"):
        pack(str(results), str(bundle), None)
    assert (bundle / "manifest.json").read_bytes() == manifest
    bundle.chmod(0o755)
    assert pack(str(results), str(bundle), None).startswith("packed 12 runs")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "results"]


def test_a_read_only_folder_is_removed() -> None:
    with tempfile.TemporaryDirectory() as name:
        folders = Path(name), Path(name) / "copy", Path(name) / "copy" / "inside"
        folders[2].mkdir(parents=True)
        (folders[2] / "file").touch()
        root = os.geteuid() == 0
        for folder in folders if root else ():
            os.chown(folder, 65534, -1)
        for folder in folders[1:]:
            folder.chmod(0o555)
        if root:  # who may remove anything
            os.seteuid(65534)
        try:
            remove_folder(folders[1])
        finally:
            if root:
                os.seteuid(0)
        assert not folders[1].exists()
