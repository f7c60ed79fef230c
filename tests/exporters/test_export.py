"""Stored runs for other tools: what is written is what was measured, whole or not at all, and once."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import Cli
from needs import has_extra, needs_extra
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.exporters import exporter, long_csv, tensorboard_runs, wandb_runs
from staleharness.statistics.results import load
from staleharness.store.store import Store, StoredRun
from staleharness.store.stored_run import write_manifest

BROKEN_TABLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "metrics.parquet without phases": lambda table: table.drop(columns="phase"),
    "metrics.parquet with words": lambda table: table.assign(entropy="high"),
    "metrics.parquet with steps in words": lambda table: table.assign(steps="many"),
    "metrics.parquet cut short": lambda table: table[:2],
    "timing.parquet without learning": lambda table: table.drop(columns="learn"),
    "timing.parquet cut short": lambda table: table[:2],
}
HOSTILE = "../../=up[\x1b]<b>"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    write_run(root, "vaco", 0, sampled=120.0, phases=4, capacity=2, settings={"hidden": [64, 64], "scale": True})
    write_run(root, "spo", 1, sampled=-3.5, phases=3, capacity=2)
    return root


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()
    }


def recorded_runs(run: StoredRun) -> dict[tuple[str, int], float]:
    """(metric, steps) -> value of everything in the run's tables, read independently."""
    frame, timing = run.metrics(), pd.read_parquet(run.path / "timing.parquet")
    found = {}
    for i, row in enumerate(frame.to_dict("records")):
        steps = row.pop("steps")
        row.pop("phase")
        lags = row.pop("lag_histogram")
        row |= {f"lag_histogram/{lag}": count for lag, count in enumerate(lags)}
        row |= {f"seconds/{name}": timing[name][i] for name in timing}
        found |= {(k, steps): float(v) for k, v in row.items() if v is not None and not math.isnan(v)}
    return found


# --- data of all exporters


def test_time_adds_up_over_phases_and_memory_is_no_part_of_it(tmp_path: Path) -> None:
    run = write_run(tmp_path, phases=3)
    parts = {"collect": [1.0, 2.0, 3.0], "learn": [0.5, 0.5, 0.5], "evaluate": [0.0, 0.0, 1.0]}
    timing = pd.DataFrame({**parts, "train": [0.4] * 3, "memory_mb": [300.0, np.nan, 310.5]})
    timing.to_parquet(run.path / "timing.parquet")
    data = exporter.phases(run)
    assert data.seconds.tolist() == [1.5, 4.0, 8.5]
    assert data.scalars["memory_mb"].tolist()[::2] == [300.0, 310.5]
    times = {name for name in data.scalars if name.startswith("seconds/")}
    assert times == {"seconds/collect", "seconds/learn", "seconds/evaluate", "seconds/train"}


def by_step(rows: Iterable[tuple[int, str, float]]) -> dict[tuple[str, int], float]:
    """(metric, steps) -> value of (steps, dashboard name, value)."""
    return {(name.removeprefix("phase/"), step): value for step, name, value in rows}


def expected_scalars(run: StoredRun) -> dict[tuple[str, int], float]:
    return {k: v for k, v in recorded_runs(run).items() if not k[0].startswith("lag_histogram/")}


@pytest.fixture
def filling(tmp_path: Path) -> StoredRun:
    """A run whose first two phases fill the buffer; its entropy is 1, 2, 3, 4."""
    columns = {"steps": [0, 0, 2048, 4096], "entropy": [1.0, 2.0, 3.0, 4.0]}
    return write_run(tmp_path / "results", phases=4, columns=columns, settings={"fill_phases": 2})


# --- CSV


def test_a_csv_names_phases_that_fill_the_buffer(filling: StoredRun, tmp_path: Path):
    metrics, _ = long_csv.write([filling], tmp_path)
    rows = pd.read_csv(metrics).groupby("metric")["value"].apply(list)
    assert rows["entropy"] == [3.0, 4.0] and rows["filling/entropy"] == [1.0, 2.0]
    assert len(rows["filling/lag_histogram/0"]) == len(rows["lag_histogram/0"]) == 2


def test_the_long_csv_holds_every_number_of_every_run(results: Path, tmp_path: Path):
    runs = Store(results).read_all()
    metrics, _ = long_csv.write(runs, tmp_path)
    lines = list(csv.DictReader(metrics.read_text().splitlines()))
    for run in runs:
        mine = {(r["metric"], int(r["steps"])): float(r["value"]) for r in lines if r["run"] == run.id}
        assert mine == recorded_runs(run)
    assert {(r["algorithm"], r["environment"], r["K"], r["seed"]) for r in lines} == {
        ("vaco", "Hopper-v5", "2", "0"),
        ("spo", "Hopper-v5", "2", "1"),
    }
    assert len(lines) == sum(len(recorded_runs(run)) for run in runs)
    assert all(int(r["steps"]) == (int(r["phase"]) + 1) * 2048 for r in lines)


def test_runs_csv_has_a_line_per_run_with_its_facts(results: Path, tmp_path: Path):
    frame = pd.read_csv(long_csv.write(Store(results).read_all(), tmp_path)[1]).set_index("algorithm")
    vaco = frame.loc["vaco"]
    assert vaco["sampled"] == 120.0 and vaco["deterministic"] == pytest.approx(132.0) and vaco["seed"] == 0
    assert vaco["set.hidden"] == "[64, 64]" and vaco["set.num_envs"] == 16 and vaco["made.torch"] == "2.13.0"
    assert vaco["mean.lag_mean"] == Store(results).read(vaco["run"]).record["summary"]["lag_mean"]
    assert math.isnan(frame.loc["spo"]["set.scale"])  # what a run does not have is empty


def test_versions_of_a_plugin_differ_in_code(tmp_path: Path):
    """In `runs.csv` and in `sh.load`; the last is a record of before there were digests."""
    for seed, said in enumerate(({"method": {"code": "aaa"}}, {"method": {"code": "abc"}}, {})):
        write_run(tmp_path / "results", "vaco", seed, said=said)
    results = load(tmp_path / "results")
    frame = pd.read_csv(long_csv.write(results, tmp_path)[1], keep_default_na=False)
    codes = ["aaa", "abc", ""]
    assert frame.sort_values("seed")["code"].tolist() == results.runs.sort_values("seed")["code"].tolist() == codes


def test_an_export_that_dies_leaves_nothing_half_written(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runs, calls = Store(results).read_all(), []

    def failing(run: StoredRun) -> exporter.Phases:
        calls.append(run)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return exporter.phases(run)

    monkeypatch.setattr(long_csv, "phases", failing)
    folder = tmp_path / "to"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        long_csv.write(runs, folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", pytest.param("tensorboard", marks=needs_extra("tensorboard"))])
def test_an_export_clears_what_a_killed_one_has_left(results: Path, tmp_path: Path, cli: Cli, kind: str):
    words = ("export", kind, "--out", str(results), "--to", str(tmp_path / "to"), "--json")
    _, out, _ = cli(*words)
    paths = [Path(file) for file in json.loads(out)["files"]]
    stale, fresh, foreign = ([p.with_name(f".{p.name}.{end}") for p in paths] for end in ("abcdefgh", "ijklmnop", "x"))
    for path in (*stale, *fresh, *foreign):
        path.write_text("half")
    for path in (*stale, *foreign):
        os.utime(path, (1e9, 1e9))
    cli(*words)
    left = {path for path in (tmp_path / "to").rglob(".*") if path.is_file()}
    assert left == {*fresh, *foreign}  # a fresh one may be of an export under way


def test_exporting_again_gives_the_same_bytes_and_filters_choose(results: Path, cli: Cli):
    code, out, err = cli("export", "csv", "--out", str(results))
    folder = results / "exports" / "csv"
    assert (code, err) == (0, "") and out.startswith("exported 2 runs: ") and str(folder / "runs.csv") in out
    before = {name: data for name, (data, _) in files(folder).items()}
    assert set(before) == {"metrics.csv", "runs.csv"}
    code, out, _ = cli("export", "csv", "--out", str(results), "--json")
    assert json.loads(out)["folder"] == str(folder) and len(json.loads(out)["runs"]) == 2
    assert {name: data for name, (data, _) in files(folder).items()} == before
    to = str(results.parent / "only spo")
    asked = ("--algo", "spo", "--env", "all", "--k", "all")
    cli("export", "csv", "--out", str(results), *asked, "--to", to)
    assert set(pd.read_csv(Path(to) / "runs.csv")["algorithm"]) == {"spo"}
    assert Store(results).check() is None  # exports do not make the folder anybody else's


@pytest.mark.parametrize("head", ["step,loss", "run,notes"])
@pytest.mark.parametrize("name", ["metrics.csv", "runs.csv"])
def test_a_file_that_is_no_export_is_not_replaced(results: Path, tmp_path: Path, cli: Cli, name: str, head: str):
    to = tmp_path / "thesis"
    to.mkdir()
    (to / name).write_text(f"{head}\n0,1.0\n")
    code, out, err = cli("export", "csv", "--out", str(results), "--to", str(to))
    assert (code, out) == (2, "") and f"{name} is not an export and would be overwritten" in err
    assert {path.name: path.read_text() for path in to.iterdir()} == {name: f"{head}\n0,1.0\n"}


def test_a_hostile_name_is_no_formula(tmp_path: Path):
    run = write_run(tmp_path / "r", "=1+1", 0, phases=2)
    for path in long_csv.write([run], tmp_path):
        assert "'=1+1" in path.read_text() and ",=1+1" not in path.read_text()


# --- TensorBoard


def read_back(folder: Path) -> Any:
    from tensorboard.backend.event_processing import event_accumulator as ea

    found = ea.EventAccumulator(str(folder), size_guidance=dict.fromkeys((ea.SCALARS, ea.HISTOGRAMS), 0))
    return found.Reload()


@needs_extra("tensorboard")
def test_tensorboard_reads_every_scalar_at_its_step_and_time(results: Path, tmp_path: Path):
    runs = Store(results).read_all()
    for run, path in zip(runs, tensorboard_runs.write(runs, tmp_path), strict=True):
        found = read_back(path.parent)
        tags = [tag for tag in found.Tags()["scalars"] if not tag.startswith("final/")]
        held = by_step((event.step, tag, event.value) for tag in tags for event in found.Scalars(tag))
        assert held == {k: pytest.approx(v, rel=1e-6) for k, v in expected_scalars(run).items()}
        (final,) = found.Scalars("final/sampled")
        assert final.value == pytest.approx(run.record["scores"]["sampled"]["mean"])
        assert final.step == run.record["steps"]
        times = [event.wall_time for event in found.Scalars("phase/entropy")]
        assert np.diff(times) == pytest.approx(2.0)  # collect and learn take a second each
        assert times[0] == pd.Timestamp("2026-11-20", tz="UTC").timestamp() + 2.0


@needs_extra("tensorboard")
def test_filling_phases_are_tags_of_their_own(filling: StoredRun, tmp_path: Path):
    (path,) = tensorboard_runs.write([filling], tmp_path)
    found = read_back(path.parent)
    values = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in ("phase/entropy", "filling/entropy")}
    assert values == {"phase/entropy": [(2048, 3.0), (4096, 4.0)], "filling/entropy": [(0, 1.0), (1, 2.0)]}
    assert [e.step for e in found.Histograms("filling/lag_histogram")] == [0, 1]


@needs_extra("tensorboard")
def test_the_lag_histogram_the_spec_and_the_settings_are_there_too(results: Path, tmp_path: Path):
    from tensorboard.plugins.hparams import metadata

    (run,) = (r for r in Store(results).read_all() if r.record["label"] == "vaco")
    (path,) = tensorboard_runs.write([run], tmp_path)
    found = read_back(path.parent)
    for i, event in enumerate(found.Histograms("lag_histogram")):
        counts = run.metrics()["lag_histogram"][i]
        assert list(event.histogram_value.bucket) == list(counts)
        assert list(event.histogram_value.bucket_limit) == [0.5, 1.5]
        assert event.histogram_value.num == 2048 and event.histogram_value.sum == counts @ np.arange(2)
    (text,) = found.Tensors("run/text_summary")
    told = json.loads(text.tensor_proto.string_val[0])
    assert told == {k: run.record[k] for k in ("id", "label", "spec", "fingerprint")}
    assert set(found.PluginTagToContent("hparams")) == {metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG}
    begun = metadata.parse_session_start_info_plugin_data(
        found.PluginTagToContent("hparams")[metadata.SESSION_START_INFO_TAG]
    )
    values = {name: value.WhichOneof("kind") for name, value in begun.hparams.items()}
    assert begun.hparams["capacity"].number_value == 2 and begun.hparams["hidden"].string_value == "[64, 64]"
    assert values["scale"] == "bool_value" and values["label"] == "string_value"


@needs_extra("tensorboard")
def test_event_files_are_deterministic_and_left_alone(results: Path, tmp_path: Path):
    runs = Store(results).read_all()
    tensorboard_runs.write(runs, tmp_path / "x")
    before = files(tmp_path / "x")
    tensorboard_runs.write(runs, tmp_path / "x")
    assert files(tmp_path / "x") == before and len(before) == 2
    words = ["export", "tensorboard", "--out", str(results), "--to", str(tmp_path / "y")]
    program = (
        "import sys; from staleharness import cli\n"
        "try: cli.main()\n"
        "finally: print(sorted({'torch', 'tensorflow', 'gymnasium'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout == f"exported 2 runs: tensorboard --logdir {tmp_path / 'y'}\n"
    assert done.stderr == "[]\n"
    assert {k: v[0] for k, v in files(tmp_path / "y").items()} == {k: v[0] for k, v in before.items()}


@needs_extra("tensorboard")
def test_a_name_cannot_climb_out_of_the_folder(tmp_path: Path):
    run = write_run(tmp_path / "r", "spo", 0, env="..", phases=2)
    run = replace(run, record={**run.record, "label": HOSTILE})  # its schema would refuse it
    (path,) = tensorboard_runs.write([run], tmp_path / "to")
    assert path.resolve().is_relative_to((tmp_path / "to").resolve()) and path.name.endswith(run.id)
    assert path.relative_to(tmp_path / "to").parts[0] == "_."
    long = f"spo[{','.join(f'option_number_{i}=0.5' for i in range(20))}]"
    (path,) = tensorboard_runs.write([replace(run, record={**run.record, "label": long})], tmp_path / "long")
    assert path.is_file() and path.name.endswith(run.id)


# --- Weights & Biases


class StandIn(types.ModuleType):
    """Stand-in for wandb that records calls; an offline run is a folder named as wandb names it."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.summary: dict[str, float] = {}
        self.fails = False

    def Settings(self, **given: Any) -> dict[str, Any]:
        return given

    def Histogram(self, np_histogram: tuple[Any, Any]) -> Any:
        return np_histogram

    def init(self, **given: Any) -> StandIn:
        self.inits.append(given)
        self.folder = Path(given["dir"]) / "wandb" / f"offline-run-20260101_000000-{given['id']}"
        self.folder.mkdir(parents=True)
        return self

    def log(self, row: dict[str, Any], step: int) -> None:
        if self.fails:
            raise KeyboardInterrupt
        self.rows.append((step, row))

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axis = (name, step_metric)

    def finish(self) -> None:
        (self.folder / "run.wandb").touch()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(exporter, "package_version", lambda name: "0.22")
    return module


def test_each_run_is_one_offline_run_under_its_own_id_with_its_spec(results: Path, stand_in: StandIn, cli: Cli):
    code, out, _ = cli("export", "wandb", "--out", str(results), "--algo", "vaco")
    (run,) = (r for r in Store(results).read_all() if r.record["label"] == "vaco")
    (given,) = stand_in.inits
    assert code == 0 and "nothing was sent" in out
    assert given["mode"] == "offline" and given["id"] == run.id and given["name"] == "vaco Hopper-v5 K=2 seed 0"
    assert {k: given["config"][k] for k in run.spec} == run.spec and given["config"]["fingerprint"]["threads"] == 1
    skip = ("lag_histogram", "phase", "steps")
    held = by_step((row["steps"], name, x) for _, row in stand_in.rows for name, x in row.items() if name not in skip)
    assert held == expected_scalars(run) and stand_in.axis == ("*", "steps")
    counts, edges = stand_in.rows[1][1]["lag_histogram"]
    assert list(counts) == list(run.metrics()["lag_histogram"][1]) and list(edges) == [-0.5, 0.5, 1.5]
    assert stand_in.summary == {"final/sampled": 120.0, "final/deterministic": pytest.approx(132.0)}


def test_no_two_phases_share_a_step_of_wandb(tmp_path: Path, stand_in: StandIn) -> None:
    """Rows of one step are merged, and phases that fill the buffer take no steps of training."""
    run = write_run(tmp_path / "results", phases=4, columns={"steps": [0, 0, 2048, 4096]})
    (tmp_path / "to").mkdir()
    wandb_runs.write([run], tmp_path / "to")
    assert [(step, row["phase"], row["steps"]) for step, row in stand_in.rows] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 2048),
        (3, 3, 4096),
    ]


def test_wandb_has_panels_for_phases_that_fill_the_buffer(filling: StoredRun, tmp_path: Path, stand_in: StandIn):
    (tmp_path / "to").mkdir()
    wandb_runs.write([filling], tmp_path / "to")
    for name, values in (("phase/entropy", [3.0, 4.0]), ("filling/entropy", [1.0, 2.0])):
        assert [row[name] for _, row in stand_in.rows if name in row] == values
    assert ["lag_histogram" in row for _, row in stand_in.rows] == [False, False, True, True]
    assert stand_in.axis == ("filling/*", "phase")


def test_a_run_is_exported_once_and_a_torn_export_leaves_nothing(results: Path, stand_in: StandIn, tmp_path: Path):
    runs, folder = Store(results).read_all(), tmp_path / "to"
    folder.mkdir()
    stand_in.fails = True
    with pytest.raises(KeyboardInterrupt):
        wandb_runs.write(runs, folder)
    assert [p.name for p in folder.rglob("*")] == ["wandb"]
    stand_in.fails = False
    first = wandb_runs.write(runs, folder)
    assert len(stand_in.inits) == 3 and all((p / "run.wandb").is_file() for p in first)
    assert wandb_runs.write(runs, folder) == first and len(stand_in.inits) == 3
    assert sorted(p.name for p in folder.iterdir()) == ["wandb"]
    again = replace(runs[1], record={**runs[1].record, "metrics_sha256": "0" * 64})
    with pytest.raises(UserError, match=r"holds other results of .*, which was run again since; give another folder"):
        wandb_runs.write([again], folder)
    assert wandb_runs.write(runs, folder) == first


# wandb ships no reader for Python. Its file is a LevelDB log: blocks of 32 KiB, in them parts of records with crc,
# length and type (1 whole; 2, 3, 4 first, middle, last); then each record is a protobuf that wandb does ship.
READER = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2 as pb
data, place, record = open(sys.argv[1], "rb").read(), 7, b""
kept = {"config": {}, "history": [], "summary": {}}

def values(items):
    return {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}

while place + 7 <= len(data):
    if 32768 - place % 32768 < 7:
        place += 32768 - place % 32768
    _, length, kind = struct.unpack("<IHB", data[place : place + 7])
    record += data[place + 7 : place + 7 + length]
    place += 7 + length
    if kind in (1, 4):
        found, record = pb.Record.FromString(record), b""
        if found.HasField("run"):
            kept["id"] = found.run.run_id
            kept["config"] |= values(found.run.config.update)
        if found.HasField("history"):
            kept["history"].append(values(found.history.item))
        if found.HasField("summary"):
            kept["summary"] |= values(found.summary.update)
print(json.dumps(kept))
"""


@needs_extra("wandb")
def test_what_wandb_wrote_holds_config_history_and_summary(results: Path, tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from staleharness.exporters import wandb_runs\n"
        "from staleharness.store.store import Store\n"
        "print(*wandb_runs.write(Store(sys.argv[1]).read_all(), Path(sys.argv[2])), sep='\\n')"
    )
    command = [sys.executable, "-c", program, str(results), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    for run, path in zip(Store(results).read_all(), map(Path, done.stdout.splitlines()), strict=True):
        words = [sys.executable, "-c", READER, str(path / f"run-{run.id}.wandb")]
        kept = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        assert kept["id"] == run.id and {k: kept["config"][k] for k in run.spec} == run.spec
        skip = ("lag_histogram", "_")
        rows = ((row["steps"], *item) for row in kept["history"] for item in row.items())
        scalars = by_step(row for row in rows if not row[1].startswith(skip) and row[1] not in ("phase", "steps"))
        assert scalars == expected_scalars(run)
        assert [row["_step"] for row in kept["history"]] == list(range(len(kept["history"])))
        assert kept["summary"]["final/sampled"] == run.record["scores"]["sampled"]["mean"]


# --- mistakes


def test_mistakes_are_one_line_and_exit_2_and_write_nothing(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    monkeypatch.setattr(exporter, "package_version", lambda name: None)
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        ([], ["export needs tensorboard|wandb|csv"]),
        (["tensorbord"], ["'tensorbord'", "'tensorboard'"]),
        (["tensorboard", "--out", "results"], ["extra tensorboard", "make setup EXTRAS=tensorboard"]),
        (["wandb", "--out", "results"], ["extra wandb", "pip install 'staleharness[wandb]'"]),
        (["csv", "--out", "nowhere"], ["nowhere", "not a folder of results"]),
        (["csv", "--algo", "impala"], ["ALGO: no run here is of 'impala'; known: spo, vaco"]),
        (["csv", "--to", "file"], ["TO=file", "a file"]),
        (["csv", "--to", "file/below"], ["file/below"]),
        (["csv", "--to", ""], ["empty"]),
        (["csv", "--to", "results/runs/tables"], ["TO=results/runs/tables", "inside the runs of the results"]),
        (["csv", "--to", "results/x/../attempts"], ["inside the attempts of the results"]),
    ):
        code, out, err = cli("export", *arguments)
        assert (code, out) == (2, ""), (arguments, out, err)
        assert err.startswith("staleharness: ") and err.count("\n") == 1, err
        assert all(word in err for word in words), err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name, change", BROKEN_TABLES.items(), ids=BROKEN_TABLES)
@pytest.mark.parametrize("kind", ["csv", "wandb"])
def test_a_table_of_other_content_is_one_line(
    results: Path, stand_in: StandIn, cli: Cli, kind: str, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]
):
    """Its manifest was made anew, so that the run counts."""
    run = Store(results).read_all()[-1]
    file = run.path / name.split()[0]
    change(pd.read_parquet(file)).to_parquet(file)
    write_manifest(run.path)
    before = files(results)
    code, out, err = cli("export", kind, "--out", str(results))
    assert (code, out) == (2, "") and err.count("\n") == 1 and run.id in err and "away" in err
    assert files(results) == before and stand_in.inits == []


@pytest.mark.skipif(has_extra("wandb"), reason="the extra wandb is installed")
def test_a_folder_named_wandb_is_not_taken_for_the_extra(
    results: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """W&B leaves one in the folder that it is called in."""
    (results.parent / "wandb").mkdir()
    monkeypatch.syspath_prepend(results.parent)
    assert importlib.util.find_spec("wandb") is not None
    code, out, err = cli("export", "wandb", "--out", str(results))
    assert (code, out) == (2, "") and err.startswith("staleharness: export wandb needs the extra wandb")
