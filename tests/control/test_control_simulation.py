"""Staleness is real, whole, and exactly reproducible."""

from __future__ import annotations

import functools
import io
import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import RecordedRun, finish, logp_under, recording
from small_specs import small_control
from torch import Tensor

from staleharness.algorithm import Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.training.loop import simulation_of

SMALL = small_control(6, 8, 64, capacity=4, minibatches=4, evaluations=2)


@functools.cache
def small() -> RecordedRun:
    """One whole run for all tests that look at a run like it and change nothing in it."""
    return finish(SMALL)


def test_behaviour_logp_is_exactly_that_of_the_acting_version() -> None:
    simulation = small()
    mixed = 0
    for rollout in simulation.consumed:
        obs, action = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)
        versions = rollout.version.flatten()
        mixed += len(versions.unique()) > 1
        for v in versions.unique().tolist():
            mine = versions == v
            expected = logp_under(simulation, simulation.versions[v], obs[mine], action[mine])
            assert torch.equal(rollout.behaviour_logp.flatten()[mine], expected)
            assert (rollout.gradient_step.flatten()[mine] == v * 2 * 4).all()
            for other in versions.unique().tolist():
                if other != v:
                    assert not torch.equal(
                        logp_under(simulation, simulation.versions[other], obs[mine], action[mine]), expected
                    )
    assert mixed >= 4


@dataclass(frozen=True)
class Probe(Algorithm):
    """Fails unless each log-probability belongs to its own policy.

    The test gives version v the standard deviation exp(−0.1 v) and a mean of exactly 0. From a recorded
    behaviour log-probability and the lag alone the squared noise follows, and with it what the target and the proximal
    policy must say about the same action. Any log-probability that came from another policy breaks the equation.
    """

    anchor: str = "behaviour"
    phase: int = 0
    act_dim: int = 3

    @property
    def proximal(self) -> Any:
        return self.anchor

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        constant = self.act_dim * 0.5 * math.log(2 * math.pi)

        def log_sigma(version: Tensor | float) -> Tensor:
            return torch.as_tensor(-0.1 * version)

        behaviour, target = log_sigma(self.phase - d.lag), log_sigma(float(self.phase))
        square = -2.0 * (d.behaviour_logp + self.act_dim * behaviour + constant)  # Σ noise², at least 0
        assert bool((square > -1e-4).all()), "a behaviour log-probability above its policy's own maximum"
        under_target = -0.5 * square * (2 * (behaviour - target)).exp() - self.act_dim * target - constant
        torch.testing.assert_close(d.target_logp.detach(), under_target, atol=2e-3, rtol=1e-4)
        anchor = d.behaviour_logp if self.anchor == "behaviour" else under_target
        torch.testing.assert_close(d.proximal_logp, anchor, atol=2e-3, rtol=1e-4)
        return PolicyLoss(d.target_logp * 0.0)


@pytest.mark.parametrize("anchor", ["behaviour", "recompute", "ewma"])
@pytest.mark.parametrize("mechanism", ["reexecute", "replay"])
@pytest.mark.long
def test_the_probe_finds_every_logp_with_its_own_policy(anchor: str, mechanism: str) -> None:
    spec = replace(SMALL, mechanism=mechanism, learning_rate=1e-30, anneal_learning_rate=False)
    simulation = recording(spec)
    lags = 0.0
    for phase in range(spec.phases):
        simulation.learner.algorithm = Probe(anchor, phase)
        *layers, log_std = simulation.policy.parameters[: len(simulation.policy.actor_shapes)]
        with torch.no_grad():
            layers[-2].zero_(), layers[-1].zero_(), log_std.fill_(-0.1 * phase)
        simulation.learner.shadow = [simulation.policy.actor_flat.clone()]
        lags += simulation.advance().metrics["lag_mean"]
    assert lags > 3.0, "no staleness, so nothing was probed"


def test_lag_is_uniform_over_the_versions_in_the_buffer() -> None:
    spec = replace(SMALL, num_envs=64, num_steps=2, minibatches=1, epochs=1, steps=60 * 128, capacity=4)
    seen: dict[int, Counter[int]] = {}
    simulation = simulation_of(spec)
    for record in simulation:
        histogram = record.metrics["lag_histogram"]
        held = min(record.metrics["phase"] + 1, 4)
        assert len(histogram) <= held and sum(histogram) == 128
        seen.setdefault(held, Counter()).update(dict(enumerate(histogram)))
    for held, counts in seen.items():
        total = sum(counts.values())
        expected = total / held
        draws = total / 2  # the two steps of an actor share its version
        chi_square = sum((counts[lag] - expected) ** 2 / expected for lag in range(held)) * draws / total
        assert chi_square < 20.0, (held, counts)  # 3 degrees of freedom at most: p < 2e-4
    assert sum(seen[4].values()) == 57 * 128


def test_fixed_lag_is_exact_once_the_buffer_is_full() -> None:
    for record in simulation_of(replace(SMALL, lag="fixed:2")):
        expected = min(record.metrics["phase"], 2)
        assert record.metrics["lag_histogram"] == [0] * expected + [8 * 64]
        assert record.metrics["gradient_lag_mean"] == expected * 2 * 4


def test_replay_with_a_fixed_lag_is_a_first_in_first_out_delay() -> None:
    simulation = finish(replace(SMALL, mechanism="replay", lag="fixed:2"))
    for phase, consumed in enumerate(simulation.consumed):
        source = simulation.collected[max(0, phase - 2)]
        for name in ("obs", "action", "behaviour_logp", "reward", "version"):
            assert torch.equal(getattr(consumed, name), getattr(source, name))
    assert all(int(r.version.min()) == int(r.version.max()) == t for t, r in enumerate(simulation.collected))
    assert simulation.rollouts.unseen_rows == 0


def test_uniform_replay_mixes_phases_and_counts_unseen_rows() -> None:
    simulation = finish(replace(SMALL, mechanism="replay", steps=10 * 8 * 64))
    for consumed in simulation.consumed:
        for row in range(8):
            source = simulation.collected[int(consumed.version[row, 0])]
            matches = [r for r in range(8) if torch.equal(source.obs[r], consumed.obs[row])]
            assert len(matches) == 1
    seen = {(int(r.version[b, 0]), r.obs[b].sum().item()) for r in simulation.consumed for b in range(8)}
    gone = [(t, r.obs[b].sum().item()) for t, r in enumerate(simulation.collected[:-4]) for b in range(8)]
    assert simulation.rollouts.unseen_rows == sum(row not in seen for row in gone) > 0


@pytest.mark.parametrize("mechanism", ["reexecute", "replay"])
def test_no_transition_crosses_a_reset(mechanism: str) -> None:
    """In Hopper the observation after a step is continuous in time, and initial states are near (1.25, 0, ...)."""
    ends = 0
    simulation = small() if mechanism == SMALL.mechanism else finish(replace(SMALL, mechanism=mechanism))
    for rollout in simulation.consumed:
        ended = rollout.terminated | rollout.truncated
        final = {
            (int(b), int(t)): o
            for b, t, o in zip(rollout.final_row, rollout.final_step, rollout.final_obs, strict=True)
        }
        assert len(final) == len(rollout.final_obs)
        for b, t in zip(*np.nonzero(ended.numpy()), strict=True):
            ends += 1
            assert (b, t) in final
            if bool(rollout.terminated[b, t]):  # fallen: unhealthy height, angle, or state
                assert final[b, t][0] < 0.7 or abs(final[b, t][1]) > 0.2
            if t + 1 < 64:
                fresh = rollout.obs[b, t + 1]
                assert abs(fresh[0] - 1.25) < 0.006 and abs(fresh[1]) < 0.006
                assert not torch.equal(final[b, t], fresh)
        assert {(b, 63) for b in range(8)} <= set(final)
        assert len(final) == len({*zip(*np.nonzero(ended.numpy()), strict=True)} | {(b, 63) for b in range(8)})
    assert ends > 20


def test_versions_act_with_the_observation_statistics_of_the_spec() -> None:
    def statistics(choice: str) -> tuple[RecordedRun, list[Tensor]]:
        spec = replace(SMALL, observation_statistics=choice)
        simulation = small() if spec == SMALL else finish(spec)
        return simulation, [simulation.versions[v].tensors["mean"] for v in sorted(simulation.versions)]

    _, snapshot = statistics("snapshot")
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(snapshot))
    _, frozen = statistics("frozen")
    assert not torch.equal(frozen[0], frozen[1])
    assert all(torch.equal(frozen[1], later) for later in frozen[2:])
    live, _ = statistics("shared_live")
    rollout = live.consumed[-1]
    newest = live.versions[max(live.versions)]
    stale = rollout.version.flatten() < max(live.versions)
    obs, action = rollout.obs.flatten(0, 1)[stale], rollout.action.flatten(0, 1)[stale]
    for v in rollout.version.flatten()[stale].unique().tolist():
        mine = rollout.version.flatten()[stale] == v
        shared = {key: newest.tensors[key] for key in ("mean", "inverse_std")}
        acted = replace(live.versions[v], tensors={**live.versions[v].tensors, **shared})
        expected = logp_under(live, acted, obs[mine], action[mine])
        assert torch.equal(rollout.behaviour_logp.flatten()[stale][mine], expected)


def test_mixture_density_is_the_average_over_the_buffer() -> None:
    simulation = finish(replace(SMALL, density="mixture"))
    for phase, rollout in enumerate(simulation.consumed):
        obs, action = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)
        held = range(max(0, phase - 3), phase + 1)
        densities = [logp_under(simulation, simulation.versions[v], obs, action).double().exp() for v in held]
        expected = (sum(densities) / len(densities)).log()
        torch.testing.assert_close(rollout.behaviour_logp.flatten().double(), expected, atol=1e-5, rtol=1e-5)


def test_an_actor_keeps_its_version_while_its_episode_lasts() -> None:
    simulation = finish(replace(SMALL, assignment="episode", capacity=50, steps=8 * 8 * 64))
    changes_inside, episodes = 0, 0
    for before, after in zip(simulation.consumed, simulation.consumed[1:], strict=False):
        ended = (before.terminated | before.truncated)[:, -1]
        changes_inside += int((before.version[:, -1] != after.version[:, 0])[~ended].sum())
    for rollout in simulation.consumed:
        moved = rollout.version[:, 1:] != rollout.version[:, :-1]
        ended = (rollout.terminated | rollout.truncated)[:, :-1]
        assert not bool((moved & ~ended).any())
        episodes += int((moved & ended).sum())
    assert changes_inside == 0 and episodes > 20


def test_a_sync_reaches_an_actor_in_the_middle_of_its_episode() -> None:
    """Hopper falls every 20 steps or so and a phase has 8: without the sync, versions from before it live on."""
    spec = replace(SMALL, assignment="episode", capacity=50, num_steps=8, steps=8 * 8 * 8)
    runs = [finish(replace(spec, lag=lag)) for lag in ("uniform", "uniform/sync:4")]
    free, synced = ([int((m - r.version[:, 0]).max()) for m, r in enumerate(run.consumed)] for run in runs)
    assert all(lag <= phase % 4 for phase, lag in enumerate(synced))
    assert any(lag > phase % 4 for phase, lag in enumerate(free))


def test_reset_each_phase_starts_every_row_with_an_episode() -> None:
    for rollout in finish(replace(SMALL, reset_each_phase=True)).consumed:
        assert bool((abs(rollout.obs[:, 0, 0] - 1.25) < 0.006).all())


def test_returns_begin_anew_where_each_phase_is_reset() -> None:
    """Pendulum's episodes outlast a phase, and a reset is no end of an episode in the data."""
    simulation: Any = simulation_of(replace(SMALL, env="Pendulum-v1", reset_each_phase=True))
    collect, collected = simulation.actors.collect, []
    simulation.actors.collect = lambda *args: collected.append(collect(*args)) or collected[-1]
    list(simulation)
    assert len(collected) == 6
    for rows in collected:
        assert torch.equal(rows.returns[0], rows.rollout.reward[:, 0].double())


def test_algorithms_share_their_noise() -> None:
    first = [finish(replace(SMALL, algorithm=name, steps=8 * 64)).collected[0] for name in ("ppo_clip", "vaco", "spo")]
    for other in first[1:]:
        assert torch.equal(first[0].obs, other.obs) and torch.equal(first[0].action, other.action)


def test_capacity_changes_nothing_before_the_first_stale_phase() -> None:
    one, many = finish(replace(SMALL, capacity=1)), small()
    assert torch.equal(one.collected[0].action, many.collected[0].action)
    assert not torch.equal(one.collected[2].action, many.collected[2].action)


def test_the_same_spec_gives_the_same_bits() -> None:
    assert torch.equal(small().policy.flat, finish(SMALL).policy.flat)
    assert not torch.equal(small().policy.flat, finish(replace(SMALL, seed=1)).policy.flat)


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    loaded: dict[str, Any] = torch.load(stream, weights_only=True)
    return loaded


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "vaco"},
        {"env": "Ant-v5", "algorithm": "spo", "assignment": "episode", "evaluations": 1},
        {"env": "Humanoid-v5", "algorithm": "impala"},
        {"algorithm": "decoupled_ppo", "hyper": {"proximal": "ewma"}, "observation_statistics": "frozen"},
        {"algorithm": "ppo_kl", "hyper": {"adaptive": True}, "mechanism": "replay"},
        {"env": "Pendulum-v1", "algorithm": "a3po"},
    ],
    ids=lambda changes: "-".join(str(v) for v in changes.values()),
)
@pytest.mark.long
def test_a_run_stopped_at_every_phase_equals_one_never_stopped(changes: dict[str, Any]) -> None:
    spec = replace(SMALL, **{"num_steps": 32, "steps": 4 * 8 * 32, **changes})  # a phase more than K
    never_stopped = simulation_of(spec)
    straight = [record.metrics for record in never_stopped]
    resumed, state = [], None
    for _ in range(spec.phases):
        simulation = simulation_of(spec)
        if state is not None:
            simulation.load_state_dict(through_a_file(state))
        resumed.append(simulation.advance().metrics)
        state = simulation.state_dict()
        simulation.close()
    assert resumed == straight
    assert simulation.evaluation_steps == never_stopped.evaluation_steps > 0
