"""A stored run can be made again, and what differs is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from killing import swept
from known_plugins import TABULAR, loaded_plugins
from places import HELPERS
from sweeping import message, staleharness

from staleharness.base.files import read_json, write_json
from staleharness.commands import verify
from staleharness.running import plan_execution
from staleharness.running.plan import plan
from staleharness.running.rerun_comparison import BOUND, compare, replan
from staleharness.running.run_record import means_and_lags
from staleharness.running.sweep_event_loop import Outcome
from staleharness.store.bundle_writer import pack, unpack
from staleharness.store.store import Store
from staleharness.store.stored_run import StoredRun, write_manifest
from staleharness.study import sweep_request

TOY = HELPERS / "toy_kind.py"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of five phases, which nobody changes."""
    out = tmp_path_factory.mktemp("once") / "results"
    with loaded_plugins(TABULAR):
        swept(out, plan(sweep_request(env="random-mdp-0", k="2", algo="spo", seeds="2", steps="640")).runs)
    return out


@pytest.fixture
def results(once: Path, tmp_path: Path, tabular: Path) -> Path:
    return shutil.copytree(once, tmp_path / "results")


def change(run: StoredRun, record: dict[str, Any] | None = None, **columns: Any) -> StoredRun:
    """The run with other numbers, sealed anew; its means are those of its metrics unless `record` has others."""
    frame = run.metrics()
    for name, (phase, value) in columns.items():
        frame.loc[phase, name] = value
    frame.to_parquet(run.path / "metrics.parquet", index=False)
    changed = {**run.record, **means_and_lags(frame, replan(run).spec.fill_phases), **(record or {})}
    write_json(run.path / "run.json", changed)
    write_json(run.path / "job.json", {**read_json(run.path / "job.json"), "spec": changed["spec"]})
    write_manifest(run.path)
    found = Store(run.path.parents[1]).read(run.id)
    assert found is not None
    return found


def test_reruns_from_folder_run_and_bundle_have_equal_bits(results: Path, tmp_path: Path) -> None:
    pack(str(results), str(tmp_path / "bundle"), None)
    some = Store(results).read_all()[0].id
    places = [
        (results, 2),
        (results / "runs" / some, 1),
        (tmp_path / "bundle", 2),
        (tmp_path / "bundle/runs" / some, 1),
    ]
    for place, count in places:
        done = staleharness("verify", str(place), "--jobs", "2", "--out", str(tmp_path / "made"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("the same bits in all 5 phases and the final scores") == count
        assert f"{count} of {count} run" in done.stdout and "0 different, 0 not rerun" in done.stdout


def test_the_folder_of_a_run_is_known_from_inside(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Store(results).read_all()[0].path
    (tmp_path / "best").symlink_to(run)
    for folder, source in ((run.parent, run.name), (run, "."), (tmp_path, "best")):
        monkeypatch.chdir(folder)
        done = staleharness("verify", source, "--out", str(tmp_path / "made"))
        assert done.returncode == 0 and "1 of 1 run identical" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [("--env", "Hopper"), ("--k", "8"), ("--algo", "vaco"), ("--where", "lag=oldest")],
    ids=lambda words: words[0],
)
def test_filters_of_a_folder_are_refused_for_one_run(results: Path, tmp_path: Path, words: tuple[str, str]) -> None:
    run = Store(results).read_all()[0].path
    done = staleharness("verify", str(run), *words, "--out", str(tmp_path / "made"))
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "made").exists()
    name = words[0].removeprefix("--").upper()
    assert done.stderr == f"staleharness: {run} is one run, and {name} chooses among those of a folder; leave it out\n"


def test_the_first_difference_is_named_and_is_a_failure(results: Path) -> None:
    first, second = Store(results).read_all()
    change(first, lag_mean=(3, 7.5), tv_data=(4, 0.5))
    scores = {**second.record["scores"], "sampled": {**second.record["scores"]["sampled"], "mean": 1.0}}
    change(second, {"scores": scores})
    done = staleharness("verify", str(results), "--json")
    assert done.returncode == 1
    verdicts = {v["id"]: v for v in message(done)["runs"]}
    assert verdicts[first.id]["equal_phases"] == 3 and not verdicts[first.id]["holds"]
    assert verdicts[first.id]["first_difference"].startswith("phase 3: lag_mean 7.5 -> ")
    assert verdicts[second.id]["equal_phases"] == 5
    assert verdicts[second.id]["first_difference"] == "the final scores"
    assert "DIFFERS after 3 of 5 equal phases" in done.stderr and "2 different" in done.stderr


def test_a_run_that_was_not_rerun_does_not_count_as_equal(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Store(results).read_all()
    outcome = Outcome(done=[first.id], failed={second.id: {"class": "Diverged", "message": "in phase 2"}})
    monkeypatch.setattr(plan_execution, "execute_plan", lambda *given, **options: (outcome, [first]))
    assert verify.handle(verify.Command(source=str(results), out=str(tmp_path / "made"))) == 1
    out = capsys.readouterr().out
    assert "FAILED: Diverged: in phase 2" in out
    assert "1 of 2 runs identical bit for bit" in out and "0 different, 1 not rerun" in out


@pytest.fixture
def twice(results: Path, tmp_path: Path) -> tuple[StoredRun, StoredRun]:
    """A run, and what making it again comes to."""
    shutil.copytree(results, tmp_path / "made")
    return Store(results).read_all()[0], Store(tmp_path / "made").read_all()[0]


def test_the_sign_of_zero_is_a_difference(twice: tuple[StoredRun, StoredRun]) -> None:
    results, made = (change(run, lag_mean=(3, zero)) for run, zero in zip(twice, (0.0, -0.0), strict=True))
    verdict = compare(results, made)
    assert (verdict.phases, verdict.first) == (3, "phase 3: lag_mean 0.0 -> -0.0")


@pytest.mark.parametrize(("off", "holds"), [(BOUND / 2, True), (BOUND * 2, False)])
def test_another_kind_of_machine_is_held_to_the_bound(
    twice: tuple[StoredRun, StoredRun], off: float, holds: bool
) -> None:
    results, made = twice
    other = {"fingerprint": {**results.record["fingerprint"], "cpu": "Another CPU"}}
    verdict = compare(change(results, other, lag_mean=(0, off)), made)
    assert (verdict.identical, verdict.holds, verdict.phases) == (False, holds, 0)
    assert verdict.difference == pytest.approx(off) and verdict.machine_changes[0].startswith("cpu: Another CPU -> ")


@pytest.mark.parametrize("cpu", ["", "Another CPU"])
@pytest.mark.parametrize(
    ("part", "name", "value", "said"),
    [
        ("summary", "lag_mean", 99.0, r"its summary says lag_mean = 99, its metrics \d"),
        ("lag_histogram", "0", 7, r"its lag_histogram says 0 = 7, its metrics \d"),
    ],
)
def test_a_record_that_does_not_follow_from_its_metrics_is_damaged(
    twice: tuple[StoredRun, StoredRun], cpu: str, part: str, name: str, value: float, said: str
) -> None:
    stored, made = twice
    fingerprint = {**stored.record["fingerprint"], **({"cpu": cpu} if cpu else {})}
    wrong = {part: {**stored.record[part], name: value}, "fingerprint": fingerprint}
    verdict = compare(change(stored, wrong), made)
    assert not verdict.identical and not verdict.holds and bool(verdict.machine_changes) == bool(cpu)
    assert re.match(f"DAMAGED: {said}", verdict.text) and re.match(said, verdict.first)


def test_a_checksum_of_other_metrics_is_damage(twice: tuple[StoredRun, StoredRun]) -> None:
    stored, made = twice
    verdict = compare(change(stored, {"metrics_sha256": "0" * 64}), made)
    assert not verdict.holds and verdict.text == "DAMAGED: its metrics_sha256 is not that of its metrics"


def test_names_that_only_one_version_measures_are_no_damage(twice: tuple[StoredRun, StoredRun]) -> None:
    stored, made = twice
    summary = {k: v for k, v in stored.record["summary"].items() if k != "lag_mean"}
    assert compare(change(stored, {"summary": {**summary, "of_old": 1.0}}), made).identical


def test_another_version_of_the_harness_excuses_nothing(twice: tuple[StoredRun, StoredRun]) -> None:
    results, made = twice
    other = {"fingerprint": {**results.record["fingerprint"], "staleharness": "0.0.1"}}
    verdict = compare(change(results, other, lag_mean=(0, 1e-9)), made)
    assert not verdict.holds and not verdict.machine_changes


def test_changed_plugins_are_named(results: Path, tmp_path: Path) -> None:
    with loaded_plugins(TOY):
        (run,) = plan(sweep_request(env="toy", algo="spo", seeds="1", steps="3")).runs
        swept(tmp_path / "toys", (run,))
    edited = tmp_path / "toy_kind.py"
    edited.write_text(TOY.read_text() + "\nEDITED = True\n")
    done = staleharness("verify", str(tmp_path / "toys"), "--plugin", str(edited))
    assert done.returncode == 0 and "its plugins have changed since" in done.stdout


def test_a_race_of_processes_is_not_made_again(results: Path) -> None:
    for run in Store(results).read_all():
        change(run, {"spec": {**run.spec, "lag": "async"}})
    done = staleharness("verify", str(results))
    assert done.returncode == 2 and "only the trace beside its record replays it" in done.stderr


def test_a_setting_newer_than_a_run_has_the_value_before(results: Path) -> None:
    for run in Store(results).read_all():
        assert replan(run).run_id == run.id
        spec = json.loads((run.path / "run.json").read_text())["spec"]
        assert replan(run).spec.to_dict() == spec


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a folder of results"),
        (["results/runs/zzzzzzzzzzzz"], "RUN=results/runs/zzzzzzzzzzzz does not exist; results/runs holds"),
        (["results", "--n", "0"], "must be at least 1, or all"),
        (["results", "--env", "Ant"], "ENV: no run here is of 'Ant'"),
    ],
)
def test_what_cannot_be_verified_is_one_line(
    results: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(results.parent)
    done = staleharness("verify", *words)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_the_run_itself_and_a_copy_of_it_are_refused(once: Path, tmp_path: Path, tabular: Path) -> None:
    bundle, copy = tmp_path / "bundle", tmp_path / "copy"
    pack(str(once), str(bundle), None)
    unpack(str(bundle), str(copy))
    ids = [run.id for run in Store(once).read_all()]  # verify begins with the quickest, which is either
    pairs = [(once, once, ids), (bundle, copy, ids), (once / "runs" / ids[0], copy, ids[:1]), (bundle, bundle, ids)]
    for source, out, named in pairs:
        done = staleharness("verify", str(source), "--out", str(out))
        assert done.returncode == 2, done.stdout
        assert any(f"holds run {run} itself or a copy of it, not a rerun" in done.stderr for run in named)
        assert not done.stdout and done.stderr.count("\n") == 1
