"""Published runs keep their names: each id is the hash of its record's spec and of what the plugins say today."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from edited_plugins import edit_method
from needs import require_task
from places import GSM8K

from staleharness.base.files import digest, write_json
from staleharness.base.plugins import source_hash
from staleharness.control.spec import ControlSpec
from staleharness.running import run_identity
from staleharness.running.plan import plan
from staleharness.spec import later
from staleharness.statistics.scores import SCORES
from staleharness.store.bundle_reader import TABLES, parts, read_runs
from staleharness.store.store import FORMAT, MARKER, Store
from staleharness.study import read_study
from staleharness.task import find_env

sys.path.insert(0, str(Path(__file__).parent / "published"))

import move_ids

BUNDLES = sorted(path.parent for path in move_ids.REFERENCE.glob(f"*/{MARKER}"))
bundles = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
STUDIES = [bundle for bundle in BUNDLES if (bundle / "study.toml").is_file()]
# A default that has changed since: the study asks for other runs today (VACO's KL estimator, `analytic` then).
ASKED_ANEW = {"staleness_halfcheetah": ("vaco", 10)}


@functools.cache
def records(bundle: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [(run_id, record, job) for run_id, record, job, _ in read_runs(bundle)]


def manifest(bundle: Path) -> dict[str, Any]:
    return dict(json.loads((bundle / "manifest.json").read_text()))


def is_within(stored: dict[str, Any], read: dict[str, Any]) -> bool:
    """Return whether a complete spec has all settings and options of a stored one, which may lack later ones."""
    return {**read, **stored, "hyper": {**read["hyper"], **stored["hyper"]}} == read


def test_all_that_is_published_is_here() -> None:
    assert len(BUNDLES) >= 18 and sum(len(records(bundle)) for bundle in BUNDLES) >= 926


@bundles
def test_every_published_id_follows_from_its_spec_and_plugins(bundle: Path) -> None:
    assert len(records(bundle)) == manifest(bundle)["runs"]
    for run_id, record, job in records(bundle):
        spec, family = run_identity.read_stored(record["spec"])
        assert run_identity.run_id(spec, family) == record["id"] == run_id, record["label"]
        assert record["spec"] == job["spec"]
        assert is_within(record["spec"], json.loads(spec.to_json())), "what it says is what is read"


def test_a_setting_added_later_leaves_every_published_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """New runs may set it as they like; the published ones did without it."""

    @dataclasses.dataclass(frozen=True)
    class LaterSpec(ControlSpec):
        warm: bool = later(True, before=False)

    class Family(find_env("HalfCheetah-v5")[1]):  # type: ignore[misc]  # of the same file
        settings = LaterSpec

    def hash_of(cls: type, changed: frozenset[str] = frozenset()) -> str:
        return source_hash(find_env("HalfCheetah-v5")[1] if cls is Family else cls, changed)

    monkeypatch.setattr(run_identity, "find_env", lambda env: (env, Family))
    monkeypatch.setattr(run_identity, "source_hash", hash_of)
    for run_id, record, _ in records(move_ids.REFERENCE / "staleness_halfcheetah"):
        spec, family = run_identity.read_stored(record["spec"])
        assert run_identity.run_id(spec, family) == run_id
        assert run_identity.run_id(dataclasses.replace(spec, warm=True), family) != run_id


@bundles
def test_every_published_record_says_its_kind_of_task(bundle: Path) -> None:
    for _, record, _ in records(bundle):
        facts = find_env(record["spec"]["env"])[1].facts(record["scores"])
        assert record["task"] == facts and record["format"] == FORMAT
        assert set(facts["measures"]) >= set(record["scores"]) & set(SCORES) and facts["score"] in record["scores"]
        assert all(setting in record["spec"] for setting in facts["axes"].values())


def test_a_bundle_has_a_study_or_names_the_program_that_makes_it() -> None:
    rest = {bundle.name for bundle in BUNDLES} - {bundle.name for bundle in STUDIES}
    benchmarks = {name for name in rest if name.startswith("stalebench_v1_")}
    assert rest - benchmarks == {"real_lag", "real_lag_deep_queue"}
    assert manifest(move_ids.REFERENCE / "real_lag")["command"] == "python experiments/real_lag"
    command = "python experiments/real_lag --study real_lag_deep_queue"
    assert manifest(move_ids.REFERENCE / "real_lag_deep_queue")["command"] == command
    for name in benchmarks:
        assert manifest(move_ids.REFERENCE / name)["command"].startswith("staleharness benchmark ")


@pytest.mark.parametrize("bundle", STUDIES, ids=lambda path: path.name)
def test_a_sweep_of_the_study_finds_its_published_runs(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way from a question to ids, defaults included."""
    question = read_study(bundle / "study.toml").at("small")
    require_task(question)
    if data := question.settings.get("data"):
        if not GSM8K.is_dir():
            pytest.skip("the digest of its data is part of an id, and ../shared/data/gsm8k is not here")
        (tmp_path / data).symlink_to(GSM8K)
        monkeypatch.chdir(tmp_path)
    asked = {run.run_id for run in plan(question).runs}
    there = {run_id: record["label"] for run_id, record, _ in records(bundle)}
    absent = [there[run_id] for run_id in sorted(set(there) - asked)]
    label, count = ASKED_ANEW.get(bundle.name, ("", 0))
    assert absent == [label] * count


@bundles
@pytest.mark.long
def test_every_published_run_has_its_rows(bundle: Path) -> None:
    def table(name: str, *columns: str) -> pd.DataFrame:
        files = (bundle / of[1 + TABLES.index(name)] for of in parts(bundle))
        return pd.concat([pd.read_parquet(file, columns=["run", *columns]) for file in files])

    rows = dict(iter(table("metrics", "phase", "eval_deterministic").groupby("run", observed=True)))
    timing = table("timing")["run"].value_counts()
    assert set(rows) == set(timing.index) == {run_id for run_id, *_ in records(bundle)}
    for run_id, record, _ in records(bundle):
        assert rows[run_id]["phase"].tolist() == list(range(record["phases"])) and timing[run_id] == record["phases"]
        last = rows[run_id]["eval_deterministic"].iloc[-1]
        assert last == pytest.approx(record["scores"]["deterministic"]["mean"], rel=1e-12)


def test_a_bundle_whose_runs_were_moved_says_so() -> None:
    moved = {bundle: told[-1] for bundle in BUNDLES if (told := manifest(bundle).get("renamed"))}
    assert len(moved) >= 18
    for bundle, told in moved.items():
        assert told["by"] == "tests/published/move_ids.py" and told["date"] >= "2026-11-22" and told["why"]
        assert told["ids"] and set(told["ids"].values()) <= {run_id for run_id, *_ in records(bundle)}


@pytest.mark.long
def test_moving_changes_names_and_nothing_else_and_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle of the earlier make, built from a published one: the ids of that day, a record that says less."""
    asked: list[set[str]] = []  # methods whose golden traces are made; tests below and in golden/ make some
    monkeypatch.setattr(move_ids, "moved_cases", asked.append)
    source, root = move_ids.REFERENCE / "ppo_hopper_cleanrl", tmp_path / "ppo_hopper_cleanrl"
    shutil.copytree(source, root)
    there = sorted((run.id for run in Store(source).read_all()), reverse=True)  # the other way round
    earlier = {run_id: f"{n:012x}" for n, run_id in enumerate(there)}
    rows = pq.read_table(root / "runs.parquet").to_pylist()
    for row in rows:
        record, job = json.loads(row["record"]), json.loads(row["job"])
        for spec in (record["spec"], job["spec"]):
            del spec["step_size"], spec["hyper"]["clip_high"]
        del record["task"]
        row["id"] = earlier[row["id"]]
        record |= {"id": row["id"], "format": 1}
        row |= {"record": json.dumps(record, sort_keys=True), "job": json.dumps(job, sort_keys=True)}
    pq.write_table(pa.Table.from_pylist(sorted(rows, key=lambda row: row["id"])), root / "runs.parquet")
    for name in ("metrics", "timing"):
        table = pq.read_table(root / f"{name}.parquet")
        place = table.column_names.index("run")
        names = [earlier[run] for run in table["run"].to_pylist()]
        order = sorted(range(len(names)), key=lambda row: names[row])
        pq.write_table(table.set_column(place, "run", pa.array(names)).take(order), root / f"{name}.parquet")
    files = {name: digest(root / name) for name in ("runs.parquet", "metrics.parquet", "timing.parquet")}
    write_json(root / "manifest.json", {**manifest(source), "files": files, "renamed": []})
    assert Store(root).read_all() == []
    assert move_ids.move(root, "a test") == {old: new for new, old in earlier.items()}
    assert asked == [{"ppo_clip"}]
    assert [run.id for run in Store(root).read_all()] == sorted(earlier)
    for (_, now, job, seal), (_, record, asked, sealed) in zip(read_runs(root), read_runs(source), strict=True):
        assert {**now, "spec": record["spec"]} == record and {**job, "spec": asked["spec"]} == asked
        assert seal == sealed and is_within(record["spec"], now["spec"]) and now["spec"] == job["spec"]
    for name in ("metrics", "timing"):
        assert pq.read_table(root / f"{name}.parquet").equals(pq.read_table(source / f"{name}.parquet"))
    before = (root / "manifest.json").read_bytes()
    assert move_ids.move(root, "again") == {} and (root / "manifest.json").read_bytes() == before


QUICK = move_ids.REFERENCE / "quick_hopper"
SAME = ("PolicyLoss(-objective", "PolicyLoss(0.0 - objective")
OTHER = ("PolicyLoss(-objective", "PolicyLoss(objective")  # beyond the tolerance of traces: on every machine


def numbers(root: Path) -> list[list[Any]]:
    """Everything but names: metrics and scores of each run, in the order of method, capacity, seed and phase."""
    runs = sorted(Store(root).read_all(), key=lambda run: (run.label, run.spec["capacity"], run.seed))
    return [[run.record["scores"], repr(run.metrics().to_dict())] for run in runs]


def test_an_edit_that_moves_no_trace_renames_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(QUICK, tmp_path / "bundle")
    (plugins := tmp_path / "plugins").mkdir()
    edit_method("spo", plugins, monkeypatch, SAME)
    moved = move_ids.move(root, "the product is written the other way round")
    spo = {run_id for run_id, record, _ in records(QUICK) if record["label"] == "spo"}
    assert set(moved) == spo and not spo & set(moved.values())
    assert {run.id for run in Store(root).read_all()} == {run_id for run_id, *_ in records(QUICK)} - spo | set(
        moved.values()
    )
    assert numbers(root) == numbers(QUICK)
    assert manifest(root)["renamed"][-1]["ids"] == moved
    assert manifest(root)["renamed"][-1]["why"] == "the product is written the other way round"


def test_an_edit_that_moves_a_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(QUICK, tmp_path / "bundle")
    (plugins := tmp_path / "plugins").mkdir()
    edit_method("spo", plugins, monkeypatch, OTHER)
    before = {path: path.read_bytes() for path in root.iterdir()}
    with pytest.raises(move_ids.RenamingError, match=r"the golden traces of .*control/spo.* have moved"):
        move_ids.move(root, "no reason")
    assert {path: path.read_bytes() for path in root.iterdir()} == before


def test_runs_of_other_maths_are_not_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = shutil.copytree(QUICK, tmp_path / "bundle")
    monkeypatch.setattr(move_ids, "MATHS_VERSION", 2)
    with pytest.raises(move_ids.RenamingError, match="was made under MATHS_VERSION 1; make it anew"):
        move_ids.move(root, "no reason")
