"""A lag model of somebody else's is one file: found, listed, planned, run, written down, and part of the run's id."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.errors import Changed, UserError
from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep, option, parse_lag, read_lag
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.plugin_listing import as_text, catalogue
from staleharness.running.runner_interface import Job
from staleharness.running.worker import check_plugins, execute
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.testing import LAG_CHECKS, check_lag_model
from staleharness.training.loop import simulation_of

FILE = '''"""A few actors are slow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("stragglers")
@dataclass(frozen=True)
class Stragglers(LagModel):
    """Every `of_each`-th actor is `behind` phases late, and of its rows one a phase is dropped."""

    paper = "Nobody 2026"

    behind: int = 1  # phases
    of_each: int = 4  # actors

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("behind", self.behind >= 1, "at least 1")

    def assign(self, draw: Draw) -> Assignment:
        slow = np.arange(draw.slots) % self.of_each == 0
        late = min(self.behind, draw.phase)
        versions = draw.phase - late * slow
        return replace(keep(versions), ledger={"dropped": int(slow.sum()), "in_flight": late})

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        late = phase - min(self.behind, phase)
        return {phase: 1.0} if late == phase else {phase: 1 - 1 / self.of_each, late: 1 / self.of_each}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.behind + 1, capacity)
'''


@pytest.fixture(params=["file", "folder", "folder of kinds"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin file, found in each of the ways that there are."""
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", dict(LAGS._classes))
    monkeypatch.setattr(LAGS, "_loaded_files", dict(LAGS._loaded_files))
    monkeypatch.setattr(LAGS, "_complete", None)
    folder = tmp_path / "plugins"
    path = folder / ("lags" if request.param == "folder of kinds" else ".") / "stragglers.py"
    path.parent.mkdir(parents=True)
    path.write_text(FILE)
    monkeypatch.setenv(PATH_VARIABLE, str(path if request.param == "file" else folder))
    return path.resolve()


def plan_run(lag: str, **given: Any) -> PlannedRun:
    settings = "horizon=6,batch=8,minibatches=1,evaluations=1"
    asked = sweep_request(
        env="bit-chain", algo="seq_is", k="3", lag=lag, seeds="1", steps="3", settings=settings, **given
    )
    (run,) = plan(asked).runs
    return run


def test_it_keeps_the_contract_and_is_listed_like_a_built_in_one(file: Path) -> None:
    for text in ("stragglers", "stragglers:2", "stragglers[behind=2,of_each=10]"):
        check_lag_model(read_lag(text))
    content = json.loads(json.dumps(catalogue()))
    (entry,) = [entry for entry in content["lags"] if entry["name"] == "stragglers"]
    assert entry == {
        "name": "stragglers",
        "paper": "Nobody 2026",
        "usage": "stragglers",
        "file": str(file),
        "family": "drawn in each phase",
        "summary": "Every `of_each`-th actor is `behind` phases late, and of its rows one a phase is dropped.",
        "hyper_parameters": {"behind": 1, "of_each": 4},
    }
    assert sorted(entry["name"] for entry in content["lags"]) == sorted(LAGS)
    families = [entry["family"] for entry in content["lags"]]
    assert families == sorted(families, key=families.index), "those of a family stand together"
    text = as_text(content)
    assert "options: behind=1, of_each=4" in text and f"file:    {file}" in text
    assert "fixed:<lag>: Always `lag` phases behind" in text


def test_a_model_whose_options_follow_from_k_keeps_the_contract(file: Path) -> None:
    text = FILE.replace("behind: int = 1", "behind: int = -1").replace("self.behind >= 1", "self.behind >= -1")
    at = "    def at(self, capacity: int) -> LagModel:\n        return replace(self, behind=capacity // 2)\n"
    file.write_text(f"{text}\n{at}")
    check_lag_model(read_lag("stragglers"))


def test_its_options_are_written_and_checked_like_an_algorithms(file: Path) -> None:
    assert read_lag("stragglers[of_each=4,behind=1]").text == "stragglers"
    assert read_lag("stragglers:2").text == "stragglers:2" == read_lag("stragglers[behind=2]").text
    assert read_lag("stragglers[of_each=8]").text == "stragglers[of_each=8]"
    assert read_lag("stragglers[of_each=8,behind=2]/sync:5").text == "stragglers[behind=2,of_each=8]/sync:5"
    for text, words in {
        "stragglers:0": "LAG=stragglers: behind must be at least 1, not 0",
        "stragglers[behnd=2]": "unknown option 'behnd'; did you mean 'behind'?",
        "stragglers:3": "LAG=stragglers:3 needs a buffer of at least K=4",
        "straglers": "did you mean 'stragglers'?",
        "stragglers:soon": "behind=soon is not a whole number",
    }.items():
        with pytest.raises(UserError) as error:
            parse_lag(text, 3)
        assert words in str(error.value) and "\n" not in str(error.value)


def test_three_phases_on_the_bit_chain_have_its_lags_and_ledger(file: Path) -> None:
    """Episodes 0 and 4 of 8, with 6 bits each, are two phases late as soon as two have passed."""
    records = [record.metrics for record in simulation_of(plan_run("stragglers:2").spec)]
    assert [m["lag_mean"] for m in records] == pytest.approx([0.0, 0.25, 0.5])
    assert [m["lag_max"] for m in records] == [0, 1, 2]
    assert [(m["lag_dropped"], m["lag_in_flight"]) for m in records] == [(2, 0), (2, 1), (2, 2)]
    assert not {key for key in records[0] if key in ("lag_waited", "lag_in_queue")}


def test_the_ledger_is_written_down_with_the_run(file: Path, tmp_path: Path) -> None:
    run = plan_run("stragglers:2")
    Store(tmp_path / "out").open_for_writing()
    job = Job(run.run_id, run.label, run.spec.to_dict(), str(tmp_path / "out"))
    folder = execute(job, lambda told: None, lambda: False)
    assert pd.read_parquet(folder / "metrics.parquet")["lag_in_flight"].tolist() == [0, 1, 2]
    record = json.loads((folder / "run.json").read_text())
    assert record["spec"]["lag"] == "stragglers:2" and record["summary"]["lag_dropped"] == 2.0


def test_its_file_is_part_of_the_id_of_its_runs_and_of_no_others(file: Path) -> None:
    texts = ("stragglers", "stragglers/sync:2", "uniform", "uniform/sync:2")
    before = {text: plan_run(text) for text in texts}
    job = Job(before["stragglers"].run_id, "seq_is", before["stragglers"].spec.to_dict(), "")
    plain = Job(before["uniform"].run_id, "seq_is", before["uniform"].spec.to_dict(), "")
    file.write_text("# a comment\n" + FILE)
    assert {text: plan_run(text).run_id for text in texts} == {text: run.run_id for text, run in before.items()}
    check_plugins(job)
    file.write_text(FILE.replace("% self.of_each == 0", "% self.of_each == 1"))
    after = {text: plan_run(text).run_id for text in texts}
    assert [text for text in texts if after[text] != before[text].run_id] == list(texts[:2])
    check_plugins(plain)
    with pytest.raises(Changed, match=r"stragglers.py \(or a file that it imports\) was edited since the sweep began"):
        check_plugins(job)


BROKEN = {
    "is_a_listed_model": ("    def check", "    def __hash__(self):\n        return id(self)\n\n    def check"),
    "is_read_as_it_is_written": ("    def check", "    text = 'uniform'\n\n    def check"),
    "assigns_versions_that_the_buffer_holds": ("late = min(self.behind, draw.phase)\n", "late = self.behind\n"),
    "is_a_function_of_the_question": (  # every second answer is another one
        "late = min(",
        "type(self).calls = getattr(type(self), 'calls', 0) + 1\n        late = type(self).calls % 2 * min(",
    ),
    "counts_in_the_words_of_the_ledger": ('"dropped"', '"lost"'),
    "draws_as_its_probabilities_say": ("% self.of_each == 0", "% self.of_each != 0"),
    "schedules_rows_that_a_run_can_be_made_of": (  # of versions that do not exist yet
        "    def check",
        "    drawn = False\n\n    def schedule(self, demand):\n        from staleharness.lag import read_lag\n"
        "        plan = read_lag('delay:2').schedule(demand)\n"
        "        return replace(plan, version=plan.version + 1)\n\n    def check",
    ),
}


def broken_model(file: Path, right: str, wrong: str) -> LagModel:
    """The model of the plugin with one place changed."""
    assert FILE.count(right) == 1
    file.write_text(FILE.replace(right, wrong))
    model: LagModel = LAGS["stragglers"](behind=2)  # type: ignore[call-arg]
    return model


def test_every_check_is_seen_to_fail_once() -> None:
    assert set(BROKEN) == {check.__name__ for check in LAG_CHECKS}


@pytest.mark.parametrize("file", ["file"], indirect=True)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_caught(name: str, file: Path) -> None:
    model = broken_model(file, *BROKEN[name])
    (check,) = [check for check in LAG_CHECKS if check.__name__ == name]
    with pytest.raises(AssertionError):
        check(model)
    with pytest.raises(AssertionError, match=r"stragglers:2: |uniform: "):
        check_lag_model(model)


MESSAGES = {
    "a list": ("return replace(keep(versions)", "return list(versions)\n        return replace(keep(versions)"),
    "numbers of another kind": ("keep(versions)", "Assignment(versions[:, None] / 1.0)"),
    "too few rows": ("keep(versions)", "keep(versions[1:])"),
    "a version that is not held": ("late = min(self.behind, draw.phase)\n", "late = self.behind\n"),
    "a name of its own": ('"dropped"', '"lost"'),
    "half a row": ('"in_flight": late', '"in_flight": late / 2'),
    "other versions each time": (
        "late = min(",
        "type(self).calls = getattr(type(self), 'calls', 0) + 1\n        late = type(self).calls % 2 * min(",
    ),
    "another ledger each time": (
        '"in_flight": late',
        '"in_flight": setattr(type(self), "calls", 1 - getattr(type(self), "calls", 0)) or type(self).calls',
    ),
    "another distribution": ("{phase: 1 - 1 / self.of_each, late: 1 / self.of_each}", "{phase: 0.6, late: 0.4}"),
    "no distribution": ("{phase: 1 - 1 / self.of_each, late: 1 / self.of_each}", "{phase: 0.6}"),
}
WORDS = {
    "a list": "assign returns a list, not an Assignment",
    "numbers of another kind": "assigned versions as a ndarray of float64; give an array of whole numbers",
    "too few rows": r"assigned versions of shape \(5, 1\) in phase 0, where \(6, 1\) was asked for",
    "a version that is not held": "assigned versions -2 to 0 in phase 0, where the buffer holds 0 to 0",
    "a name of its own": "counts 'lost'; a ledger has dropped, waited, in_flight, in_queue",
    "half a row": "counts 0.0 rows as 'in_flight'; give a whole number, not below 0",
    "other versions each time": r"same Draw\(.*\) got versions=\[.*\] first and versions=\[.*\] later; .*generator",
    "another ledger each time": r"the same Draw\(.*\) got ledger=\{.*\} first and ledger=\{.*\} later",
    "another distribution": r"0\.\d+ of the rows begin with version \d+, where probabilities\(\d+, \d+\) gives 0\.[46]",
    "no distribution": r"probabilities\(\d+, \d+\) returns \{.*\}; give \{version: probability\} of versions",
}


@pytest.mark.parametrize("file", ["file"], indirect=True)
@pytest.mark.parametrize("name", MESSAGES)
def test_the_contract_says_what_is_wrong(name: str, file: Path) -> None:
    model = broken_model(file, *MESSAGES[name])
    with pytest.raises(AssertionError, match=WORDS[name]):
        check_lag_model(model)


SHARED = """
    def assign(self, draw: Draw) -> Assignment:
        lags = draw.generator().choice(len(draw.held), p=self.shares(len(draw.held)))
        return keep(np.full(draw.slots, draw.phase - lags))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        held_versions = held(phase, capacity)
        return dict(zip(reversed(held_versions), self.claims(len(held_versions)), strict=True))

    def shares(self, n: int) -> np.ndarray:
        return np.full(n, 1 / n)

    def claims(self, n: int) -> np.ndarray:
        return SHARES
"""


@pytest.mark.parametrize("file", ["file"], indirect=True)
@pytest.mark.parametrize(
    ("claims", "keeps"),
    [
        ("np.full(n, 1 / n)", True),
        ("np.arange(1, n + 1) / np.arange(1, n + 1).sum()", False),
        ("np.array([1.0] if n == 1 else [0.7, *np.full(n - 1, 0.3 / (n - 1))])", False),
    ],
)
def test_rows_may_share_one_draw(claims: str, keeps: bool, file: Path) -> None:
    head, _, tail = FILE.partition("    def assign")
    file.write_text(head + SHARED.replace("SHARES", claims) + "\n    def check" + tail.partition("    def check")[2])
    model = LAGS["stragglers"]()
    if keeps:
        check_lag_model(model)
    else:
        with pytest.raises(AssertionError, match=r"draws_as_its_probabilities_say.* over \d+ draws 0\.\d+ of the rows"):
            check_lag_model(model)


def test_a_file_that_claims_a_taken_name_is_told_both_files(file: Path) -> None:
    shutil.copy(file, file.with_name("again.py"))
    (file.with_name("again.py")).write_text(FILE.replace('"stragglers"', '"uniform"'))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(PATH_VARIABLE, str(file.parent))
        with pytest.raises(UserError, match=r"claimed twice: .*lag_distributions\.py and .*again\.py"):
            list(LAGS)


@pytest.mark.parametrize("versions", [[0.5, 1.0], [np.nan, 1.0], 1, [[0], [1]], ["0", "1"]])
def test_versions_that_are_no_whole_numbers_are_one_line(versions: Any) -> None:
    with pytest.raises(UserError, match="keep takes a whole number for each row, not"):
        keep(versions)
    assert keep([1.0, 2.0]).versions.tolist() == [[1], [2]]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Around(LagModel):
    """A wrapper that names a file itself."""

    of: str = "uniform"
    table: str = option("", path=True)

    def assign(self, draw: Draw) -> Assignment:
        return read_lag(self.of).assign(draw)

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return read_lag(self.of).probabilities(phase, capacity)


@pytest.mark.parametrize("outer", ["{}/cap:3", "sync[every=3,of={}]", "around[of={}]", "around[of={}/sync:5]"])
@pytest.mark.parametrize("inner", ["around[table={}]", "log[tail=cut,file={}]", "around[of=around[of=log:{}]]"])
def test_files_at_any_depth_count_by_content(
    inner: str, outer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", {**LAGS._classes, "around": Around})
    monkeypatch.setattr(Around, "name", "around")
    monkeypatch.chdir(tmp_path)
    for name, lag in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / f"{name}.csv").write_text(f"lag\n{lag}\n")
    texts = [outer.format(inner.format(name)) for name in ("a.csv", f"{tmp_path}/a.csv", "b.csv", "c.csv")]
    models = [read_lag(text) for text in texts]
    assert models[0] == models[1] and str(tmp_path) in models[0].text
    assert models[0].identity == models[2].identity != models[3].identity and str(tmp_path) not in models[0].identity


@dataclass(frozen=True)
class BaseOption(Around):
    """A wrapper whose option has another name, so that it says itself what it wraps."""

    base: str = "uniform"
    of: str = "that"

    def parts(self) -> tuple[LagModel, ...]:
        return (self, *read_lag(self.base).parts())


def test_a_wrapper_may_name_its_option_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", {**LAGS._classes, "base_option": BaseOption})
    monkeypatch.setattr(BaseOption, "name", "base_option")
    monkeypatch.chdir(tmp_path)
    forms = ["log:{}", "log[file={},column=lag]", "log[column=lag,file={}]"]  # the last two are not canonical
    for form in forms:
        identities = []
        for lag in (1, 1, 2):
            (tmp_path / "a.csv").write_text(f"lag\n{lag}\n")
            identities.append(read_lag(f"base_option[base={form.format(tmp_path / 'a.csv')},of=this]").identity)
        assert identities[0] == identities[1] != identities[2] and "of=this" in identities[0]


def test_a_wrapper_has_one_text_for_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", {**LAGS._classes, "around": Around})
    monkeypatch.setattr(Around, "name", "around")
    texts = ["geometric:0.50/around", "around[of=geometric[decay=0.5]]", "around:geometric:.5"]
    assert {read_lag(text).text for text in texts} == {"around:geometric:0.5"}
    with pytest.raises(UserError, match="'unifrm' is not a lag model"):
        read_lag("around[of=unifrm]")


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("log:{}", "log:1e2f7416ca57c2a3"),
        ("log:{}/cap:3", "cap[max=3,of=log:1e2f7416ca57c2a3]"),
        ("log:{}/sync:8", "sync[every=8,of=log:1e2f7416ca57c2a3]"),
        ("log:{}/sync:8/cap:3", "cap[max=3,of=log:1e2f7416ca57c2a3/sync:8]"),
        ("log:{}/cap:3/sync:8", "sync[every=8,of=cap[max=3,of=log:1e2f7416ca57c2a3]]"),
        ("uniform/sync:8/cap:3", "cap[max=3,of=uniform/sync:8]"),
    ],
)
def test_identities_of_built_in_models_stay(text: str, identity: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("lag\n1\n")
    assert read_lag(text.format(tmp_path / "a.csv")).identity == identity
