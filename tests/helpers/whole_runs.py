"""Whole runs in this process, their metrics and bits, and runs that stop and go on from their state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from staleharness.spec import RunSpec
from staleharness.training.loop import simulation_of

Metrics = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One torch thread, as in a worker: bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(simulation: Any) -> list[Tensor]:
    """Return copies of all that the learner trains."""
    return [p.detach().clone() for p in simulation.learner.parameters]


def all_equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def run_whole(spec: RunSpec) -> tuple[Metrics, list[Tensor]]:
    """Return metrics of every phase, and the parameters after the last."""
    simulation: Any = simulation_of(spec)
    metrics = [record.metrics for record in simulation]
    simulation.close()
    return metrics, parameters(simulation)


def metrics_of(spec: RunSpec) -> Metrics:
    return run_whole(spec)[0]


def assert_resumes(spec: RunSpec, *stops: int) -> None:
    """A run that stops after so many phases, and goes on from its state, has the bits of one that never stopped."""
    straight, trained = run_whole(spec)
    for phases in stops:
        stopped, resumed = simulation_of(spec), simulation_of(spec)
        begun = [stopped.advance().metrics for _ in range(phases)]
        resumed.load_state_dict(stopped.state_dict())
        assert begun + [record.metrics for record in resumed] == straight
        assert all_equal(parameters(resumed), trained)
        stopped.close(), resumed.close()


def entries(metrics: dict[str, Any], unit: str) -> dict[str, int]:
    """Entries of the ledger of `unit`, "sequences" or "decisions", by name."""
    return {key.partition("/")[2]: n for key, n in metrics.items() if key.startswith(f"{unit}/")}
