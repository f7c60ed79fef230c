"""Plain columns of the table of runs: readable with pandas or DuckDB alone, equal over all bundles, once per run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from needs import hint
from places import ROOT
from results_helper import write_run

from staleharness.base.files import digest, write_json
from staleharness.errors import UserError
from staleharness.store.bundle_reader import check_bundle
from staleharness.store.bundle_runs_table import COLUMNS, flat_row, is_canonical, lacks_columns
from staleharness.store.bundle_writer import pack
from staleharness.store.store import MARKER, Store
from staleharness.store.stored_run import StoredRun

PUBLISHED = ROOT / "results" / "reference"
BUNDLES = sorted(path.parent for path in PUBLISHED.glob(f"*/{MARKER}"))
FLAT = [name for name in COLUMNS if name not in ("record", "job")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bundles `control` and `tokens` in one folder; `tokens` has a run of `control` too."""
    for seed in range(2):
        write_run(tmp_path / "a", "vaco[delta=0.1]", seed, capacity=4, curve=[0.0, 10.0, 20.0], sampled=20.0)
    said = {"fingerprint": {"cpu": "Abacus"}}
    for root in ("a", "b"):
        write_run(tmp_path / root, "spo", 0, capacity=1, said=said, settings={"learning_rate": 0.25})
    tokens = {"minibatch_rounds": 3, "lag": "oldest"}
    axes = {"axes": {"N": "minibatch_rounds"}}
    run = write_run(tmp_path / "c", "spo", 5, kind="language", env="word-problems", settings=tokens)
    task = {**run.record["task"], **axes}
    write_run(tmp_path / "b", "spo", 5, kind="language", env="word-problems", settings=tokens, said={"task": task})
    pack(str(tmp_path / "a"), str(tmp_path / "packed" / "control"), None, protocol_of=protocol_of)
    pack(str(tmp_path / "b"), str(tmp_path / "packed" / "tokens"), None)
    return tmp_path / "packed"


def protocol_of(run: StoredRun) -> str:
    return "abc" if run.label == "spo" else ""


def frame(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*/runs*.parquet"))], ignore_index=True)


def test_columns_of_all_kinds_of_task_are_the_same_and_concatenate(folder: Path) -> None:
    schemas = [pq.read_schema(path) for path in sorted(folder.glob("*/runs.parquet"))]
    assert schemas[0].equals(schemas[1], check_metadata=True) and schemas[0].names == list(COLUMNS)
    assert schemas[0].field("area").metadata[b"description"].startswith(b"mean height")
    assert schemas[0].metadata[b"license"] == b"MIT"
    assert len(frame(folder)) == 5 and frame(folder)["bundle"].tolist() == ["control"] * 3 + ["tokens"] * 2


def test_values_are_those_of_the_record(folder: Path) -> None:
    runs = frame(folder)
    vaco = runs[runs.method == "vaco"].iloc[0]
    assert (vaco.label, vaco.env, vaco.K, vaco.lag) == ("vaco[delta=0.1]", "Hopper-v5", 4, "uniform")
    assert vaco.score == 20.0
    assert vaco.lag_mean == json.loads(vaco.record)["summary"]["lag_mean"]
    assert (vaco.measure, vaco.cpu, vaco.protocol) == ("sampled", "Test CPU", "") and pd.isna(vaco.N)
    spo = runs[(runs.method == "spo") & (runs.bundle == "control")].iloc[0]
    assert (spo.cpu, spo.protocol, spo.learning_rate, spo.K) == ("Abacus", "abc", 0.25, 1)
    tokens = runs[runs.task == "language"].iloc[0]
    assert (tokens.N, tokens.lag, tokens.measure, tokens.seed) == (3, "oldest", "deterministic", 5)
    assert tokens.score == pytest.approx(110.0)


def test_a_protocol_that_is_known_later_is_added(folder: Path) -> None:
    bundle = str(folder / "tokens")
    assert set(frame(folder)[lambda runs: runs.bundle == "tokens"].protocol) == {""}
    assert "written" in pack(bundle, bundle, None, protocol_of=lambda run: "f00d")
    assert set(frame(folder)[lambda runs: runs.bundle == "tokens"].protocol) == {"f00d"}
    assert pack(bundle, bundle, None, protocol_of=lambda run: "f00d").endswith("has all columns")


def test_area_weights_evaluations_by_their_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path, "spo", 0, curve=[0.0, 10.0, 20.0])
    steps, returns = run.curves["sampled"]
    run.__dict__["curves"] = {"sampled": (steps * [1, 1, 1] + [0, 0, steps[1]], returns)}
    a, b, c = run.curves["sampled"][0]
    by_hand = ((b - a) * 5 + (c - b) * 15) / (c - a)
    assert flat_row(run, "x", True)["area"] == pytest.approx(by_hand) and by_hand != pytest.approx(10)
    run.__dict__["curves"] = {"sampled": (steps[:1], returns[:1])}
    assert flat_row(run, "x", True)["area"] is None


def test_the_newest_copy_of_a_run_is_canonical(folder: Path, tmp_path: Path) -> None:
    runs = frame(folder)
    assert runs[~runs.canonical][["bundle", "method"]].values.tolist() == [["tokens", "spo"]]  # of one day: by name
    assert runs[runs.canonical].id.is_unique and set(runs[runs.canonical].id) == set(runs.id)
    newer = {"date": "2026-11-21"}
    write_run(tmp_path / "d", "vaco[delta=0.1]", 0, capacity=4, curve=[0.0, 10.0, 20.0], sampled=20.0, said=newer)
    pack(str(tmp_path / "d"), str(folder / "newest"), None)
    assert frame(folder).canonical.tolist().count(False) == 1  # one too few, until the older bundle is packed again
    assert "written" in pack(str(folder / "control"), str(folder / "control"), None)
    runs = frame(folder)
    assert runs[runs.canonical].id.is_unique and runs[~runs.canonical].bundle.tolist() == ["control", "tokens"]
    (folder / "control" / "runs.parquet").write_bytes(b"torn")
    pack(str(tmp_path / "d"), str(folder / "later"), None)


def test_copies_of_one_day_are_ordered_by_name() -> None:
    assert is_canonical("2026-11-21", "b", [])
    assert is_canonical("2026-11-21", "b", [("2026-11-20", "a"), ("2026-11-21", "c")])
    assert not is_canonical("2026-11-21", "b", [("2026-11-20", "a"), ("2026-11-21", "a")])
    assert not is_canonical("2026-11-21", "b", [("2026-11-22", "z")])


def strip_columns(bundle: Path) -> dict[str, bytes]:
    """Remove the plain columns from a bundle, as earlier versions wrote it; return its files."""
    path, manifest = bundle / "runs.parquet", bundle / "manifest.json"
    pq.write_table(pq.read_table(path).select(["id", "record", "job", "seal"]).replace_schema_metadata(), path)
    content = json.loads(manifest.read_text())
    write_json(manifest, {**content, "files": {**content["files"], "runs.parquet": digest(path)}})
    return {file.name: file.read_bytes() for file in bundle.iterdir()}


def test_a_bundle_of_an_earlier_make_gets_its_columns_once(folder: Path) -> None:
    bundle = folder / "control"
    expected = (bundle / "runs.parquet").read_bytes()
    before, runs = strip_columns(bundle), Store(bundle).read_all()
    assert lacks_columns(bundle / "runs.parquet")
    assert "runs.parquet written with all columns" in pack(str(bundle), str(bundle), None, protocol_of=protocol_of)
    check_bundle(bundle)
    assert (bundle / "runs.parquet").read_bytes() == expected
    assert Store(bundle).read_all() == runs and [run.job() for run in runs]
    after = {file.name: file.read_bytes() for file in bundle.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"runs.parquet", "manifest.json"}
    assert pack(str(bundle), str(bundle), None, protocol_of=protocol_of).endswith("has all columns")
    assert after == {file.name: file.read_bytes() for file in bundle.iterdir()}


def test_a_growing_bundle_of_an_earlier_make_gets_columns(folder: Path, tmp_path: Path) -> None:
    bundle = folder / "control"
    before = strip_columns(bundle)
    write_run(tmp_path / "a", "vaco[delta=0.1]", 9)
    pack(str(tmp_path / "a"), str(bundle), None)
    assert not any(lacks_columns(path) for path in bundle.glob("runs*.parquet"))
    assert (bundle / "metrics.parquet").read_bytes() == before["metrics.parquet"]
    assert len(Store(bundle).read_all()) == 4 and (bundle / "runs-1.parquet").is_file()


def test_columns_of_a_damaged_run_are_refused(folder: Path) -> None:
    bundle = folder / "control"
    strip_columns(bundle)
    rows = pq.read_table(bundle / "runs.parquet").to_pylist()
    rows[0]["record"] = "{}"
    pq.write_table(pa.Table.from_pylist(rows), bundle / "runs.parquet")
    content = json.loads((bundle / "manifest.json").read_text())
    content["files"]["runs.parquet"] = digest(bundle / "runs.parquet")
    write_json(bundle / "manifest.json", content)
    with pytest.raises(UserError, match="holds a damaged run"):
        pack(str(bundle), str(bundle), None)


def test_published_bundles_have_equal_columns_and_each_run_once() -> None:
    runs = pd.concat([pd.read_parquet(p, columns=FLAT) for b in BUNDLES for p in b.glob("runs*.parquet")])
    for bundle in BUNDLES:
        for path in bundle.glob("runs*.parquet"):
            assert not lacks_columns(path), f"make pack OUT={bundle} TO={bundle}"
    canonical = runs[runs.canonical]
    assert canonical.id.is_unique and set(canonical.id) == set(runs.id), "pack the older bundle onto itself"
    assert len(runs) >= 4001 and runs[["score", "area", "cpu", "env", "lag"]].notna().all().all()
    assert set(runs.bundle) == {bundle.name for bundle in BUNDLES}
    of_protocol = runs.bundle.str.startswith("stalebench_")
    assert (runs[of_protocol].protocol != "").all() and (runs[~of_protocol].protocol == "").all()


@pytest.mark.parametrize("name", ["quick_hopper", "a3po_language", "vaco_rho_bar", "ppo_ewma_staleness"])
def test_published_columns_are_those_of_the_records(name: str) -> None:
    rows = {row["id"]: row for p in (PUBLISHED / name).glob("runs*.parquet") for row in pq.read_table(p).to_pylist()}
    for run in Store(PUBLISHED / name).read_all():
        row = rows[run.id]
        assert flat_row(run, name, row["canonical"]).items() <= row.items()


DUCKDB = """
import sys, duckdb
print(duckdb.sql('''
    select method, K, count(*), round(avg(score), 1) from '{}/*/runs*.parquet'
    where canonical and env = 'Hopper-v5' group by all order by all'''.format(sys.argv[1])).fetchall())
assert not {"staleharness", "torch", "pandas", "pyarrow"} & set(sys.modules)
"""


def test_duckdb_alone_reads_all_bundles_in_one_query(folder: Path) -> None:
    pytest.importorskip("duckdb", reason=hint("duckdb"))
    command = [sys.executable, "-I", "-c", DUCKDB, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('spo', 1, 1, 100.0), ('vaco', 4, 2, 20.0)]"
    published = subprocess.run([*command[:-1], str(PUBLISHED)], capture_output=True, text=True, check=True).stdout
    runs = frame(PUBLISHED)
    scores = runs[runs.canonical & (runs.env == "Hopper-v5")].groupby(["method", "K"]).score
    expected = [(*place, len(values), pytest.approx(values.mean(), abs=0.051)) for place, values in scores]
    assert ast.literal_eval(published) == expected


def test_the_data_card_lists_every_column() -> None:
    card = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    for name, (_, content) in COLUMNS.items():
        assert f"| `{name}` | {content} |\n" in card
    assert card.startswith("---\nlicense: mit\n") and '"*/runs*.parquet"' in card
