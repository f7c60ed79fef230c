"""A person hears which run starts before a runner takes its time to start it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import Event, Job, RunEnd
from staleharness.running.sweep_event_loop import sweep
from staleharness.store.store import Store
from staleharness.study import sweep_request


class Heard:
    """A runner and a listener in one, which writes down in what order it is told."""

    capacity = per_machine = 1
    multi_machine = has_queue = False

    def __init__(self) -> None:
        self.order: list[str] = []
        self.active: list[str] = []

    def open(self, modules: Sequence[str], root: Path) -> None: ...
    def close(self) -> None: ...
    def ask_to_stop(self, run_id: str) -> None: ...
    def kill(self, run_id: str) -> None: ...
    def on_preparing(self, run: PlannedRun, step: str) -> None: ...
    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def on_stop(self) -> None: ...

    def on_start(self, run: PlannedRun) -> None:
        self.order.append("said")

    def start(self, job: Job) -> None:
        self.order.append("started")
        self.active.append(job.run_id)

    def poll(self, timeout: float) -> Iterator[Event]:
        while self.active:
            yield RunEnd(self.active.pop(), None, "nothing")

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        self.order.append("ended")


def test_a_run_is_said_to_start_before_its_runner_starts_it(tmp_path: Path, tabular: Path) -> None:
    runs = plan(sweep_request(env="random-mdp-0", k="2", algo="spo,ppo_clip", seeds="1", steps="640")).runs
    store, heard = Store(tmp_path / "out"), Heard()
    store.open_for_writing()
    sweep(runs, store, heard, heard)
    assert heard.order == ["said", "started", "ended"] * 2
