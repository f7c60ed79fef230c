"""A sweep's processes: what plugins print and leave about, edits under way, signals, closed terminals, orphans."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from known_plugins import loaded_plugins
from sweeping import AtPhase, Silent, environment, phases_written, relatives, sweep_here, wait_until

from staleharness.running import supervision
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runners import local
from staleharness.running.supervision import Limits
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.run_states import run_states
from staleharness.store.store import Store
from staleharness.study import sweep_request

TINY = "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluations=1,evaluation_episodes=1,final_episodes=1"

PLUGIN = '''
import os, sys, threading, time
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
from staleharness.objectives import importance_ratio

GATE = os.path.join(os.path.dirname(__file__), "gate")

@ALGORITHMS.register("noisy")
@dataclass(frozen=True)
class Noisy(Algorithm):
    """Prints, leaves files about, and takes its time; from its second phase on it may wait at a gate."""
    pause: float = 0.0
    thread: bool = False
    waits: bool = False

    def policy_loss(self, d):
        print("working")
        if self.waits and os.path.getsize("metrics.jsonl"):
            open(GATE + ".reached", "w").close()
            for _ in range(6000):  # a minute: who should have ended it would else not be missed
                if os.path.exists(GATE):
                    break
                time.sleep(0.01)
        os.makedirs("plots/deep", exist_ok=True)
        self.__class__.kept = open("notes.txt", "a")
        self.__class__.kept.write("written when the process ends")
        time.sleep(self.pause)
        if self.thread and threading.active_count() < 2:
            threading.Thread(target=time.sleep, args=(600,)).start()
        return PolicyLoss(-importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "noisy.py"
    path.write_text(PLUGIN)
    return path


def at_the_gate(plugin: Path, act: Callable[[], object]) -> AtPhase:
    """Does something while a run that waits is in its second phase, then lets it go on."""

    def act_and_open() -> None:
        wait_until(plugin.with_name("gate.reached").exists)
        act()
        plugin.with_name("gate").touch()

    return AtPhase(act_and_open)


# The command line as it is, but for the table and the report, which take most of a small sweep's time.
COMMAND = """
from staleharness import cli
from staleharness.commands.shared import train_and_report
from staleharness.statistics.table import Table
train_and_report.publish = lambda *what: (Table([], [], {}), None)
cli.main()
"""


def command(out: Path, plugin: Path, *arguments: str) -> list[str]:
    fixed = f"--env Pendulum --k 2 --set {TINY} --jobs 1".split()
    places = ["--out", str(out), "--plugin", str(plugin)]
    return [sys.executable, "-c", COMMAND, "sweep", *fixed, *places, *arguments]


def start(*arguments: str, out: Path, plugin: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(out, plugin, *arguments),
        env=environment(),
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "out"
    yield path
    if Path("/proc").is_dir():
        wait_until(lambda: not relatives(path))  # nothing is left behind, however a sweep ended


def run_here(out: Path, listener: Silent | None = None, **asked: str) -> Outcome:
    """The same sweep, one run at a time, by this process."""
    return sweep_here(out, 1, listener, env="Pendulum", k="2", settings=TINY, **asked)


def test_output_and_stray_files_do_not_damage_a_run(out: Path, plugin: Path) -> None:
    with loaded_plugins(plugin):
        outcome = run_here(out, algo="noisy", seeds="1", steps="128")
    (run,) = (out / "runs").iterdir()
    assert outcome == Outcome(done=[run.name])
    assert (run / "log.txt").read_text().count("working\n") == 4
    assert (run / "notes.txt").is_file() and (run / "plots" / "deep").is_dir()
    assert [run.id for run in Store(out).read_all()] == [run.name]


@pytest.mark.long
def test_a_run_is_not_made_with_other_code_than_its_id_names(out: Path, plugin: Path) -> None:
    def edit() -> None:
        plugin.write_text(plugin.read_text() + "\nEDITED = 'while the sweep goes on'\n")

    with loaded_plugins(plugin):
        outcome = run_here(out, AtPhase(edit), algo="noisy,spo", seeds="2", steps="320")
    (failure,) = outcome.failed.values()
    assert failure["class"] == "Changed" and "was edited since the sweep began" in failure["message"]
    labels = [json.loads((run / "run.json").read_text())["label"] for run in (out / "runs").iterdir()]
    assert sorted(labels) == ["noisy", "spo", "spo"]


@pytest.mark.long
def test_a_closed_terminal_leaves_a_checkpoint_and_no_process(out: Path, plugin: Path) -> None:
    words = "--algo noisy[pause=0.1,waits=true] --seeds 2 --steps 6400".split()
    sweep = start(*words, out=out, plugin=plugin, start_new_session=True, stdout=subprocess.DEVNULL)
    assert sweep.stderr is not None
    with sweep:
        wait_until(plugin.with_name("gate.reached").exists)
        os.killpg(sweep.pid, signal.SIGHUP)  # everybody hears it
        said = list(itertools.takewhile(lambda line: not line.startswith("stopping:"), sweep.stderr))
        plugin.with_name("gate").touch()
        errors = "".join([*said, *sweep.stderr])
    assert sweep.returncode == 130, errors
    assert "the same command resumes" in errors and "FAILED" not in errors
    assert list((out / "attempts").glob("*/checkpoint-*.pt"))
    assert not list((out / "attempts").glob("*/failure.json"))


def tell_everybody(out: Path, name: signal.Signals) -> None:
    """The workers and their server, where they can be found, and this process, which sweeps."""
    if Path("/proc").is_dir():
        workers = relatives(out)
        server = int(Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[1])
        for process in (server, *workers):
            os.kill(process, name)
    os.kill(os.getpid(), name)


def test_a_sweep_that_a_batch_system_ends_leaves_a_checkpoint(out: Path, plugin: Path) -> None:
    act = at_the_gate(plugin, lambda: tell_everybody(out, signal.SIGTERM))
    with loaded_plugins(plugin):
        outcome = run_here(out, act, algo="noisy[waits=true]", seeds="2", steps="6400")
    assert outcome == Outcome(interrupted=True)
    # their server is gone, which could tell when they end: a worker may still be writing
    wait_until(lambda: any((out / "attempts").glob("*/checkpoint-*.pt")))
    assert not list((out / "attempts").glob("*/failure.json"))


def test_what_is_ignored_stays_ignored(out: Path, plugin: Path) -> None:
    """Run as under nohup."""
    act = at_the_gate(plugin, lambda: tell_everybody(out, signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with loaded_plugins(plugin):
            outcome = run_here(out, act, algo="noisy[waits=true]", seeds="1", steps="320")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert act.act is None and len(outcome.done) == 1 and not outcome.interrupted


def test_a_second_interrupt_ends_everything_at_once(out: Path, plugin: Path) -> None:
    """In the middle of a phase that nobody lets end: whoever finishes it first leaves a checkpoint."""

    class Impatient(Silent):
        def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
            wait_until(plugin.with_name("gate.reached").exists)
            os.kill(os.getpid(), signal.SIGINT)

        def on_stop(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with loaded_plugins(plugin):
        outcome = run_here(out, Impatient(), algo="noisy[waits=true]", seeds="2", steps="6400")
    assert outcome == Outcome(interrupted=True) and phases_written(out) == 1
    assert not list((out / "attempts").glob("*/checkpoint-*.pt"))


def test_a_worker_that_is_told_to_end_leaves_its_run_to_go_on(out: Path, plugin: Path) -> None:
    def end() -> None:
        (worker,) = [p for p in relatives(out) if os.readlink(f"/proc/{p}/cwd").startswith(str(out))]
        os.kill(worker, signal.SIGTERM)

    with loaded_plugins(plugin):
        outcome = run_here(out, at_the_gate(plugin, end), algo="noisy[waits=true],spo", seeds="1", steps="320")
    (run,) = (out / "runs").iterdir()
    assert outcome == Outcome(done=[run.name])  # neither failed nor interrupted: the other run was made
    assert len(list((out / "attempts").glob("*/checkpoint-*.pt"))) == 1
    assert not list((out / "attempts").glob("*/failure.json"))


def test_a_thread_of_a_plugin_does_not_hold_its_run_s_place(
    out: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "GRACE", 0.5)
    with loaded_plugins(plugin):
        outcome = run_here(out, algo="noisy[thread=true]", seeds="2", steps="128")
    assert len(outcome.done) == 2 and not outcome.failed


def test_a_run_without_progress_is_said_then_ended(
    out: Path, plugin: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by a minute at each look, once the run is where it stays."""
    clock = itertools.count(60.0, 60.0)
    stays = lambda: any((out / "attempts").glob("*/notes.txt"))  # noqa: E731
    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=lambda: next(clock) if stays() else 0.0))
    store, asked = Store(out), {"env": "Pendulum", "k": "2", "settings": TINY, "seeds": "1", "steps": "128"}
    store.open_for_writing()
    with loaded_plugins(plugin):
        runs = plan(sweep_request(algo="noisy[pause=600]", **asked)).runs
        outcome = sweep(runs, store, local.LocalPool(1), Silent(), Limits(stall=100.0))  # type: ignore[arg-type]
    (failure,) = outcome.failed.values()
    said = ("Stalled", "the worker was ended by a stall: no progress for 1m40s")
    assert (failure["class"], failure["message"]) == said
    assert caplog.text.count("has made no progress for 1m00s") == 1
    (row,) = run_states(store)["runs"]
    assert (row["state"], row["failure"]["class"]) == ("failed", "Stalled")
