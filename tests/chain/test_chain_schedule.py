"""Chains whose episodes a schedule plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from schedules import Group, lock_step, schedule
from schedules import given_schedule as given_schedule
from small_specs import small_chain
from whole_runs import one_thread as one_thread

from staleharness.base.streams import stream
from staleharness.chain.spec import ChainSpec
from staleharness.errors import UserError
from staleharness.rollout_schedule import NEVER, Demand, Schedule
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

SetSchedule = Callable[[Callable[[Demand], Schedule]], None]
H, BATCH = 6, 4


def spec(**settings: Any) -> ChainSpec:
    return small_chain(**{"steps": 4, "batch": BATCH, "learning_rate": 0.3, **settings})


def logits_by_phase(run_spec: ChainSpec) -> list[list[float]]:
    simulation: Any = simulation_of(run_spec)
    return [simulation.policy.logits.tolist() for _ in simulation]


def test_actors_in_lock_step_are_the_drawn_run(given_schedule: SetSchedule) -> None:
    given_schedule(lambda demand: lock_step(demand, 2))
    assert logits_by_phase(spec(lag="written", minibatches=2)) == logits_by_phase(spec(lag="fixed:2", minibatches=2))


def test_weights_change_inside_episodes_and_actors_have_own_noise(given_schedule: SetSchedule) -> None:
    whole, mixed = [(0, H, True)], [(0, 2, True), (1, 5, False), (1, H, True)]

    def plan(demand: Demand) -> Schedule:
        first = [Group(actor, 0, whole) for actor in range(BATCH)]
        return schedule(
            [*first, Group(0, NEVER, whole), Group(0, 1, mixed), *(Group(a, 1, whole) for a in (1, 5, 9))], 1
        )

    given_schedule(plan)
    simulation: Any = simulation_of(spec(lag="written", steps=2))
    simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(1, simulation.gradient_steps))
    data = simulation.collect(1).data
    assert data.version.tolist() == [[0, 0, 1, 1, 1, 1], *[[0] * H] * 3]
    assert data.kept.tolist() == [[1, 1, 0, 0, 0, 1], *[[1] * H] * 3]
    noise = [
        stream(0, "action", 2).random((BATCH, H), np.float32)[0],  # the dropped one was its second
        stream(0, "action", 1).random((BATCH, H), np.float32)[1],
        stream(0, "action", 0, 1).random((BATCH, H), np.float32)[1],
        stream(0, "action", 0, 2).random((BATCH, H), np.float32)[1],
    ]
    logits = torch.stack([simulation.buffer[v].tensors["logits"] for v in (0, 1)])
    chance = logits[data.version, torch.arange(H)].sigmoid().numpy()
    assert np.array_equal(data.token.numpy(), np.stack(noise) < chance)


def test_processes_are_refused_and_so_is_a_buffer_that_is_too_small(given_schedule: SetSchedule) -> None:
    with pytest.raises(
        UserError, match="LAG=async needs actors in their own processes, which bit-chain does not support"
    ):
        find_env("bit-chain")[1].check(spec(lag="async"))
    given_schedule(lambda demand: lock_step(demand, 2))
    with pytest.raises(UserError, match="lags of up to 2 phases, and K=2 holds lags 0 to 1; give K=3"):
        find_env("bit-chain")[1].check(spec(lag="written", capacity=2))


@pytest.mark.parametrize("lag", ["queue[max_lag=1", "prime_rl[max_off_policy_steps=1"])
def test_what_a_pipeline_drops_is_in_the_ledger(lag: str) -> None:
    """Episodes are of one length, so the schedule says all of it; those that were stopped are as long as they were."""
    simulation: Any = simulation_of(spec(lag=f"{lag},slots=3.0,row_time=3.0,cv=1.5]", steps=8))
    plan, dropped_length = simulation.lags.schedule, 0
    for phase, record in enumerate(simulation):
        m = record.metrics
        rows = [[i for i in range(len(plan)) if 0 <= when[i] <= phase] for when in (plan.finished, plan.left)]
        gone = [i for i in rows[1] if plan.phase[i] == NEVER]
        assert m["sequences/generated"] == len(rows[0]) and m["sequences/dropped"] == len(gone)
        made = [sum(int(plan.end[plan.first[i + 1] - 1]) for i in some) for some in (rows[0], gone)]
        assert [m["decisions/generated"], m["decisions/dropped"]] == made
        assert m["sequences/queued"] == len(set(rows[0]) - set(rows[1]))
        assert m["decisions/trained"] == (phase + 1) * BATCH * H
        dropped_length = m["decisions/dropped"] / max(1, m["sequences/dropped"])
    assert dropped_length == H if lag.startswith("queue") else 0 < dropped_length < H
