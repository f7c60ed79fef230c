"""The command line as scripts and people meet it: exit codes, streams, JSON, and whatever they may type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from known_plugins import loaded_plugins
from places import ROOT
from sweeping import staleharness

from staleharness.commands.shared import train_and_report
from staleharness.pages import report

TINY = "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluations=2,evaluation_episodes=1,final_episodes=2"
ASKED = ["--env", "Pendulum", "--k", "2", "--set", TINY, "--steps", "128", "--seeds", "1"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A results folder with a space in its name after a first sweep of two algorithms, and what that printed."""
    out = tmp_path_factory.mktemp("sweep") / "my results"
    words = ["sweep", *ASKED, "--algo", "ppo_clip,spo", "--out", str(out), "--json"]
    with loaded_plugins():
        done = staleharness(*words)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # everything for people is on stderr
    assert "ppo_clip" in done.stderr and "report: " in done.stderr
    return out, json.loads(done.stdout)


ROW = set(
    "algorithm env capacity n_runs n_tasks iqm iqm_low iqm_high median mean optimality_gap lag_mean tv ess clipped "
    "seconds".split()
)


@pytest.mark.long
def test_a_sweep_prints_one_json_object_of_the_promised_shape(swept: tuple[Path, dict[str, Any]]) -> None:
    out, content = swept
    assert set(content["runs"]) == {"done", "failed", "skipped"}
    assert len(content["runs"]["done"]) == 2 and not content["runs"]["failed"] and not content["runs"]["skipped"]
    assert [(row["algorithm"], row["capacity"]) for row in content["table"]] == [("ppo_clip", 2), ("spo", 2)]
    assert all(set(row) >= ROW and row["env"] == "Pendulum-v1" for row in content["table"])
    page = Path(content["report"])
    assert page.is_relative_to(out) and page.read_text().count("<svg") > 4


@pytest.mark.long
def test_a_repeated_sweep_runs_nothing_and_keeps_the_report(swept: tuple[Path, dict[str, Any]], call: Cli) -> None:
    out, content = swept
    page = Path(content["report"])
    before = page.stat().st_mtime_ns
    code, text, errors = call("sweep", *ASKED, "--algo", "ppo_clip,spo", "--out", str(out))
    assert code == 0 and errors == ""
    assert text.splitlines()[-1] == f"report: {page}" and "ppo_clip" in text
    code, text, _ = call("sweep", *ASKED, "--algo", "spo,ppo_clip[clip=0.2]", "--out", str(out), "--json", "--jobs=1")
    again = json.loads(text)
    assert code == 0 and again["table"] == content["table"]
    assert sorted(again["runs"]["skipped"]) == sorted(content["runs"]["done"]) and not again["runs"]["done"]
    assert page.stat().st_mtime_ns == before


def test_dry_lists_done_and_missing_runs_and_writes_nothing(
    swept: tuple[Path, dict[str, Any]], call: Cli, tmp_path: Path
) -> None:
    out, _ = swept
    before = sorted((str(p), p.stat().st_mtime_ns) for p in out.rglob("*"))
    words = ["sweep", *ASKED, "--algo", "spo,vaco", "--dry", "--out"]
    code, text, errors = call(*words, str(out))
    assert (code, errors) == (0, "")
    assert "1 of 2 runs to do" in text.splitlines()[0] and "of disk" in text.splitlines()[-1]
    assert len(text.splitlines()) == 4  # the grid, a run, the lag that is left of K, the cost
    code, text, _ = call(*words, str(out), "--list")
    assert code == 0 and [line.split()[1] for line in text.splitlines()[3:5]] == ["done", "to"]
    code, text, _ = call(*words, str(out), "--json")
    content = json.loads(text)
    assert code == 0 and content["dry"] is True
    assert [cell["done"] for cell in content["plan"]] == [True, False]
    assert content["seconds"] > 0 and content["bytes"] > 0
    assert sorted((str(p), p.stat().st_mtime_ns) for p in out.rglob("*")) == before
    assert call(*words, "fresh")[0] == 0
    assert list(Path.cwd().iterdir()) == []


def test_a_plan_counts_the_runs_of_each_size(call: Cli) -> None:
    words = "sweep --env word-problems --algo spo --seeds 2 --dry --k 4 --set steps=8".split()
    size = "8 optimiser steps of 16 prompts x 8 completions, {} per generation round\n"
    code, text, _ = call(*words)
    assert code == 0 and "each run: " + size.format(1) in text
    code, text, _ = call(*words, "--n", "1,4")
    assert code == 0 and "2 runs: " + size.format(1) + "2 runs: " + size.format(4) in text and "each run" not in text


def test_dry_with_an_environment_that_fails_still_shows_the_plan(call: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "fails.py"
    plugin.write_text(
        "from staleharness.control.task import ControlTask\nfrom staleharness.task import ENVS\n"
        "@ENVS.register('fails')\nclass Fails(ControlTask):\n    ids = {'Fails-v0': 'fails'}\n"
        "    def make(self, env, num_envs, threads):\n        import gymnasium\n"
        "        if num_envs > 1:  # as planning asks for one\n            raise NotImplementedError\n"
        "        return gymnasium.make_vec('CartPole-v1', 1)\n"
    )
    words = ["sweep", "--env", "Fails-v0", "--algo", "spo", "--dry", "--plugin", str(plugin)]
    code, text, _ = call(*words)
    assert code == 0 and "no stored run is like those on Fails-v0; --probe" in text
    code, text, _ = call(*words, "--probe")
    assert code == 0
    assert "no estimate of the time: a probe of Fails-v0 failed: NotImplementedError" in text


def test_an_estimate_is_of_published_runs_where_none_is_stored(call: Cli) -> None:
    code, text, _ = call("sweep", "--env", "Hopper", "--k", "8", "--algo", "spo", "--dry")
    assert code == 0 and "published runs like these took) and" in text


def test_a_probe_measures_where_no_run_tells(call: Cli) -> None:
    small = "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluation_episodes=1,final_episodes=1"
    words = ["sweep", "--env", "Pendulum", "--algo", "spo", "--set", small, "--steps", "640"]
    code, text, _ = call(*words, "--probe")
    assert code == 0 and "from a probe of a few seconds" in text


@pytest.mark.long
def test_reproduce_without_a_figure_lists_what_there_is(call: Cli) -> None:
    code, text, _ = call("reproduce")
    assert code == 0
    (line,) = [line for line in text.splitlines() if line.split()[:2] == ["vaco", "vaco_ratio"]]
    assert line.split()[2] == "315" and " 3 " in line
    code, text, _ = call("reproduce", "--json")
    studies = json.loads(text)["studies"]
    known = [s for s in studies if s["seconds"] is not None]  # of a study without runs it may not be known
    assert all(s["seconds"] > 0 and s["bytes"] > 0 for s in known) and len(studies) >= len(known) > 10
    assert list(Path.cwd().iterdir()) == []


def test_results_go_to_results_by_default(call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        train_and_report, "execute", lambda command, planned, store, *more: seen.append(store.root) or 0
    )
    assert call("sweep", *ASKED)[0] == 0
    assert seen == [Path("results")]


def test_run_is_one_run_with_any_seed(call: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(train_and_report, "execute", lambda command, planned, *more: seen.append(planned) or 0)
    words = ["--env", "Pendulum", "--algo", "vaco[delta=0.1]", "--seed", "123456789"]
    assert call("run", *words)[0] == 0
    (planned,) = seen
    assert [(run.label, run.spec.seed) for run in planned.runs] == [("vaco[delta=0.1]", 123456789)]
    assert planned.name.replace("+", "").replace("-", "").replace("=", "").replace("_", "").replace(".", "").isalnum()
    code, _, errors = call("run", "--env", "Pendulum")
    assert code == 2 and "takes one environment, one algorithm and one capacity; these options give 7 runs" in errors
    code, _, errors = call("run", *words, "--seeds", "3")
    assert code == 2 and "use sweep" in errors


def test_list_is_text_for_people_and_json_for_scripts(call: Cli) -> None:
    code, text, errors = call("list")
    assert code == 0 and errors == ""
    assert "ppo_clip: " in text and "Hopper-v5" in text
    code, text, errors = call("list", "--json")
    content = json.loads(text)
    assert code == 0 and errors == "" and set(content) == {"algorithms", "envs", "lags", "mismatches"}
    for entry in [*content["algorithms"], *content["envs"], *content["lags"]]:
        assert {"name", "summary", "paper", "hyper_parameters", "file"} <= set(entry)
        assert entry["summary"] and Path(entry["file"]).is_file()


def test_status_counts_what_there_is(swept: tuple[Path, dict[str, Any]], call: Cli, tmp_path: Path) -> None:
    out = shutil.copytree(swept[0], tmp_path / "copy")
    attempt = out / "attempts" / "0123456789ab"
    attempt.mkdir(parents=True)
    job = next((out / "runs").iterdir()) / "job.json"
    shutil.copy(job, attempt / "job.json")
    code, text, _ = call("status", "--out", str(out))
    assert code == 0 and text.splitlines()[0] == "2 done, 0 running, 1 stopped, 0 failed"
    (attempt / "failure.json").write_text(json.dumps({"class": "Diverged", "message": "a\x1b[31mloss", "log_tail": ""}))
    code, text, _ = call("status", "--out", str(out))
    assert "1 failed" in text and "Diverged: a?[31mloss" in text
    code, text, _ = call("status", "--out", str(out), "--json")
    content = json.loads(text)
    assert code == 0 and content["counts"] == {"done": 2, "running": 0, "stopped": 0, "failed": 1}
    assert {"id", "label", "env", "capacity", "seed", "state", "phase", "phases"} <= set(content["runs"][0])


@pytest.mark.parametrize(
    ("words", "algorithms"),
    [
        ([], ["ppo_clip", "spo"]),
        (["--algo", "spo"], ["spo"]),
        (["--env", "pendulum", "--k", "2"], ["ppo_clip", "spo"]),
        (["--env", "Pendulum-v1", "--algo", "spo,ppo_clip"], ["ppo_clip", "spo"]),
        (["--algo", "vaco"], None),
        (["--env", "Ant"], None),
        (["--k", "3"], None),
    ],
)
def test_report_takes_what_matches_and_needs_no_plugin(
    swept: tuple[Path, dict[str, Any]],
    call: Cli,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    algorithms: list[str] | None,
) -> None:
    pages = []
    monkeypatch.setattr(report, "write", lambda folder, *what: pages.append(folder) or folder / "index.html")
    monkeypatch.delitem(sys.modules, "staleharness.task", raising=False)
    code, text, errors = call("report", "--out", str(swept[0]), "--json", *words)
    if algorithms is None:
        assert code == 2 and "no run here" in errors and "known: " in errors
    else:
        assert code == 0
        assert [row["algorithm"] for row in json.loads(text)["table"]] == algorithms
        assert pages[0].parent == swept[0] / "reports"
    assert "staleharness.task" not in sys.modules


def test_runs_that_are_not_ours_are_left_alone(call: Cli, tmp_path: Path) -> None:
    theirs = tmp_path / "cwd" / "runs" / "Nov20_tensorboard"
    theirs.mkdir(parents=True)
    (theirs / "events.out").write_text("theirs")
    for words in (["report"], ["status"], ["sweep", *ASKED, "--dry"]):
        code, _, errors = call(*words, "--out", ".")
        assert code == 2 and errors.count("\n") == 1, errors
    assert (theirs / "events.out").read_text() == "theirs"
    assert [p.name for p in Path.cwd().iterdir()] == ["runs"]


def test_a_report_that_cannot_be_written_is_one_line(
    swept: tuple[Path, dict[str, Any]], call: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Path, *arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", read_only)
    code, text, errors = call("report", "--out", str(swept[0]))
    assert (code, text) == (2, "")
    assert errors.startswith("staleharness: ") and errors.endswith(": Permission denied\n") and errors.count("\n") == 1


HELP = [
    [],
    ["--help"],
    ["-h"],
    *([name, "--help"] for name in "sweep run list status report figures reproduce new".split()),
]


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_help_is_on_standard_output_and_speaks_of_no_none(call: Cli, words: list[str]) -> None:
    code, text, errors = call(*words)
    assert code == 0 and errors == ""
    assert "staleharness" in text and "None" not in text and "STR" not in text


def test_the_version_is_told(call: Cli) -> None:
    code, text, _ = call("--version")
    assert code == 0 and text.strip()[0].isdigit()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    words = f"{sys.executable} -m staleharness list | head -n 1; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": ""}
    done = subprocess.run(["bash", "-c", words], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("closed", ["", "2>&1"])
def test_a_command_goes_on_where_its_reader_has_left(tmp_path: Path, closed: str, buffered: str) -> None:
    program = (
        "import sys; from types import SimpleNamespace; from staleharness import cli\n"
        "def handle(command):\n"
        "    sys.stdin.read()\n"  # until nobody reads
        "    for stream in (sys.stdout, sys.stderr): print('text', file=stream, flush=True)\n"
        "    open('end', 'w'); return 1\n"
        "cli.parse = lambda words: (SimpleNamespace(handle=handle), None); cli.main()\n"
    )
    words = f'(sleep 1; echo) | {sys.executable} -c "$0" {closed} | true; exit ${{PIPESTATUS[1]}}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": buffered}
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(["bash", "-c", words, program], **options)  # type: ignore[call-overload]
    assert (done.returncode, done.stderr) == (1, "" if closed else "text\n")
    assert (tmp_path / "end").exists()


def test_a_terminal_without_our_signs_gets_others(call: Cli) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "STALEHARNESS_PLUGINS": ""}
    words = [sys.executable, "-m", "staleharness", "list"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
