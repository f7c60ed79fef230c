"""The runner for Slurm, driven as a sweep drives it, with tasks of `light_task`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from staleharness.running.runner_interface import Event, Job, RunEnd, RunProgress
from staleharness.running.runners.slurm import SlurmRunner


def job(
    root: Path, number: int, phases: int = 20, nap: float = 0.03, ends: str = "done", stays: float = 0.0, gate: int = 0
) -> Job:
    spec = {"threads": 1, "phases": phases, "nap": nap, "ends": ends, "stays": stays, "gate": gate}
    return Job(f"{number:012x}", "", spec, str(root), str(root))


Act = Callable[[SlurmRunner, Event], object]


class Drive:
    """Has a runner carry out jobs as a sweep does, and keeps what it hears."""

    def __init__(self, runner: SlurmRunner, jobs: list[Job], act: Act = lambda runner, event: None) -> None:
        self.heard: list[Event] = []
        self.ends: dict[int, RunEnd] = {}
        runner.open([], Path(jobs[0].root))
        try:
            for each in jobs:
                runner.start(each)
            deadline = time.monotonic() + 600
            while len(self.ends) < len(jobs):
                assert time.monotonic() < deadline, "timed out"
                for event in runner.poll(0.05):
                    self.heard.append(event)
                    if isinstance(event, RunEnd):
                        self.ends[int(event.run_id, 16)] = event
                    act(runner, event)
        finally:
            runner.close()

    def report(self, number: int, what: str) -> list[Any]:
        report = [e for e in self.heard if isinstance(e, RunProgress) and int(e.run_id, 16) == number]
        return [event.content[what] for event in report if what in event.content]

    def phases(self, number: int) -> list[int]:
        return self.report(number, "phase")

    def span(self, number: int) -> tuple[float, float]:
        """Times at which its first and its last phase were done, by the machine's clock."""
        at = self.report(number, "at")
        return at[0], at[-1]

    def words(self) -> dict[int, str | None]:
        return {number: event.message["event"] if event.message else None for number, event in self.ends.items()}


def once(
    act: Callable[[SlurmRunner], object], phase: int = 4, number: int = 0, gate: Path | None = None, runs: int = 1
) -> Act:
    """Does something when a run tells of a phase for the first time and so many `runs` have begun, then lets those go
    on that wait at a `gate`, the folder of their jobs."""
    left = [act]
    phases: dict[int, int] = {}

    def look(runner: SlurmRunner, event: Event) -> None:
        if isinstance(event, RunProgress):
            phases[int(event.run_id, 16)] = event.content.get("phase", 0)
        if phases.get(number, 0) >= phase and len(phases) >= runs:
            while left:
                left.pop()(runner)
                if gate is not None:
                    (gate / "open").touch()

    return look


def open_gate(root: Path, run_id: str) -> None:
    """Let one job go on that waits."""
    (root / f"{run_id}.open").touch()


def lives(root: Path, number: int) -> int:
    return len((root / f"{number:012x}.lives").read_text().splitlines())
