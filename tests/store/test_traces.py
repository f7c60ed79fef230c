"""Traces in bundles: as they were, found by name wherever the bundle is, refused where they are not what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from results_helper import write_run
from trace_tables import trace_table

from staleharness.base import reference_results
from staleharness.base.files import digest
from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.rollout_schedule import Demand
from staleharness.rollout_schedule_checks import validate_schedule
from staleharness.store.bundle_writer import pack, unpack
from staleharness.store.store import Store
from staleharness.store.stored_run import TRACE, write_manifest
from staleharness.trace import KEY, read_trace, trace_bytes

DEMAND = Demand(phases=3, groups=2, rows=1, length=8, seed=0)


def rows() -> pd.DataFrame:
    """Two groups a phase, each by an actor of its own, of weights that are as old as can be."""
    lines = [(actor, p, p, max(0, p - 1), p - 1.0, p - 0.5) for p in range(3) for actor in range(2)]
    table = trace_table(8, lines)
    return table.assign(trained_at=table["phase"].astype(float))


def trace() -> bytes:
    return trace_bytes(rows(), {"source": "actors", "decisions": 8, "fetch": 0})


@pytest.fixture
def results(tmp_path: Path) -> tuple[Path, str, str]:
    """A folder with a recorded run, and its replay; and their ids."""
    real = write_run(tmp_path / "results", "spo", 0, phases=3).path
    (real / TRACE).write_bytes(trace())
    write_manifest(real)
    replay = write_run(tmp_path / "results", "spo", 1, phases=3).path
    for name in ("run.json", "job.json"):
        content = json.loads((replay / name).read_text())
        content["spec"]["lag"] = f"trace:{real / TRACE}"
        (replay / name).write_text(json.dumps(content))
    write_manifest(replay)
    return tmp_path / "results", real.name, replay.name


def test_a_trace_goes_along_byte_for_byte_and_comes_back(results: tuple[Path, str, str], tmp_path: Path) -> None:
    folder, real, _ = results
    bundle, again = tmp_path / "bundle", tmp_path / "again"
    assert pack(str(folder), str(bundle), None).endswith(f"and 1 traces, {len(trace()) / 1e6:.1f} MB")
    assert (bundle / "traces" / f"{real}.parquet").read_bytes() == trace()
    digests = json.loads((bundle / "manifest.json").read_text())["files"]
    assert digests[f"traces/{real}.parquet"] == digest(folder / "runs" / real / TRACE)
    assert unpack(str(bundle), str(again)).startswith("unpacked 2 of 2")
    assert (again / "runs" / real / TRACE).read_bytes() == trace()
    found = {run.id: run for run in Store(again).read_all()}
    assert found[real].trace is not None and len(found) == 2, "and the manifest vouches for it"
    assert pack(str(folder), str(bundle), None).startswith("packed 2 runs"), "again, over the first"


def test_a_packed_replay_names_its_trace_in_the_bundle(
    results: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real, replay = results
    home = tmp_path / "elsewhere" / "reference"
    pack(str(folder), str(home / "mine"), None)
    (run,) = [run for run in Store(home / "mine").read_all() if run.id == replay]
    name = f"results/reference/mine/traces/{real}.parquet"
    assert run.spec["lag"] == run.job()["spec"]["lag"] == f"trace:{name}"
    monkeypatch.setattr(reference_results, "reference_folder", lambda: home)
    typed = f"trace:{folder / 'runs' / real / TRACE}"
    here, there = read_lag(typed), read_lag(run.spec["lag"])
    assert here.identity == there.identity and there.text == f"trace:{name}"
    assert read_lag(f"trace:{home / 'mine' / 'traces' / f'{real}.parquet'}").text == f"trace:{name}"
    plan = there.schedule(DEMAND)
    assert plan.oldest.tolist() == [0, 0, 0, 0, 1, 1] and plan.finished is not None
    assert plan.finished.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_trace_of_no_run_in_the_bundle_goes_along_by_its_content(
    results: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder, real, replay = results
    lag = json.loads((folder / "runs" / replay / "run.json").read_text())["spec"]["lag"]
    moved = tmp_path / "kept.parquet"
    Path(lag.removeprefix("trace:")).rename(moved)
    for name in ("run.json", "job.json"):
        path = folder / "runs" / replay / name
        path.write_text(path.read_text().replace(lag, f"trace:{moved}"))
    write_manifest(folder / "runs" / replay)
    write_manifest(folder / "runs" / real)
    pack(str(folder), str(tmp_path / "bundle"), None)
    name = f"traces/{digest(moved)[:16]}.parquet"
    assert (tmp_path / "bundle" / name).read_bytes() == trace()
    (run,) = [run for run in Store(tmp_path / "bundle").read_all() if run.id == replay]
    assert run.spec["lag"].endswith(f"bundle/{name}") and run.trace is None


def _replay_of(path: Path, folder: Path, replay: str, lag: str = "trace:{}") -> None:
    """Write the trace to a file of its own, and let the replay name it."""
    path.write_bytes(trace_bytes(rows(), {"source": "actors", "decisions": 8, "fetch": 0, "of": "elsewhere"}))
    for name in ("run.json", "job.json"):
        file = folder / "runs" / replay / name
        content = json.loads(file.read_text())
        content["spec"]["lag"] = lag.format(path)
        file.write_text(json.dumps(content))
    write_manifest(folder / "runs" / replay)


def _replay_in(bundle: Path, replay: str) -> str:
    (run,) = [run for run in Store(bundle).read_all() if run.id == replay]
    return str(run.spec["lag"])


@pytest.mark.parametrize("lag", ["trace:{}", "trace[file={},lengths=scale]"])
@pytest.mark.parametrize("source", ["the same folder", "a folder of the bundle's runs"])
def test_a_bundle_keeps_a_trace_that_is_nowhere_else(
    results: tuple[Path, str, str], tmp_path: Path, source: str, lag: str
) -> None:
    """The recording may be gone where the bundle is packed again, or the bundle not among the published ones."""
    folder, _, replay = results
    _replay_of(tmp_path / "kept.parquet", folder, replay, lag)
    bundle = tmp_path / "bundle"
    pack(str(folder), str(bundle), None)
    before = _replay_in(bundle, replay), digest(bundle / "manifest.json"), len(list(bundle.glob("traces/*")))
    name = f"traces/{digest(tmp_path / 'kept.parquet')[:16]}.parquet"
    assert before[0] == lag.format(f"results/reference/bundle/{name}") and before[2] == 2
    (tmp_path / "kept.parquet").unlink()
    if source != "the same folder":
        unpack(str(bundle), str(folder := tmp_path / "again"))
    pack(str(folder), str(bundle), None)
    after = _replay_in(bundle, replay), digest(bundle / "manifest.json"), len(list(bundle.glob("traces/*")))
    assert after == before
    pack(str(bundle), str(tmp_path / "copy"), None)
    assert _replay_in(tmp_path / "copy", replay) == lag.format(f"results/reference/copy/{name}")
    assert (tmp_path / "copy" / name).read_bytes() == (bundle / name).read_bytes()


def _no_trace(path: Path) -> None:
    path.write_bytes(b"rows")


def _link(path: Path) -> None:
    path.rename(path.with_name("kept"))
    os.symlink(path.with_name("kept"), path)


def _swap(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "other bytes": _swap,
    "a link": _link,
    "gone": lambda path: path.unlink(),
    "another one": lambda path: path.with_name("0123456789ab.parquet").write_bytes(trace()) and None,
}


@pytest.mark.parametrize("how", HOSTILE)
def test_traces_that_do_not_match_the_manifest_are_one_line(
    results: tuple[Path, str, str], tmp_path: Path, how: str
) -> None:
    folder, real, _ = results
    pack(str(folder), str(tmp_path / "bundle"), None)
    HOSTILE[how](tmp_path / "bundle" / "traces" / f"{real}.parquet")
    for use in (
        lambda: unpack(str(tmp_path / "bundle"), str(tmp_path / "out")),
        lambda: Store(tmp_path / "bundle").read_all(),
    ):
        with pytest.raises(UserError, match=r"are damaged: traces/.* differs from the manifest") as error:
            use()
        assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize("name", ["../../escaped", "traces/../../escaped", "/tmp/escaped", "traces/x.parquet"])
def test_a_manifest_leads_nowhere_else(results: tuple[Path, str, str], tmp_path: Path, name: str) -> None:
    pack(str(results[0]), str(tmp_path / "bundle"), None)
    manifest = tmp_path / "bundle" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["files"][name] = "0" * 64
    manifest.write_text(json.dumps(said))
    with pytest.raises(UserError, match="are damaged"):
        Store(tmp_path / "bundle").read_all()


def _replace(**columns: object) -> bytes:
    table = pq.read_table(pa.BufferReader(trace()))
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values))
    return _bytes(table)


def _with_header(header: bytes) -> bytes:
    return _bytes(pq.read_table(pa.BufferReader(trace())).replace_schema_metadata({KEY: header}))


def _bytes(table: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream)
    return stream.getvalue().to_pybytes()


FORGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "is not a trace"),
    "text": (lambda: b"rows", "is not a trace"),
    "a header that is a list": (lambda: _with_header(b"[]"), "its header is no record"),
    "a header of nothing": (lambda: _with_header(b"{}"), "has a damaged header"),
    "a fetch that is text": (lambda: _with_header(b'{"source": "actors", "fetch": "x"}'), "has a damaged header"),
    "versions that are text": (lambda: _replace(versions=[["a"]] * 6), "column versions: .* in place of whole numbers"),
    "versions of the future": (lambda: _replace(versions=[[9]] * 6), "a version from the future, 9"),
    "versions below zero": (lambda: _replace(versions=[[-1]] * 6), "versions decrease"),
    "a fate that is a number": (lambda: _replace(fate=[1] * 6), "column fate: .* in place of text"),
    "actors that are absent": (lambda: _replace(actor=[None, 1, 0, 1, 0, 1]), "1 rows without it"),
    "a version that is absent": (lambda: _replace(versions=[[None], *[[0]] * 5]), "column versions: 1 rows without it"),
    "a phase far off": (lambda: _replace(phase=[0, 0, 1, 1, 10**12, 2]), "no row was trained in phase 3"),
    "a fate that there is not": (lambda: _replace(fate=["trained"] * 5 + ["eaten"]), "fate 'eaten' is not one"),
    "a row of nothing": (lambda: _replace(ends=[[8]] * 5 + [[0]]), "row 5: .* a segment is empty"),
    "a row of less than nothing": (
        lambda: _replace(ends=[[8]] * 5 + [[-8]], phase=[0, 0, 1, 1, 2, -1]),
        "row 5: .* a segment is empty",
    ),
    "a header without a bottom": (lambda: _with_header(b"[" * 100_000), "is not a trace"),
    "times that are text": (lambda: _replace(made_at=["x"] * 6), "column made_at: .* in place of seconds"),
}


def test_a_trace_with_a_flipped_bit_is_read_or_refused(tmp_path: Path) -> None:
    """Wherever in its footer, where Parquet says what the file holds."""
    whole, refused = trace(), 0
    for at in range(len(whole) - 1500, len(whole), 5):
        flipped = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        (tmp_path / "t.parquet").write_bytes(flipped)
        try:
            read_trace(str(tmp_path / "t.parquet"))
        except UserError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 50


def test_a_group_of_an_actor_far_off_is_a_hole(tmp_path: Path) -> None:
    table = rows().assign(nth=[0, 0, 1, 1, 2, 10**12])
    path = tmp_path / "t.parquet"
    path.write_bytes(trace_bytes(table, {"source": "actors", "decisions": 8, "fetch": 0}))
    with pytest.raises(UserError, match="actor 1 lacks its group 2"):
        validate_schedule(read_lag(f"trace:{path}").schedule(DEMAND), DEMAND, "LAG=trace")


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.long
def test_a_trace_is_validated_before_it_is_unpacked(results: tuple[Path, str, str], tmp_path: Path, how: str) -> None:
    folder, real, _ = results
    make, said = FORGED[how]
    pack(str(folder), str(tmp_path / "bundle"), None)
    path = tmp_path / "bundle" / "traces" / f"{real}.parquet"
    path.write_bytes(make())
    manifest = tmp_path / "bundle" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"][f"traces/{real}.parquet"] = digest(path)  # whoever wrote the bundle wrote the manifest, too
    manifest.write_text(json.dumps(content))
    for use in (lambda: read_trace(str(path)), lambda: unpack(str(tmp_path / "bundle"), str(tmp_path / "out"))):
        with pytest.raises(UserError, match=said) as error:
            use()
        assert "\n" not in str(error.value)
    assert real not in {path.name for path in (tmp_path / "out" / "runs").iterdir()}
