"""Batches that several phases train on, as rllib_appo has them, in runs on control, chains and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_on_a_task import SPEC
from whole_runs import assert_resumes, metrics_of

from staleharness.chain.spec import ChainSpec
from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.rollout_schedule import Demand, Schedule
from staleharness.rollout_schedule_checks import validate_schedule
from staleharness.spec import RunSpec
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

LAG = "rllib_appo[slots=1.0,row_time=2.0,circular_buffer_iterations_per_batch=3]"
CHAIN = ChainSpec(
    env="bit-chain", algorithm="seq_is", horizon=6, batch=4, capacity=40, steps=24, lag=LAG, evaluations=1
)


def first_phases(plan: Schedule, phases: int) -> list[int]:
    """Phase in which the batch of each phase was trained on first."""
    return [int(plan.phase[plan.trained_in(phase)[0]]) for phase in range(phases)]


def runs(spec: RunSpec) -> tuple[Schedule, list[dict[str, Any]]]:
    assert spec.demand is not None
    return read_lag(spec.lag).schedule(spec.demand), metrics_of(spec)


def check_ledger(plan: Schedule, metrics: list[dict[str, Any]], rows: int) -> None:
    firsts = first_phases(plan, len(metrics))
    again = np.cumsum([first != phase for phase, first in enumerate(firsts)])
    assert 3 < again[-1] < len(metrics)
    for phase, said in enumerate(metrics):
        assert said["sequences/reused"] == rows * again[phase]
        assert said["sequences/trained"] + said["sequences/masked"] == rows * (phase + 1 - again[phase])


def test_a_schedule_says_which_phases_train_on_a_row_again() -> None:
    demand = Demand(phases=30, groups=4, rows=2, length=9, seed=1)
    plan = read_lag(LAG).schedule(demand)
    validate_schedule(plan, demand, LAG)
    assert plan.reused is not None
    uses = np.bincount(np.concatenate([plan.trained_in(phase) for phase in range(30)]), minlength=len(plan))
    assert uses.max() == 3 and (uses[plan.phase == -1] == 0).all()
    oldest = max(int((phase - plan.oldest[plan.trained_in(phase)]).max()) for phase in range(30))
    assert plan.longest_lag >= oldest > (plan.phase - plan.oldest).max()
    late = replace(plan, reused=plan.reused - [0, 30])
    with pytest.raises(UserError, match=r"row \d+ is trained on again in phase -\d+, before the first time"):
        validate_schedule(late, demand, LAG)


def test_control_trains_on_the_same_data_again() -> None:
    spec = replace(SPEC, lag=LAG, capacity=40, steps=24 * 4 * 20, envs_per_actor=2)
    assert spec.demand is not None
    plan, metrics = runs(spec)
    check_ledger(plan, metrics, rows=4)
    simulation: Any = simulation_of(spec)
    seen: list[torch.Tensor] = []
    begin = simulation.learner.begin

    def keep(data: Any, phase: int) -> Any:
        seen.append(data.rollout.obs.clone())
        return begin(data, phase)

    simulation.learner.begin = keep
    list(simulation)
    firsts = first_phases(plan, len(seen))
    assert simulation.moments.count == simulation.reward_scale.moments.count == len(set(firsts)) * spec.steps_per_phase
    for phase, first in enumerate(firsts):
        assert torch.equal(seen[phase], seen[first])
        assert sum(torch.equal(seen[phase], other) for other in seen) == sum(
            f == first for f in first_phases(plan, len(seen))
        )
    assert_resumes(spec, 9)


def test_chains_train_on_the_same_data_again() -> None:
    plan, metrics = runs(CHAIN)
    check_ledger(plan, metrics, rows=CHAIN.batch)
    for phase, first in enumerate(first_phases(plan, len(metrics))):
        assert metrics[phase]["reward"] == metrics[first]["reward"]
        assert metrics[phase]["lag_mean"] - metrics[first]["lag_mean"] == pytest.approx(phase - first)


def test_phases_of_fresh_data_do_not_go_with_it() -> None:
    with pytest.raises(UserError, match="trains on batches more than once cannot begin with phases of fresh data"):
        find_env("bit-chain")[1].check(replace(CHAIN, fill_phases=2))
    once = LAG.replace("batch=3", "batch=1")
    find_env("bit-chain")[1].check(replace(CHAIN, fill_phases=2, lag=once))
