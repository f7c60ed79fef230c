"""A run of five phases that takes milliseconds, with a checkpoint after each, done by a worker in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_plugins import TABULAR, loaded_plugins

from staleharness.errors import Interrupted
from staleharness.running import worker
from staleharness.running.plan import plan
from staleharness.running.runner_interface import Job
from staleharness.store.store import Store
from staleharness.study import sweep_request

PHASES = 5
Result = tuple[str, Any]


def job_of(root: Path, seed: int = 0) -> Job:
    made = plan(sweep_request(env="random-mdp-0", k="2", algo="spo", seeds="1", steps=str(128 * PHASES)), [seed]).runs[
        0
    ]
    Store(root).open_for_writing()
    return Job(made.run_id, made.label, made.spec.to_dict(), str(root), checkpoint_seconds=0.0)


def carry_out(job: Job, at: dict[int, Callable[[], object]] | None = None, stop_after: int = 0) -> list[int]:
    """Run the job to its end or to a phase; return the phases that it reported.

    at: functions to call after phases.
    """
    heard: list[int] = []

    def progress(message: dict[str, Any]) -> None:
        if "phase" in message:
            heard.append(message["phase"])
            (at or {}).get(message["phase"], lambda: None)()

    try:
        worker.execute(job, progress, lambda: heard[-1:] == [stop_after])
    except Interrupted as stop:
        assert heard[-1:] == [stop_after] or "taken this run over" in str(stop)
    return heard


def result(job: Job) -> Result:
    """Return the parts of a result that must not depend on interruptions."""
    found = Store(job.root).read(job.run_id)
    assert found is not None
    return found.record["metrics_sha256"], found.record["scores"]


@pytest.fixture
def job(tmp_path: Path, tabular: Path) -> Job:
    return job_of(tmp_path / "out")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with loaded_plugins(TABULAR):
        job = job_of(tmp_path_factory.mktemp("straight"))
        assert carry_out(job) == [1, 2, 3, 4, 5]
        return result(job)


@pytest.fixture
def straight(once: Result, tabular: Path) -> Result:
    """Result of an undisturbed run."""
    return once
