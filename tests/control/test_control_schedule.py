"""Control takes its rows from a schedule: who made them, with which versions, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import logp_under
from schedules import Group, lock_step, schedule
from small_specs import small_control
from torch import Tensor

from staleharness.batch import Rollout
from staleharness.control.learner import ControlData
from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.rollout_schedule import NEVER, Demand, Schedule
from staleharness.rollout_schedule_checks import validate_schedule
from staleharness.task import find_env
from staleharness.training.checkpoint import load_newest, save
from staleharness.training.loop import simulation_of

GivenSchedule = Callable[[Callable[[Demand], Schedule]], None]
SMALL = small_control(5, 4, 30, capacity=3, minibatches=3)


def run(spec: ControlSpec) -> tuple[list[ControlData], list[Tensor], ControlSimulation]:
    """Data of each phase, the parameters after it, and the run."""
    simulation: Any = simulation_of(spec)
    consumed: list[ControlData] = []
    train = simulation.learner.train

    def recording(data: ControlData, phase: int) -> Any:
        consumed.append(data)
        return train(data, phase)

    simulation.learner.train = recording
    weights = [simulation.policy.flat.clone() for _ in simulation]
    simulation.close()
    return consumed, weights, simulation


def equal_rollouts(a: Rollout, b: Rollout) -> bool:
    def equal(x: Any, y: Any) -> bool:
        return x is y is None or torch.equal(x, y)  # None: what only a run with a MISMATCH has

    return all(equal(getattr(a, name), getattr(b, name)) for name in vars(a))


@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize("env", ["Hopper-v5", "Pendulum-v1"])
@pytest.mark.long
def test_actors_in_lock_step_are_one_vector_of_environments(given_schedule: GivenSchedule, env: str, each: int) -> None:
    """The data, the learner and the scores of a drawn run, bit for bit, however many environments an actor has."""
    spec = replace(SMALL, env=env, lag="fixed:2")
    drawn = run(spec)
    given_schedule(lambda demand: lock_step(demand, 2))
    planned = run(replace(spec, lag="written", envs_per_actor=each))
    for ours, theirs in zip(planned[0], drawn[0], strict=True):
        assert equal_rollouts(ours.rollout, theirs.rollout) and torch.equal(ours.reward, theirs.reward)
    for mine, other in zip(planned[1], drawn[1], strict=True):
        assert torch.equal(mine, other)
    assert planned[2].evaluate() == drawn[2].evaluate()


def irregular(demand: Demand) -> Schedule:
    """Slow and fast actors, two groups of one actor in a phase, a group that is dropped, weights that change inside
    a row, and an actor more than the batch has places for."""
    n = demand.length
    groups = [
        Group(0, 0, [(0, n, True)]),
        Group(1, 0, [(0, n, True)]),
        Group(2, 1, [(0, 10, True), (1, n, True)]),
        Group(0, 1, [(0, n, True)]),
        Group(1, NEVER, [(0, n, True)]),
        Group(0, 2, [(1, n, True)]),
        Group(0, 2, [(1, 5, True), (2, n, True)]),
        Group(2, 3, [(1, n, False)]),
        Group(1, 3, [(2, n, True)]),
        Group(0, 4, [(2, 7, True), (3, 20, False), (4, n, True)]),
        Group(1, 4, [(3, n, True)]),
        Group(2, NEVER, [(3, n, True)]),
        Group(0, NEVER, [(4, n, True)]),
    ]
    return schedule(groups, demand.rows)


IRREGULAR = replace(SMALL, lag="written", envs_per_actor=2)


def test_scheduled_rows_have_their_versions_and_continue_episodes(given_schedule: GivenSchedule) -> None:
    """Each row's log-probability is that of its versions, its noise is its actor's and count's, and its first
    observation is where the same actor's row before stopped, dropped ones included."""
    given_schedule(irregular)
    spec = IRREGULAR
    simulation: Any = simulation_of(spec)
    stored: dict[int, Any] = {}
    push, make = simulation.buffer.push, simulation.actors._generate
    made: dict[int, Rollout] = {}

    def watched_make(buffer: Any, phase: int, plan: Schedule, rows: Any) -> Any:
        group = make(buffer, phase, plan, rows)
        made[int(simulation.lags.schedule.group[rows[0]])] = group.rollout
        return group

    simulation.buffer.push = lambda version: (stored.update({version.phase: version}), push(version))
    simulation.actors._generate = watched_make
    trained: list[Rollout] = []
    train = simulation.learner.train
    simulation.learner.train = lambda data, phase: (trained.append(data.rollout), train(data, phase))[1]
    for _ in simulation:
        pass

    found = simulation.lags.schedule
    assert sorted(made) == list(range(11)), "what nobody trains on later is not made"
    versions, _ = found.along(np.arange(len(found)), spec.num_steps)
    for group, rollout in made.items():
        rows = np.flatnonzero(found.group == group)
        assert np.array_equal(rollout.version.numpy(), versions[rows])
        for v in np.unique(versions[rows]).tolist():
            mine = rollout.version == v
            expected = logp_under(simulation, stored[v], rollout.obs[mine], rollout.action[mine])
            assert torch.equal(rollout.behaviour_logp[mine], expected)
        actor, nth = int(found.actor[rows[0]]), int(found.nth[rows[0]])
        before = [g for g in made if found.actor[2 * g] == actor and found.nth[2 * g] == nth - 1]
        for row in range(2) if before else ():
            last = made[before[0]]
            if not bool(last.terminated[row, -1]):
                final = (last.final_row == row) & (last.final_step == spec.num_steps - 1)
                assert torch.equal(last.final_obs[final][0], rollout.obs[row, 0])
    for phase, rollout in enumerate(trained):
        groups = found.group[found.trained_in(phase)][::2]
        assert torch.equal(rollout.obs, torch.cat([made[g].obs for g in groups.tolist()]))
    assert int(trained[3].version.min()) == 1 and int(trained[4].version.max()) == 4


def test_actors_have_noise_of_their_own(given_schedule: GivenSchedule) -> None:
    """Also those beyond the places of a batch, whose environments are seeded on from the others'."""
    given_schedule(
        lambda demand: schedule(
            [Group(actor, 0, [(0, demand.length, True)]) for actor in (0, 1, 2, 3)]
            + [Group(actor, 1, [(0, demand.length, True)]) for actor in (4, 5, 6, 7)],
            demand.rows,
        )
    )
    consumed, _, _ = run(replace(SMALL, lag="written", steps=2 * 4 * 30))
    obs, action = (torch.cat([getattr(data.rollout, name) for data in consumed]) for name in ("obs", "action"))
    assert len({tuple(row.tolist()) for row in obs[:, 0]}) == len({tuple(r.tolist()) for r in action[:, 0]}) == 8


def test_masked_decisions_teach_nothing(given_schedule: GivenSchedule) -> None:
    """Their minibatches hold the others alone, and what they say does not move the learner."""
    given_schedule(irregular)
    simulation: Any = simulation_of(replace(IRREGULAR, normalise_advantage=False))
    for _ in range(3):
        simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(3, simulation.gradient_steps))
    data = simulation.collect(3).data
    assert data.loss_mask.tolist() == [[False] * 30] * 2 + [[True] * 30] * 2
    learner = simulation.learner
    learner.begin(data, 3)
    taught = torch.cat([part.decision.flatten() for part in learner.minibatches(0)])
    assert sorted(taught.tolist()) == list(range(60, 120))


def test_a_scheduled_run_resumes_bit_for_bit_after_every_phase(given_schedule: GivenSchedule, tmp_path: Any) -> None:
    given_schedule(irregular)
    straight = [(r.metrics, r.scores) for r in simulation_of(IRREGULAR)]
    resumed = []
    for phase in range(IRREGULAR.phases):
        simulation: Any = simulation_of(IRREGULAR)
        if (state := load_newest(tmp_path)) is not None:
            simulation.load_state_dict(state)
        record = simulation.advance()
        resumed.append((record.metrics, record.scores))
        save(tmp_path, phase, simulation.state_dict())
        simulation.close()
    assert resumed == straight


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"capacity": 2}, "LAG=written has lags of up to 2 phases, and K=2 holds lags 0 to 1; give K=3"),
        ({"steps": 6 * 4 * 30}, "phase 5 has 0 rows in 0 groups; the run asks for 2 groups of 2, for 6 phases"),
        ({"envs_per_actor": 1}, "the run asks for 4 groups of 1"),
        ({"mechanism": "replay"}, "mechanism=replay is for lag models that draw"),
        ({"assignment": "episode"}, "assignment=episode is for lag models that draw"),
        ({"density": "mixture"}, "density=mixture is for lag models that draw"),
        ({"observation_statistics": "shared_live"}, "shared_live changes what an actor sees while it acts"),
        ({"algorithm": "vaco", "hyper": {"realign_every": "step"}}, "vaco trains on whole rows"),
        ({"minibatches": 50}, ""),
        (
            {"minibatches": 61, "normalise_advantage": False},
            "masks all but 60 decisions of phase 3, fewer than minibatches=61",
        ),
    ],
)
def test_impossible_settings_are_refused_in_the_plan(
    given_schedule: GivenSchedule, changes: dict[str, Any], words: str
) -> None:
    fixed = irregular(Demand(5, 2, 2, 30, 0))
    given_schedule(lambda demand: fixed)
    spec = replace(IRREGULAR, **changes)
    if not words:
        find_env(spec.env)[1].check(spec)
        return
    with pytest.raises(UserError) as error:
        find_env(spec.env)[1].check(spec)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_contradictory_schedule_is_refused(given_schedule: GivenSchedule) -> None:
    def message_of(groups: list[Group], **changed: Any) -> str:
        with pytest.raises(UserError) as error:
            validate_schedule(schedule(groups, 1, **changed), Demand(2, 1, 1, 9, 0), "LAG=x")
        return str(error.value)

    sound = [Group(0, 0, [(0, 9, True)]), Group(0, 1, [(1, 9, True)])]
    validate_schedule(schedule(sound, 1), Demand(2, 1, 1, 9, 0), "LAG=x")
    assert message_of([Group(0, 0, [(1, 9, True)]), sound[1]]) == (
        "LAG=x: row 0 is trained in phase 0 with a version from the future"
    )
    backwards = Group(0, 1, [(1, 4, True), (0, 9, True)])
    assert message_of([sound[0], backwards]) == "LAG=x: row 1 goes back to an older version, from 1 to 0"
    hole = schedule(sound, 1, nth=np.array([0, 2]))
    with pytest.raises(UserError, match="actor 0 lacks its group 1"):
        validate_schedule(hole, Demand(2, 1, 1, 9, 0), "LAG=x")
    held_up = [Group(0, 1, [(1, 9, True)]), Group(0, 0, [(0, 9, True)])]
    assert "row 1 is trained in phase 0 with a version from the future" in message_of(held_up)


def test_the_longest_lag_is_that_of_the_oldest_version_in_a_row() -> None:
    whole, crossing = [(0, 9, True)], [(0, 4, True), (1, 9, True)]
    found = schedule([Group(0, 0, whole), Group(0, 1, crossing)], 1)
    assert found.longest_lag == 1
    with pytest.raises(UserError, match="give K=2"):
        found.check_capacity(1, "LAG=x")
