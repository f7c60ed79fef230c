"""Sweeps for tests: as a user starts them, and in this process, whose fork server they share."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from quick_figures import draw_quickly

from staleharness import cli
from staleharness.pages import report
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runners.local import LocalPool
from staleharness.running.sweep_event_loop import Outcome, sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request


class Silent:
    """Listener that does nothing."""

    def on_start(self, run: PlannedRun) -> None: ...
    def on_preparing(self, run: PlannedRun, step: str) -> None: ...
    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None: ...
    def on_stop(self) -> None: ...


class AtPhase(Silent):
    """Does something once, when a run has done its first phase, or as many as are given."""

    def __init__(self, act: Callable[[], None], phases: int = 1) -> None:
        self.act: Callable[[], None] | None = act
        self.phases = phases

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        if self.act is not None and progress["phase"] >= self.phases:
            self.act()
            self.act = None


def sweep_here(out: Path, jobs: int = 2, listener: Silent | None = None, **asked: str) -> Outcome:
    """A sweep by this process, without table and report (they take most of a small sweep's time)."""
    store = Store(out)
    store.open_for_writing()
    return sweep(plan(sweep_request(**asked)).runs, store, LocalPool(jobs), listener or Silent())


@contextlib.contextmanager
def without_report() -> Iterator[None]:
    """Sweeps print their table and write no report, which takes most of a small sweep's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write", lambda folder, *what: folder / "index.html")
        yield


TINY = "num_envs=2,num_steps=32,epochs=2,minibatches=2,evaluations=2,evaluation_episodes=1,final_episodes=2"


def hopper(
    out: Path,
    *,
    env: str = "Hopper",
    algo: str = "ppo_clip",
    seeds: int = 1,
    steps: int = 640,
    listener: Silent | None = None,
) -> Outcome:
    """A sweep of tiny control runs, 64 steps a phase, by this process."""
    asked = {"env": env, "k": "2", "algo": algo, "seeds": str(seeds), "steps": str(steps), "settings": TINY}
    return sweep_here(out, 2, listener, **asked)


def command(out: Path, *arguments: str, algo: str = "ppo_clip", steps: int = 640) -> list[str]:
    """The words of the same sweep on a command line."""
    asked = f"--env Hopper --k 2 --algo {algo} --set {TINY} --steps {steps} --jobs 2".split()
    return ["sweep", *asked, "--out", str(out), *arguments]


BRIEF = """
from staleharness import cli
from staleharness.figures import registry
registry.sections = lambda results: []
cli.main()
"""


def process(*words: str) -> list[str]:
    """A command line, as a process of its own, whose reports have no figures: drawing them takes most of a sweep's
    time."""
    return [sys.executable, "-c", BRIEF, *words]


def staleharness(*words: str) -> subprocess.CompletedProcess[str]:
    """A command line, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["staleharness", *words])
        patch.setenv("NO_COLOR", "1")
        draw_quickly(patch)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            cli.main()
    return subprocess.CompletedProcess(words, ended.value.code, out.getvalue(), errors.getvalue())  # type: ignore[arg-type]


def message(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object that a command printed last."""
    content: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return content


def environment(**more: str) -> dict[str, str]:
    """Environment of a process that runs the command line."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": "", "NO_COLOR": "1", **more}


def relatives(out: Path) -> list[int]:
    """Living processes that were started with this results folder or work in it: the sweep, its server, its workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                place = os.readlink(entry / "cwd")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and (str(out).encode() in words or place.startswith(str(out))):
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def phases_written(out: Path) -> int:
    """Lines of the logs of all runs under way."""
    return sum(path.read_bytes().count(b"\n") for path in (out / "attempts").glob("*/metrics.jsonl"))


def metrics(out: Path) -> dict[str, str]:
    """Return the part of a run that every repetition must equal: a hash of every phase's metrics, per run."""
    records = [json.loads((path / "run.json").read_text()) for path in sorted((out / "runs").iterdir())]
    return {record["id"]: record["metrics_sha256"] for record in records}
