"""Checkpoints written on 25 November 2026 still open, and the run goes on as if it had never stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_specs import small_chain, small_control

from staleharness.spec import RunSpec
from staleharness.task import find_env
from staleharness.training.checkpoint import load
from staleharness.training.loop import simulation_of

STORED = Path(__file__).with_name("checkpoints")
CONTROL = small_control(4, 2, 20, env="Pendulum-v1", capacity=3, hidden=(4,))
CHAIN = small_chain(4, 4, capacity=4)
PIPELINE = "queue[max_lag=2,slots=1.5]"
STOPPED_BEFORE = 2  # the phase
RUNS: dict[str, RunSpec] = {
    "control_drawn": CONTROL,
    "control_episode": replace(CONTROL, assignment="episode"),
    "control_replay": replace(CONTROL, mechanism="replay"),
    "control_schedule": replace(CONTROL, lag=PIPELINE, capacity=4),
    "control_delay": replace(CONTROL, lag="delay:1", envs_per_actor=2),
    "chain_drawn": CHAIN,
    "chain_schedule": replace(CHAIN, lag=PIPELINE),
}


def simulation(name: str) -> Any:
    find_env(RUNS[name].env)[1].check(RUNS[name])
    return simulation_of(RUNS[name])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_resumes_from_a_stored_checkpoint(name: str) -> None:
    straight, resumed = simulation(name), simulation(name)
    records = list(straight)[STOPPED_BEFORE:]
    resumed.load_state_dict(load(STORED / f"{name}.pt"))
    again = list(resumed)
    assert len(again) == len(records) == 2
    for one, other in zip(again, records, strict=True):
        exact = [key for key in one.metrics if "lag" in key or key.startswith(("sequences/", "decisions/", "phase"))]
        assert {k: one.metrics[k] for k in exact} == {k: other.metrics[k] for k in exact}
    for one, other in zip(resumed.learner.parameters, straight.learner.parameters, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)  # machines round differently
    resumed.close(), straight.close()
