"""Records that somebody else has written: an entry of wrong type, out of bounds, absent or nested is refused in one
line, or read by every reader of results without a traceback."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import ROOT
from results_helper import write_run

from staleharness import cli
from staleharness.base.files import digest
from staleharness.statistics.scores import NORMALISATIONS, SCORES
from staleharness.store.bundle_reader import FILES, RUNS
from staleharness.store.bundle_writer import pack
from staleharness.store.record_schema import RecordSchema, SpecSchema, TaskSchema, parse_record, record_problem

BUNDLE = ROOT / "results/reference/real_lag"  # whose records have every entry there is
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x" * 5_000,
    "\x1b[31m",
    "\ud800",
    [],
    [1],
    {},
    {"x": {"x": {"x": {"x": 1}}}},
    [[[[1]]]],
]
Place = tuple[str | int, ...]


def places(content: Any, above: Place = ()) -> Iterator[Place]:
    """Every entry of a record, two at most of a list, by names and numbers from the top."""
    if above:
        yield above
    listed = range(min(2, len(content))) if isinstance(content, list) else ()
    for name in content if isinstance(content, dict) else listed:
        yield from places(content[name], (*above, name))


def change(record: dict[str, Any], place: Place, *value: Any) -> dict[str, Any]:
    """A copy with another value at a place, or with none."""
    new = copy.deepcopy(record)
    *parents, last = place
    content: Any = new
    for name in parents:
        content = content[name]
    if value:
        content[last] = value[0]
    else:
        del content[last]
    return new


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    """A published run as its bundle holds it."""
    found: dict[str, Any] = pq.read_table(BUNDLE / RUNS).slice(0, 1).to_pylist()[0]
    return found


def job_of(row: dict[str, Any], record: dict[str, Any]) -> str:
    """The job that a forger writes beside a record: with its settings, but for the place of the run."""
    job = json.loads(row["job"])
    place = {name: job["spec"][name] for name in ("env", "algorithm", "capacity", "seed")}
    return json.dumps(job | ({"spec": record["spec"] | place} if isinstance(record.get("spec"), dict) else {}))


def fault(row: dict[str, Any], record: dict[str, Any]) -> str | None:
    """Describe the problem of a record once it is text."""
    try:
        return record_problem(parse_record(json.dumps(record)), row["id"], parse_record(job_of(row, record)))
    except ValueError as error:
        return str(error)


def test_published_records_are_valid_and_every_entry_is_bounded(row: dict[str, Any]) -> None:
    record = json.loads(row["record"])
    assert fault(row, record) is None
    never = [float("nan"), float("inf"), 10**30, 1e300, "x" * 5_000, "\x1b[31m", "\ud800", [[[[1]]]]]
    every = list(places(record))
    assert len(every) > 200
    for place in every:
        if place in (("format",), ("id",)):  # of another format, or another run
            continue
        for value in never:
            problem = fault(row, change(record, place, value))
            assert problem and "\n" not in problem and problem.isprintable() and len(problem) < 400, (place, value)


def test_entries_that_are_required_are_missed(row: dict[str, Any]) -> None:
    record = json.loads(row["record"])
    for schema, above in ((RecordSchema, ()), (SpecSchema, ("spec",)), (TaskSchema, ("task",))):
        hints = get_type_hints(schema, include_extras=True)
        required = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
        for name in required - {"format"}:
            assert fault(row, change(record, (*above, name))), (above, name)
    for place in (("seconds", "total"), ("seconds", "evaluate"), ("scores", record["task"]["score"])):
        assert "missing required field" in (fault(row, change(record, place)) or ""), place


ENTRIES = {"generated": 9, "trained": 5, "dropped": 2, "masked": 1, "queued": 1, "reused": 3}
SCORE = {"mean": 0.5, "std": 0.5, "returns": [0.0, 1.0], "lengths": [1, 2]}
# Every entry that a record may have, with those that readers rely on where it is there.
WHOLE: dict[str, Any] = {
    "before": {"lag": "uniform", "epochs": 1, "fill_phases": 0, "warm_phases": 0},
    "method": {"family": "a", "level": "b", "summary": "c", "paper": "d", "needs": ["e"], "touches": {"clipped": "f"}},
    "warnings": ["a warning"],
    "lags": {kind: {"0": 5, "1": 5} for kind in ("assigned", "realised", "trained")},
    "ledger": {"sequences": ENTRIES, "decisions": ENTRIES},
    "pipeline_ledger": {"rows": ENTRIES},
    "promise": {"cap": 1, "expected": 0.5, "mean": 0.5},
    "peak_memory": 1,
    "checkpoint_bytes": 1,
    "scores": {
        "sampled": SCORE,
        "deterministic": {**SCORE, "wilson": [0.1, 0.9], "unparsed": 1, "truncated": 1, "complete_right": 1},
    },
    "summary": {
        **dict.fromkeys(("lag_mean", "gradient_lag_mean", "tv_data", "ess_data", "clipped", "dropped_groups"), 0.5),
        **{f"untrained/{mode}{end}": 0.5 for mode in ("sampled", "deterministic") for end in ("", "_error")},
    },
}
SETTINGS = {"completions": 4, "ledger": "trained", "epochs": 1, "minibatches": 1, "fill_phases": 0, "warm_phases": 0}


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("scores", "deterministic", "unparsed"), [], "run.json.scores[...]: Object missing required field `unparsed`"),
        (("scores", "deterministic", "truncated"), [], "run.json.scores[...]: Object missing required field"),
        (("summary", "untrained/sampled_error"), [], "run.json.summary: Object missing required field `untrained/sam"),
        (("ledger", "sequences"), [{"trained": 5}], "run.json.ledger of sequences: generated is not the sum"),
        (("ledger", "decisions", "queued"), [], "run.json.ledger of decisions: generated is not the sum"),
        (("spec", "lag"), [], "run.json.spec: Object missing required field `lag`"),
        (("spec", "fill_phases"), ["x"], "spec.fill_phases: Expected `int`, got `str`"),
        (("before", "epochs"), ["x"], "before.epochs: Expected `int`, got `str`"),
    ],
)
def test_an_entry_that_another_one_needs_is_missed(good: Path, place: Place, value: list[Any], problem: str) -> None:
    row = pq.read_table(good / RUNS).slice(0, 1).to_pylist()[0]
    record = json.loads(row["record"])
    assert fault(row, record) is None
    assert problem in (fault(row, change(record, place, *value)) or "")


def test_the_schema_knows_what_tasks_may_be_scored_by() -> None:
    hints = get_type_hints(TaskSchema)
    assert get_args(hints["score"]) == SCORES and set(get_args(hints["normalise"])) == set(NORMALISATIONS)


# All get their runs from `Store.read_all`, as reports, figures and leaderboards do.
READERS = {
    "export": ["export", "csv", "--out", "{bundle}", "--to", "{folder}/csv"],
    "compare": ["compare", "{good}", "{bundle}"],
    "config": ["config", "{run}", "--out", "{bundle}"],
    "status": ["status", "--out", "{bundle}"],
    "advise": ["advise", "--results", "{bundle}"],
    "unpack": ["unpack", "{bundle}", "{folder}/results"],
    "pack": ["pack", "{bundle}", "{folder}/bundle"],
    "verify": ["verify", "{bundle}", "--env", "NoSuch-v0"],
    "report": ["report", "--out", "{bundle}"],
}
RUNS_AT_ONCE = 30


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    for seed in range(RUNS_AT_ONCE // 2):
        for k in (1, 2):
            write_run(folder / "results", "spo", seed, capacity=k, phases=3, said=WHOLE, settings=SETTINGS)
    pack(str(folder / "results"), str(folder / "bundle"), None)
    return folder / "bundle"


def accepted_changes(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield changes of a record that its schema accepts, as `change` takes them: other values, none, further scores."""
    record = json.loads(row["record"])
    changes: list[tuple[Any, ...]] = [(place, value) for place in places(record) for value in [*VALUES, 1, "x"]]
    changes += [(place,) for place in places(record)]
    changes += [(("scores", name), SCORE) for name in ("K", "seed", "algorithm", "environment", "accuracy", "run")]
    yield from (entry for entry in changes if fault(row, change(record, *entry)) is None)


def exit_code(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process and return its exit code; any other exception goes through."""
    monkeypatch.setattr(sys, "argv", ["staleharness", *words])
    with warnings.catch_warnings(), pytest.raises(SystemExit) as exit:
        warnings.simplefilter("error", RuntimeWarning)
        cli.main()
    return int(exit.value.code or 0)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.long
def test_what_the_schema_lets_through_no_reader_falls_over(
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    short_report: None,
    reader: str,
) -> None:
    rows = pq.read_table(good / RUNS).to_pylist()
    changes = list(accepted_changes(rows[0]))
    assert len(changes) > 200
    for at in range(0, len(changes), RUNS_AT_ONCE - 2):
        new, bundle, folder = copy.deepcopy(rows), tmp_path / str(at) / "bundle", tmp_path / str(at)
        for row, entry in zip(new, changes[at : at + RUNS_AT_ONCE - 2], strict=False):
            record = change(json.loads(row["record"]), *entry)
            row["record"], row["job"] = json.dumps(record), job_of(row, record)
        shutil.copytree(good, bundle)
        pq.write_table(pa.Table.from_pylist(new), bundle / RUNS)
        manifest = {"files": {name: digest(bundle / name) for name in FILES}}
        (bundle / "manifest.json").write_text(json.dumps(manifest))
        words = [w.format(bundle=bundle, good=good, folder=folder, run=rows[-1]["id"]) for w in READERS[reader]]
        assert exit_code(words, monkeypatch) in ((0,) if reader == "report" else (0, 2))
        said = capfd.readouterr()
        assert "Traceback" not in said.err and "Warning" not in said.err


def test_records_share_strings_and_nothing_mutable() -> None:
    said = {"label": "ppo_clip, as typed", "task": {"kind": "control", "axes": {}}, "scores": [1.5, {"mean": None}]}
    a, b = parse_record(json.dumps(said)), parse_record(json.dumps(said).encode())
    assert a == b == said
    assert a["label"] is b["label"] and a["task"]["kind"] is b["task"]["kind"]
    assert all(x is y for x, y in zip(a["task"], b["task"], strict=True))
    assert a["task"] is not b["task"] and a["scores"] is not b["scores"]


@pytest.mark.parametrize("place", ['{{"a": "{}"}}', '{{"{}": 1}}', '{{"a": [["x", "{}"]]}}', '{{"a": {{"b": "{}"}}}}'])
def test_no_control_character_gets_through_however_it_is_written(place: str) -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        forms = [f"\\u{code:04x}", f"\\u{code:04X}"] + ([] if code < 0x20 else [chr(code)])  # raw ones are no JSON
        for form in forms:
            with pytest.raises(ValueError, match="control character"):
                parse_record(place.format(form))
    for harmless in ("\\u00e9", "\\u0041", "\\\\u001b", "\\u20ac", "π"):
        parse_record(place.format(harmless))
