"""Checkpoints written on 25 November 2026 still open, and the run goes on as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from staleharness.task import find_env
from staleharness.training.checkpoint import load
from staleharness.training.loop import simulation_of

STORED = Path(__file__).with_name("checkpoints")
CONTROL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "algorithm": "ppo_clip",
    "capacity": 3,
    "steps": 4 * 2 * 20,
    "num_envs": 2,
    "num_steps": 20,
    "epochs": 2,
    "minibatches": 2,
    "hidden": [4],
    "evaluations": 1,
    "evaluation_episodes": 1,
    "final_episodes": 1,
}
CHAIN: dict[str, Any] = {
    "env": "bit-chain",
    "algorithm": "seq_is",
    "horizon": 6,
    "batch": 4,
    "capacity": 4,
    "steps": 4,
    "start": 0.4,
    "evaluations": 1,
}
PIPELINE = "queue[max_lag=2,slots=1.5]"
STOPPED_BEFORE = 2  # the phase
RUNS: dict[str, dict[str, Any]] = {
    "control_drawn": CONTROL,
    "control_episode": CONTROL | {"assignment": "episode"},
    "control_replay": CONTROL | {"mechanism": "replay"},
    "control_schedule": CONTROL | {"lag": PIPELINE, "capacity": 4},
    "control_delay": CONTROL | {"lag": "delay:1", "envs_per_actor": 2},
    "chain_drawn": CHAIN,
    "chain_schedule": CHAIN | {"lag": PIPELINE},
}


def simulation(name: str) -> Any:
    settings = RUNS[name]
    task = find_env(settings["env"])[1]
    spec = task.settings.from_dict(settings)
    task.check(spec)
    return simulation_of(spec)


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
