"""Models that answer for a whole run, in runs on Hopper: what a phase trains on is what the schedule says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_specs import small_control

from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

SPEC = small_control(8, 4, 20, capacity=12)


def run(**changed: Any) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """Metrics of each phase, and the parameters after it."""
    simulation: Any = simulation_of(replace(SPEC, **changed))
    found = [(record.metrics, simulation.policy.flat.clone()) for record in simulation]
    simulation.close()
    return [metrics for metrics, _ in found], [weights for _, weights in found]


def test_delay_trains_on_new_data_of_past_policies() -> None:
    """The queue's data are those that version t − 2 makes, bit for bit; stored data that return are others."""
    (_, queue), (_, anew), (_, returned) = (
        run(lag="delay:2"),
        run(lag="fixed:2"),
        run(lag="fixed:2", mechanism="replay"),
    )
    assert all(torch.equal(a, b) for a, b in zip(queue, anew, strict=True))
    assert torch.equal(queue[0], returned[0]) and not torch.equal(queue[1], returned[1])


@pytest.mark.parametrize(
    "lag, said", [("fixed:2", True), ("oldest", True), ("fixed:0", False), ("uniform", False), ("tba:1", False)]
)
def test_replay_of_the_first_batch_is_a_warning(lag: str, said: bool) -> None:
    simulation: Any = simulation_of(replace(SPEC, lag=lag, mechanism="replay", capacity=3))
    simulation.close()
    assert any(f"until LAG={lag} reaches its lag" in line for line in simulation.warnings) is said


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("lag", ["areal:2", "rllib_appo", "queue[max_lag=1,on_stale=requeue]", "partial", "slime:3"])
@pytest.mark.long
def test_the_lags_of_a_run_are_those_of_its_schedule(lag: str, each: int) -> None:
    metrics, _ = run(lag=lag, envs_per_actor=each)
    spec = replace(SPEC, lag=lag, envs_per_actor=each)
    assert spec.demand is not None
    plan = parse_lag(lag, spec.capacity).schedule(spec.demand)
    for phase, said in enumerate(metrics):
        versions, _ = plan.along(plan.trained_in(phase), spec.num_steps)
        assert said["lag_mean"] == pytest.approx((phase - versions).mean())
        assert said["lag_histogram"] == np.bincount((phase - versions).ravel()).tolist()


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"lag": "areal:6", "capacity": 4}, r"LAG=areal:6.0 has lags of up to \d+ phases, .*; give K=\d+"),
        ({"lag": "areal:1", "density": "mixture"}, "density=mixture is for lag models that draw"),
        ({"lag": "areal:1", "mechanism": "replay"}, "mechanism=replay is for lag models that draw"),
        ({"lag": "queue[max_lag=0,sync_time=1e5]"}, "starves at t = .* before step 1"),
        ({"lag": "delay:12"}, "LAG=delay:12 needs a buffer of at least K=13"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_written(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        find_env(SPEC.env)[1].check(replace(SPEC, **changed))
    assert "\n" not in str(error.value)
