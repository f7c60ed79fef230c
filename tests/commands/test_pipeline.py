"""`staleharness pipeline`: table, JSON, files, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from crash import EVERY, every_crash
from known_plugins import loaded_plugins

from staleharness.base.files import replace_own
from staleharness.lag import read_lag
from staleharness.lags.trace import Trace
from staleharness.trace import read_trace


def test_the_table_has_a_line_for_each_pipeline(call: Any) -> None:
    code, out, err = call("pipeline", "--steps=40")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["sync", "one-step-off", "async", "in-flight"]
    assert lines[2].endswith("admission") and lines[4].endswith("generation")
    assert "async: the slots work all the time: the trainer waits for rows" in lines
    assert sum("generated = " in line for line in lines) == 8
    assert "it never holds a row back" in out


def test_json_is_one_object_and_the_table_goes_to_stderr(call: Any) -> None:
    code, out, err = call("pipeline", "--preset=async", "--set", "cap=2,max_lag=3", "--steps=40", "--seed=5", "--json")
    found = json.loads(out)
    assert code == 0 and list(found) == ["async"] and "max_lag  3: " in err
    assert (found["async"]["seed"], found["async"]["pipeline"]["cap"]) == (5, 2.0)
    assert found["async"]["lag"]["start_max"] <= 3
    rows = found["async"]["ledger"]["rows"]
    assert rows["generated"] == sum(n for name, n in rows.items() if name != "generated")


def test_a_system_is_simulated_by_its_name_with_its_own_knobs(call: Any) -> None:
    asked = "--preset=areal[eta=2],cleanba,windowed_fifo[staleness=3,window=0]"
    code, out, _ = call("pipeline", asked, "--set", "lengths=constant:9", "--steps=60", "--json")
    found = json.loads(out)
    assert code == 0 and list(found) == ["areal[eta=2]", "cleanba", "windowed_fifo[staleness=3,window=0]"]
    areal, cleanba, fifo = found.values()
    assert areal["lag"]["start_mean"] == pytest.approx(2, rel=0.05)
    assert areal["pipeline"]["cap"] == 2 and areal["pipeline"]["lengths"] == "constant:9"
    assert set(cleanba["lag"]["rows"]) == {"1"} and fifo["lag"]["start_max"] == 3


def test_what_dropping_does_to_lengths_is_said(call: Any) -> None:
    settings = "cap=none,group=1,lengths=lognormal[mean=1000,cv=2]"
    for bound, said in (("max_lag=1", True), ("max_lag=none", False)):
        _, out, _ = call("pipeline", "--preset=async", "--set", f"{settings},{bound}", "--steps=60")
        assert ("of the rows trained on, " in out and "of all, on average: -" in out) is said


def test_files_are_written_and_are_the_same_each_time(call: Any, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        code, out, _ = call("pipeline", "--preset=in-flight", "--steps=30", f"--out={tmp_path / folder}")
        assert code == 0 and out.count("wrote ") == 3
    names = ["in-flight.parquet", "in-flight.png", "pipeline.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [*names, "written.json"]
    assert read_trace(str(tmp_path / "a" / "in-flight.parquet"))[1]["phase"].max() == 29


def test_a_trace_of_a_system_has_a_name_that_a_replay_takes(call: Any, tmp_path: Path) -> None:
    names = ["areal[eta=2]", f"areal[eta=2,row_time=1.{'0' * 300}]"]
    code, out, _ = call("pipeline", f"--preset={','.join(names)}", "--steps=20", f"--out={tmp_path}", "--json")
    assert code == 0 and set(json.loads(out)) == set(names)
    traces = sorted(tmp_path.glob("*.parquet"))
    assert len(traces) == 2
    for path in traces:
        assert read_lag(f"trace:{path}") == Trace(str(path))
        assert read_trace(str(path))[0]["pipeline"]["cap"] == 2


@pytest.mark.parametrize("name", ["pipeline.json", "sync.parquet", "sync.png", "written.json"])
def test_a_file_of_somebody_else_is_not_replaced(call: Any, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    code, _, err = call("pipeline", "--preset=sync", "--steps=10", f"--out={out}")
    assert code == 2 and f"{out / name} was not written by this command" in err and err.count("\n") == 1
    assert [p.name for p in out.iterdir()] == [name] and (out / name).read_text() == "mine"


def test_earlier_files_are_replaced_but_not_once_they_are_edited(call: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    presets = ("sync", "one-step-off", "sync,one-step-off", "sync")
    asked = [("pipeline", f"--preset={p}", f"--out={out}", f"--steps={n}") for n, p in enumerate(presets, start=10)]
    assert [call(*words)[0] for words in asked] == [0, 0, 0, 0]
    (out / "notes.txt").write_text("mine")
    (out / "pipeline.json").write_text((out / "pipeline.json").read_text() + " ")
    before = {path: path.read_bytes() for path in out.iterdir()}
    code, _, err = call(*asked[0])
    assert code == 2 and "pipeline.json was not written by this command, or has changed since" in err
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("step", EVERY)
def test_a_call_that_is_cut_off_is_finished_by_the_next(tmp_path: Path, step: int) -> None:
    for _ in every_crash(
        lambda n: replace_own(tmp_path, {"a": b"1", "b": str(n).encode()}),
        lambda n: replace_own(tmp_path, {"a": b"0", "b": b"x"}),
        at_most=200,
        step=step,
    ):
        replace_own(tmp_path, {"b": b"y"})
    assert (tmp_path / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--preset=asink"], "no preset is called 'asink'; did you mean 'async'?"),
        (["--preset=areel[eta=4]"], "no preset is called 'areel[eta=4]'; did you mean 'areal'?"),
        (["--set", "lengths=file:empty.txt"], "file: empty.txt must hold numbers from 0 to 1e+09, one a line"),
        (["--preset="], "--preset='' is empty; give NAME,..."),
        (["--preset=areal[et=2]"], "LAG=areal: unknown option 'et'; did you mean 'eta'?"),
        (["--set", "slot=3"], "SET: unknown option 'slot'; did you mean 'slots'?"),
        (["--set", "train_seconds=nan"], "SET: train_seconds=nan is not finite"),
        (["--steps=0"], "steps must be at least 1, not 0"),
        (["--steps=many"], "STEPS='many' is not a whole number"),
        (["--seed=-1"], "SEED=-1 must not be negative"),
        (["--set", "sync_every=4", "--preset=sync"], "sync: deadlock at t = "),
        (["--out="], "--out='' is empty; give FOLDER"),
        (["--prset=sync"], "pipeline has no option --prset; did you mean '--preset'?"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_one_line_and_nothing_is_written(call: Any, arguments: list[str], words: str) -> None:
    Path("empty.txt").touch()
    out = [] if any(a.startswith("--out") for a in arguments) else ["--out=results"]
    code, shown, err = call("pipeline", *arguments, *out)
    assert (code, shown) == (2, "") and words in err and len(err.splitlines()) == 1
    assert not Path("results").exists()


def test_at_a_fractional_cap_rows_are_below_it_or_above(call: Any) -> None:
    code, out, text = call("pipeline", "--preset=async", "--set", "cap=0.5", "--steps=40", "--json")
    lag = json.loads(out)["async"]["lag"]
    below = lag["rows"]["0"] / sum(lag["rows"].values())
    assert code == 0 and lag["share_at_bound"] == 0 and lag["share_above_bound"] == pytest.approx(1 - below)
    assert 0.1 < below < 0.9 and f"{below:.1%} of the rows trained on are below it" in text


SYSTEM = '''
"""A pipeline of one's own."""

from dataclasses import dataclass

from staleharness.lag import LAGS
from staleharness.pipeline_lag_model import PipelineLag


@LAGS.register("my_pipe")
@dataclass(frozen=True)
class MyPipe(PipelineLag):
    """A cap."""

    eta: float = 2.0

    def rules(self, demand):
        return {"cap": self.eta} if self.eta else RULES
'''


def test_a_system_of_a_plugin_is_simulated(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "my_pipe.py"
    file.write_text(SYSTEM)
    with loaded_plugins():
        code, out, _ = call("pipeline", "--preset=my_pipe[eta=3]", f"--plugin={file}", "--steps=20")
    assert code == 0 and "my_pipe[eta=3]" in out and "cap      3" in out


@pytest.mark.parametrize(
    "rules, words",
    [
        ("[1]", "LAG=my_pipe: rules returns a list, not a dict"),
        ("{3: 4}", "LAG=my_pipe: rules has the name 3, which is not text; the names are those of `staleharness"),
        ("{'slot': 4}", "LAG=my_pipe: unknown option 'slot'; did you mean 'slots'?"),
    ],
)
def test_rules_that_are_no_settings_are_one_line(call: Any, tmp_path: Path, rules: str, words: str) -> None:
    file = tmp_path / "my_pipe.py"
    file.write_text(SYSTEM.replace("RULES", rules))
    with loaded_plugins(file):
        code, out, err = call("pipeline", "--preset=my_pipe[eta=0]", "--steps=20")
    assert (code, out) == (2, "") and words in err
    assert len(err.splitlines()) == 1


def test_rules_may_hold_numbers_of_numpy(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "my_pipe.py"
    rules = "dict(slots=np.int64(64), blocking=np.bool_(True), cap=np.float64(2), lengths=np.str_('constant:9'))"
    file.write_text("import numpy as np\n" + SYSTEM.replace("RULES", rules))
    with loaded_plugins(file):
        code, out, _ = call("pipeline", "--preset=my_pipe[eta=0]", "--steps=20", "--json")
    settings = json.loads(out)["my_pipe[eta=0]"]["pipeline"]
    assert code == 0 and (settings["slots"], settings["blocking"], settings["cap"]) == (64, True, 2.0)
