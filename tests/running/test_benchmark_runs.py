"""StaleBench from a method to its verdict, on a track of seconds: what is run, what is not, what is refused."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known_plugins import loaded_plugins
from sweeping import staleharness

from staleharness import api
from staleharness.base import reference_results
from staleharness.errors import UserError
from staleharness.pages.leaderboard_page import write_page
from staleharness.running import benchmark_runs, forecast, leaderboard_submission
from staleharness.statistics.benchmark import protocol as protocols
from staleharness.statistics.benchmark.benchmark_table import BenchmarkTable, remarks
from staleharness.statistics.benchmark.protocol import preview_rates
from staleharness.store.bundle_writer import pack
from staleharness.store.store import Store

TOY = """
version = 1
track = "toy"
question = "?"
env = ["bit-chain"]
capacity = [1, 4]
lag = "oldest"
score = "sampled"
seeds = [0, 1]
tuning_seeds = [100]
rates = [1.0, 3.0]
methods = ["ppo_clip"]
source = "made up"
controls = [{ name = "wide", title = "a wide clip", methods = { 1 = "ppo_clip", 4 = "ppo_clip[clip=0.5]" } }]
[settings]
fill_phases = 3
steps = 8
horizon = 4
batch = 16
learning_rate = 0.1
evaluations = 2
[random]
bit-chain = 0.1
[reference]
bit-chain = 0.5
"""
MINE = """
from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("mine")
@dataclass(frozen=True)
class Mine(Algorithm):
    \"\"\"An importance-weighted gradient.\"\"\"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage, {})
"""


NAN = """d: Decisions) -> PolicyLoss:
        if bool((d.target_logp != d.behaviour_logp).any()):
            return PolicyLoss(float("nan") * importance_ratio(d.target_logp, d.behaviour_logp), {})"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a toy track, PPO-clip's published runs of it, and those of a plugin."""
    root = tmp_path_factory.mktemp("benchmark")
    (root / "tracks").mkdir()
    (root / "tracks/toy.toml").write_text(TOY)
    (root / "mine.py").write_text(MINE)
    (root / "reference").mkdir()
    with pytest.MonkeyPatch.context() as patch, loaded_plugins():
        patch.setattr(protocols, "protocol_folder", lambda: root / "tracks")
        patch.setattr(reference_results, "reference_folder", lambda: root / "reference")
        benchmark_runs.published_runs.cache_clear()
        run(root, "ppo_clip", out="ours")
        pack(str(root / "ours/toy"), str(root / "reference/stalebench_v1_toy"), None)
        benchmark_runs.published_runs.cache_clear()
        run(root, "mine")
        yield root
    benchmark_runs.published_runs.cache_clear()


def run(root: Path, algo: str | None = None, out: str = "out", **options: Any) -> BenchmarkTable:
    plugin = str(root / "mine.py") if algo and "mine" in algo else None
    return api.benchmark(algo, track="toy", out=root / out, plugin=plugin, jobs=2, **options)


@pytest.mark.long
def test_a_method_is_run_and_the_published_rows_are_not(place: Path) -> None:
    runs = Store(place / "out/toy").read_all()
    assert {run.spec["algorithm"] for run in runs} == {"mine"}
    assert len(runs) == 2 * (2 * 1 + 2)  # capacities x (rates x tuning seeds + seeds)
    table = run(place, "mine")
    row, base = table.row("mine", 4), table.row("ppo_clip", 4)
    assert row is not None and (row.n, row.missing, row.source) == (2, 0, "yours")
    assert base is not None and (base.n, base.source) == (2, "reference")
    assert row.p is not None and row.rate in (1.0, 3.0)
    assert {run.spec["fill_phases"] for run in runs} == {3}


def test_a_second_time_nothing_is_run_and_the_page_is_the_same(place: Path) -> None:
    protocol, pages = protocols.read_protocol("toy"), []
    for _ in range(2):
        heard: list[dict[str, Any]] = []
        table = run(place, "mine", progress=heard.append)
        assert not heard
        sources = {
            "reference": benchmark_runs.published_runs(protocol.name),
            "yours": Store(place / "out/toy").read_all(),
        }
        path = write_page(place / "out/toy", table, protocol, sources, remarks(table, "mine", "yours"))
        pages.append(path.read_bytes())
    assert pages[0] == pages[1]
    card = pages[0].decode().partition("An importance-weighted gradient.")[2].partition('class="card"')[0]
    assert "<polyline" in card and "mine" in card


def test_changed_code_of_a_published_method_is_refused_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of both codes is refused, which was found out only when all runs were made."""
    published = []
    for run_here in benchmark_runs.published_runs("stalebench_v1_toy"):
        published.append(replace(run_here, record={**run_here.record, "id": run_here.id[::-1]}))
        published[-1].__dict__["curves"] = run_here.curves  # no bundle has a run of this id
    monkeypatch.setattr(benchmark_runs, "published_runs", lambda name: published)
    with pytest.raises(
        UserError, match=r"ALGO=ppo_clip: the published runs of stalebench_v1_toy were made with other code"
    ):
        run(place, "ppo_clip", out="changed")
    assert not (place / "changed/toy/runs").exists()
    look = run(place, "ppo_clip", out="changed", quick=True)
    assert {row.source for row in look.rows if row.method == "ppo_clip"} == {"reference", "yours"}


def test_a_look_takes_the_first_seeds_at_the_rates_of_ppo_clip(place: Path) -> None:
    protocol = protocols.read_protocol("toy")
    missing = benchmark_runs.missing_runs_of(protocol, "tis", Store(place / "none"), look=1)
    rates = preview_rates(protocol, benchmark_runs.published_runs(protocol.name))
    assert 3.0 in rates.values()  # not the track's own
    assert [(r.spec.capacity, r.spec.seed, r.spec.learning_rate) for r in missing] == [
        (k, 0, protocol.rate(rates[k])) for k in protocol.capacity
    ]
    full = benchmark_runs.missing_runs_of(protocol, "tis", Store(place / "none"))
    assert len(full) == 8 and {r.spec.learning_rate for r in full} == {0.1, 0.3}


def test_a_control_has_its_method_at_each_capacity(place: Path) -> None:
    protocol = protocols.read_protocol("toy")
    missing = benchmark_runs.missing_runs_of(protocol, "wide", Store(place / "none"))
    assert {(run.spec.capacity, run.spec.hyper["clip"]) for run in missing} == {(4, 0.5)}  # at K = 1 it is published


def test_a_method_that_is_a_control_at_every_k_is_that_control(place: Path) -> None:
    protocol = protocols.read_protocol("toy")
    assert benchmark_runs.benchmark_method(protocol, "ppo_clip[clip=0.5]") == "ppo_clip[clip=0.5]"  # not at K = 1
    control = protocols.WidthControl("same", "the same", {"1": "ppo_clip[clip=0.5]", "4": "ppo_clip[clip=0.5]"})
    other = replace(protocol, controls=(*protocol.controls, control))
    assert benchmark_runs.benchmark_method(other, "ppo_clip[clip=0.5]") == "same"


def test_a_plugin_cannot_take_the_name_of_a_control(place: Path) -> None:
    (place / "named.py").write_text(MINE.replace('"mine"', '"wide"'))
    with loaded_plugins(), pytest.raises(UserError, match=r"^ALGO=wide is the name of a width control; register your"):
        api.benchmark("wide", track="toy", out=place / "unwritten", plugin=str(place / "named.py"))
    assert not (place / "unwritten").exists()


def note_divergence(folder: Path, run_id: str) -> None:
    attempt = Store(folder).latest_attempt(run_id)
    attempt.mkdir(parents=True)
    text = {"class": "Diverged", "message": "a loss is not finite", "log_tail": ""}
    (attempt / "failure.json").write_text(json.dumps(text))


def test_a_tuning_run_that_diverged_is_done(place: Path) -> None:
    """Its rate is left out at that K, the row is complete and shared, and its bundle names the rate."""
    protocol, copy = protocols.read_protocol("toy"), copy_without(place, seed=100, capacity=4, learning_rate=0.1)
    rest = benchmark_runs.missing_runs_of(protocol, "mine", Store(copy))
    (run_here,) = [r for r in rest if r.spec.seed == 100]
    words = ("benchmark", "--algo=mine", "--track=toy", f"--plugin={place / 'mine.py'}", f"--out={place / 'div'}")
    shutil.copytree(copy, place / "div/toy")
    note_divergence(place / "div/toy", run_here.run_id)
    staleharness(*words)
    done = staleharness(*words)
    assert done.returncode == 0 and "0 runs to do" in done.stderr and "start " not in done.stderr
    assert "K=4: diverged at learning rate x1, which the choice left out" in done.stdout
    assert "of this method missing" not in done.stdout and "to share this row" in done.stdout
    assert run_here.run_id in {
        r.run_id for r in benchmark_runs.missing_runs_of(protocol, "mine", Store(place / "div/toy"), restart=True)
    }
    pack(str(place / "div/toy"), str(place / "div_row"), None)
    table = run(place, add=place / "div_row")
    lines = remarks(table, "mine", "div_row")
    assert "K=4: has no tuning runs at learning rate x1, which the choice left out" in lines
    assert not any("of this method missing" in line for line in lines)


def test_a_method_that_diverges_under_lag_says_so_and_is_run_once(place: Path) -> None:
    body = MINE.replace('"mine"', '"mine_nan"').replace("d: Decisions) -> PolicyLoss:", NAN)
    (place / "nan.py").write_text(body)
    words = ("benchmark", "--algo=mine_nan", "--track=toy", f"--plugin={place / 'nan.py'}", f"--out={place / 'nan'}")
    first, second = staleharness(*words, "--jobs=2"), staleharness(*words)
    for done in (first, second):
        assert done.returncode == 1 and "K=4: diverged at every learning rate: no score and no rank" in done.stdout
        assert "to share this row" not in done.stdout
    assert "0 runs to do" in second.stderr and "FAILED" in first.stderr and "FAILED" not in second.stderr
    assert "K=4: diverged at every learning rate" in (place / "nan/toy/toy.html").read_text()


def test_a_bundle_with_previews_beside_its_row_has_the_row(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = place / "mixed"
    shutil.copytree(place / "out/toy", folder / "toy", dirs_exist_ok=True)
    run(place, "tis", out="mixed", quick=True)
    pack(str(folder / "toy"), str(place / "mixed_row"), None)
    table = run(place, add=place / "mixed_row")
    assert "4 runs of tis are no complete row, left out" in caplog.text
    rows = [row for row in table.rows if row.source == "mixed_row"]
    mine = run(place, "mine").row("mine", 4)
    assert {row.method for row in rows} == {"mine"} and mine is not None and rows[-1].scores == mine.scores


def test_runs_of_earlier_code_are_left_out_unless_they_are_a_row_too(place: Path) -> None:
    protocol, runs = protocols.read_protocol("toy"), Store(place / "out/toy").read_all()
    earlier = []
    for stored in runs:
        method = {**stored.record["method"], "code": "0123"}
        earlier.append(replace(stored, record={**stored.record, "id": stored.id[::-1], "method": method}))
        earlier[-1].__dict__["curves"] = stored.curves
    previews = [run for run in earlier if run.seed == 0]
    assert leaderboard_submission._complete_rows(protocol, "ADD=x", [*runs, *previews]) == runs
    both_rows = leaderboard_submission._complete_rows(protocol, "ADD=x", [*runs, *earlier])
    with pytest.raises(UserError, match="its plugin was changed in between"):
        protocols.runs_by_row(protocol, both_rows)


def test_a_stored_baseline_is_compared_with_where_none_is_published(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_runs, "published_runs", lambda name: ())
    folder = place / "both_rows"
    for runs in ("out/toy", "ours/toy"):
        shutil.copytree(place / runs, folder / "toy", dirs_exist_ok=True)
    done = staleharness(
        "benchmark", "--algo=mine", "--track=toy", f"--plugin={place / 'mine.py'}", f"--out={folder}", "--json"
    )
    assert done.returncode == 0
    row = next(r for r in json.loads(done.stdout)["rows"] if (r["method"], r["capacity"]) == ("mine", 4))
    assert row["holm"] is not None
    assert "are published or yours" in (folder / "toy/toy.html").read_text()
    tis = run(place, "tis", out="both_rows", quick=True).row("tis", 4)
    assert tis is not None and tis.kind == "preview" and tis.p is not None


def test_a_card_has_the_text_of_its_own_source(place: Path) -> None:
    protocol = protocols.read_protocol("toy")
    published, others = benchmark_runs.published_runs(protocol.name), []
    for run_here in published:
        method = {**run_here.record["method"], "summary": "A text of theirs."}
        others.append(replace(run_here, record={**run_here.record, "id": run_here.id[::-1], "method": method}))
        others[-1].__dict__["curves"] = run_here.curves
    table, sources = benchmark_runs.table_of(protocol, None, {"theirs": others}, Store(place / "none"))
    text = write_page(place / "cards", table, protocol, sources).read_text()
    assert text.count("A text of theirs.") == 1
    assert text.count(html.escape(published[0].record["method"]["summary"])) >= 1


def test_a_preview_of_a_control_is_a_row_of_its_name(place: Path) -> None:
    words = ("benchmark", "--algo=wide", "--track=toy", f"--out={place / 'look'}", "--quick", "--jobs=2")
    done = staleharness(*words)
    assert done.returncode == 0 and "a wide clip\n" in done.stdout and "a preview, not a result" in done.stdout
    page = (place / "look/toy/toy.html").read_text()
    assert "a wide clip (yours)" in page and "clip = 0.5" not in page


def test_a_bundle_of_a_third_party_stands_beside_ours(place: Path) -> None:
    bundle = place / "theirs"
    if not bundle.exists():
        pack(str(place / "out/toy"), str(bundle), None)
    table = run(place, add=bundle)
    row = table.row("mine", 4, "theirs")
    assert row is not None and row.n == 2 and row.p is not None
    mine = run(place, "mine").row("mine", 4)
    assert mine is not None and row.scores == mine.scores


def test_copies_of_published_rows_are_left_out_or_refused(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that stand in the table twice would count twice in Holm's correction."""
    both = place / "both"
    for runs in ("out/toy", "ours/toy"):
        shutil.copytree(place / runs, both / "runs", dirs_exist_ok=True)
    with pytest.raises(
        UserError, match=r"^ADD=\S+ours/toy: ppo_clip is a copy of published rows, and the bundle holds nothing else"
    ):
        run(place, add=place / "ours/toy")
    table = run(place, add=both / "runs")
    assert "runs: ppo_clip is a copy of published rows, left out" in caplog.text
    assert table.row("mine", 4, "runs") is not None and table.row("ppo_clip", 4, "runs") is None


def copy_without(place: Path, **cell: Any) -> Path:
    """Return a copy of the plugin's results without the runs of one cell."""
    copy = place / ("without-" + "-".join(f"{key}{value}" for key, value in cell.items()))
    shutil.copytree(place / "out/toy", copy, dirs_exist_ok=True)
    for stored in Store(copy).read_all():
        if all(stored.spec[key] == value for key, value in cell.items()):
            shutil.rmtree(stored.path)
    return copy


def test_a_bundle_that_lacks_runs_is_refused(place: Path) -> None:
    with pytest.raises(UserError, match=r"mine at K=4 lacks seed 1 at the learning rate that its tuning runs choose"):
        run(place, add=copy_without(place, seed=1, capacity=4))
    with pytest.raises(
        UserError, match=r"mine at K=1 lacks tuning runs at every learning rate; one rate needs all seeds, 100"
    ):
        run(place, add=copy_without(place, seed=100, capacity=1))


@pytest.mark.parametrize("name", ["reference", "complete", "yours"])
def test_a_bundle_cannot_take_the_place_of_other_rows(place: Path, name: str) -> None:
    """Rows of a page are told apart by the names of folders."""
    copy = place / "named" / name
    shutil.copytree(place / "out/toy", copy, dirs_exist_ok=True)
    (place / "link").unlink(missing_ok=True)
    (place / "link").symlink_to(copy)
    for bundle in (copy, place / "link"):
        with pytest.raises(
            UserError, match=rf"^ADD=.*: the page already uses the name '{name}' for other rows; rename the folder$"
        ):
            run(place, add=bundle)


def test_a_bundle_of_other_rules_is_refused(place: Path) -> None:
    """The first setting that differs is named, though no rule of the track mentions it."""
    out = place / "strangers"
    settings = {"fill_phases": 3, "steps": 8, "horizon": 4, "batch": 16, "learning_rate": 0.1, "evaluations": 2}
    api.sweep(env="bit-chain", algo="tis", lag="oldest", seeds=1, settings={**settings, "discount": 0.9}, out=out)
    with pytest.raises(
        UserError, match=r"does not follow stalebench_v1_toy \(\w{12}\): discount=0\.9, but the protocol"
    ):
        run(place, add=out)


def test_a_run_that_is_older_than_a_setting_has_its_default_of_then(place: Path) -> None:
    protocol = protocols.read_protocol("toy")
    run = Store(place / "out/toy").read_all()[0]
    settings = {"bit-chain": leaderboard_submission._settings_of(protocol, "bit-chain")}
    assert leaderboard_submission._difference(protocol, run, settings) is None
    older = {key: value for key, value in run.spec.items() if key != "fill_phases"}
    found = leaderboard_submission._difference(protocol, replace(run, record={**run.record, "spec": older}), settings)
    assert found == "fill_phases=0, but the protocol says 3"


@pytest.mark.parametrize(
    "given, words",
    [
        ({"track": "toys"}, "TRACK='toys' is unknown; did you mean 'toy'"),
        ({"algo": "ppo_clap"}, "did you mean 'ppo_clip'"),
        ({"algo": "ppo_clip,tis"}, "a benchmark takes one method"),
        ({"algo": "all"}, "a benchmark takes one method"),
        ({"algo": "tis[lag=uniform]"}, "lag is a setting of runs, and stalebench toy fixes it"),
        ({"algo": "tis[learning_rate=0.1]"}, "learning_rate is a setting of runs, and the protocol chooses it"),
        ({"algo": "vaco[kl_estimator=closed_form]"}, "closed"),
        ({"algo": "ppo_clip", "add": "nowhere"}, "ADD=nowhere is not a folder of results"),
        ({"quick": True, "add": "nowhere"}, "ADD=nowhere is not a folder"),
        ({"quick": True}, "QUICK is for a preview of a method, and ADD has whole rows; give ALGO"),
        ({"one_rate": True}, "ONE_RATE is for a preview of a method, and ADD has whole rows; give ALGO"),
        ({"algo": "tis", "quick": True, "one_rate": True}, "QUICK and ONE_RATE: 2 seeds or 2 at one rate; give one"),
    ],
    ids=str,
)
def test_a_mistake_is_said_before_anything_is_written(place: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        api.benchmark(**{"track": "toy", "out": place / "unwritten", **given})
    assert not (place / "unwritten").exists()


def test_the_command_ends_with_a_verdict_and_a_page(place: Path) -> None:
    words = ("benchmark", "--algo=mine", "--track=toy", f"--plugin={place / 'mine.py'}", f"--out={place / 'out'}")
    pages = []
    for _ in range(2):
        done = staleharness(*words)
        assert done.returncode == 0
        assert "stalebench toy v1 (protocol " in done.stdout and "K=4: rank" in done.stdout
        pages.append(Path(done.stdout.rpartition("page: ")[2].strip()).read_bytes())
    assert pages[0] == pages[1]
    share = f"to share this row: staleharness pack {place / 'out'}/toy mine_row"
    assert share in done.stdout and share in pages[0].decode()
    assert "0 runs to do; nothing to do" in done.stderr
    assert "to share" not in staleharness(*words, "--quick").stdout  # a look is no row
    dry = staleharness(*words, "--dry", "--json")
    assert json.loads(dry.stdout) == {"dry": True, "plan": [], "seconds": 0.0, "bytes": 0, "checkpoint_bytes": 0}


@pytest.mark.long
def test_a_row_of_edited_code_is_shared_without_earlier_runs(place: Path) -> None:
    plugin = place / "mine.py"
    shutil.copytree(place / "out/toy", place / "edits/toy")
    words = ("benchmark", "--algo=mine", "--track=toy", f"--plugin={plugin}", f"--out={place / 'edits'}", "--jobs=2")
    try:
        plugin.write_text(MINE.replace("-importance_ratio", "-0.5 * importance_ratio"))
        done = staleharness(*words)
    finally:
        plugin.write_text(MINE)
    assert done.returncode == 0, done.stderr
    share = done.stdout.partition("to share this row: staleharness ")[2].splitlines()[0].split()
    codes = {run.code for run in Store(place / "edits/toy").read_all()}
    assert len(codes) == 2 and share[-1].removeprefix("--code=") in codes
    bundles = [place / "edited_row", place / "both_rows"]
    pack(share[1], str(bundles[0]), None, code=share[-1].removeprefix("--code="))
    pack(share[1], str(bundles[1]), None)
    rows = [row for row in run(place, add=bundles[0]).rows if row.source == "edited_row"]
    assert {row.method for row in rows} == {"mine"}
    with pytest.raises(UserError, match=r"leave one of them out, e\.g\. by `staleharness pack FOLDER BUNDLE --code="):
        run(place, add=bundles[1])
    with pytest.raises(UserError, match=r"--code=zz: .* holds no run of it; known: "):
        pack(share[1], str(place / "none"), None, code="zz")


def test_a_dry_run_of_a_bundle_alone_has_an_empty_plan(place: Path) -> None:
    shutil.copytree(place / "out/toy", place / "lab")
    words = "benchmark", f"--add={place / 'lab'}", "--track=toy", f"--out={place / 'dry'}"
    done = staleharness(*words, "--dry", "--json")
    assert done.returncode == 0 and "lab follows the protocol" in done.stderr
    assert json.loads(done.stdout) == {"dry": True, "plan": [], "seconds": 0.0, "bytes": 0, "checkpoint_bytes": 0}


def test_a_page_without_runs_is_written_again(place: Path) -> None:
    """Nothing has to run: the method is published."""
    words = ("benchmark", "--algo=ppo_clip", "--track=toy", f"--out={place / 'page'}")
    for _ in range(2):
        done = staleharness(*words)
        assert done.returncode == 0 and (place / "page/toy/toy.html").is_file(), done.stderr


def test_a_dry_run_checks_resources_and_lists_the_runs(place: Path) -> None:
    words = ("benchmark", "--algo=mine", "--track=toy", f"--plugin={place / 'mine.py'}", f"--out={place / 'dry'}")
    done = staleharness(*words, "--dry", "--quick", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["plan"]) == 2 * 2  # K, seeds
    plan = json.loads(staleharness(*words, "--dry", "--one-rate", "--json").stdout)["plan"]
    assert len(plan) == 2 * 2 and not {run["spec"]["seed"] for run in plan} & {100}
    done = staleharness(*words, "--dry", "--jobs=0")
    assert (done.returncode, done.stdout) == (2, "") and "JOBS=0 must be at least 1" in done.stderr
    assert not (place / "dry").exists()


def test_a_benchmark_that_is_stopped_prints_json(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = benchmark_runs.BenchmarkRuns(interrupted=True, missing=3)
    monkeypatch.setattr(benchmark_runs, "run_method", lambda *arguments: runs)
    done = staleharness("benchmark", "--algo=ppo_clip", "--track=toy", f"--out={place / 'page'}", "--json")
    assert done.returncode == 130 and json.loads(done.stdout) == {"stopped": True, "missing": 3}


FAILS = """d: Decisions) -> PolicyLoss:
        if d.lag.max() > 0:
            raise OSError("the disk is full")"""


def test_a_failure_names_its_run_and_the_log(place: Path) -> None:
    body = MINE.replace('"mine"', '"mine_fails"').replace("d: Decisions) -> PolicyLoss:", FAILS)
    (place / "fails.py").write_text(body)
    out = place / "fails"
    done = staleharness(
        "benchmark", "--algo=mine_fails", "--track=toy", f"--plugin={place / 'fails.py'}", f"--out={out}", "--quick"
    )
    lines = done.stderr.splitlines()
    places = [i for i, line in enumerate(lines) if line.startswith("failed: ")]
    assert len(places) == 2
    for seed, i in enumerate(places):
        name = f"mine_fails[learning_rate=0.3] bit-chain K=4 seed {seed}"
        assert lines[i].startswith(f"failed: {name}: OSError: the disk is full")
        assert lines[i + 1].startswith("        log: ")
        assert "the disk is full" in Path(lines[i + 1].partition("log: ")[2]).read_text()
    with pytest.raises(api.RunsFailed, match=r"mine_fails\[learning_rate=0.3\] bit-chain K=4 seed 0: OSError") as error:
        api.benchmark("mine_fails", track="toy", plugin=place / "fails.py", out=out, quick=True)
    assert {*next(iter(error.value.failed.values()))} >= {"class", "message", "log_tail"}


def test_the_estimate_names_only_options_of_the_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "similar_runs", lambda *_: None)
    words = ("benchmark", "--algo=mine", "--track=toy", f"--plugin={place / 'mine.py'}", f"--out={place / 'dry'}")
    done = staleharness(*words, "--dry", "--quick")
    assert done.returncode == 0
    assert done.stderr.strip().endswith("no estimate of the time: no stored run is like those on bit-chain")


def test_the_command_without_a_method_says_what_to_give(place: Path) -> None:
    done = staleharness("benchmark", "--track=toy")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "ALGO is missing; give a method, e.g. ALGO=my_idea" in done.stderr
