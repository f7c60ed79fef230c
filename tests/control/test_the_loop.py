"""Steps of a run around its learner, recomputed from the collected rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from assignments import assignment_of
from recorded_runs import finish, logp_under, recording
from small_specs import small_control
from torch import Tensor
from witness import MethodCalls

from staleharness.api import plan
from staleharness.base.streams import integer, stream
from staleharness.batch import Rollout
from staleharness.control.evaluation import SEED, evaluate
from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.task import find_env

ENVS, STEPS, PHASES = 6, 50, 6
SMALL = small_control(PHASES, ENVS, STEPS, algorithm="witness", capacity=3, epochs=1, minibatches=1)


def episode_ends(rollout: Rollout) -> Tensor:
    return rollout.terminated | rollout.truncated


@pytest.mark.parametrize("mechanism", ["reexecute", "replay"])
def test_observation_statistics_count_every_observation_once(witness: MethodCalls, mechanism: str) -> None:
    """A version has those of the phases before it; what a replay consumes again is not taken in again."""
    simulation = recording(replace(SMALL, mechanism=mechanism, lag="fixed:2"))
    drifts = [record.metrics["statistics_drift"] for record in simulation]
    for phase in range(1, PHASES):
        obs = torch.cat([r.obs.flatten(0, 1) for r in simulation.collected[:phase]]).double()
        stored = simulation.versions[phase].tensors
        torch.testing.assert_close(stored["mean"], obs.mean(0).float(), atol=1e-6, rtol=1e-5)
        std = obs.var(0, correction=0).add(1e-8).sqrt()
        torch.testing.assert_close(stored["inverse_std"], (1.0 / std).float(), atol=1e-6, rtol=1e-4)
        moved = (stored["mean"] - simulation.versions[phase - 1].tensors["mean"]) * stored["inverse_std"]
        assert drifts[phase - 1] == pytest.approx(float(moved.abs().mean()), rel=1e-3)


@pytest.mark.parametrize("mechanism", ["reexecute", "replay"])
@pytest.mark.parametrize("env", ["Hopper-v5", "Pendulum-v1"])  # the one falls, the other meets its time limit
def test_rewards_are_divided_by_the_deviation_of_past_returns(witness: MethodCalls, mechanism: str, env: str) -> None:
    steps = 90 if env == "Pendulum-v1" else STEPS
    spec = replace(SMALL, env=env, mechanism=mechanism, lag="fixed:2", num_steps=steps, discount=0.9)
    simulation = finish(replace(spec, steps=PHASES * ENVS * steps))
    carry, samples, ends = np.zeros(ENVS), [], 0
    for phase, fresh in enumerate(simulation.collected):
        reward, done = fresh.reward.numpy(), episode_ends(fresh).numpy()
        for t in range(steps):
            carry = 0.9 * carry + reward[:, t]
            samples += carry.tolist()
            carry = np.where(done[:, t], 0.0, carry)
        ends += int(done.sum())
        wanted = simulation.consumed[phase].reward / np.sqrt(np.var(samples) + 1e-8)
        torch.testing.assert_close(witness.shown[phase].reward, wanted.clamp(-10.0, 10.0).float(), atol=1e-6, rtol=1e-5)
    assert ends >= ENVS


def test_rewards_stay_as_they_are_where_the_run_says_so(witness: MethodCalls) -> None:
    simulation = finish(replace(SMALL, scale_rewards=False))
    for t, consumed in zip(witness.shown, simulation.consumed, strict=True):
        assert torch.equal(t.reward, consumed.reward.float())


@pytest.mark.parametrize("lag", ["uniform", "geometric:0.4"])
def test_versions_and_replays_come_from_the_assignment_stream(witness: MethodCalls, lag: str) -> None:
    for mechanism in ("reexecute", "replay"):
        simulation = finish(replace(SMALL, mechanism=mechanism, lag=lag, seed=5))
        for phase, consumed in enumerate(simulation.consumed):
            drawn = assignment_of(lag, 3, phase, ENVS, seed=5).starts
            if mechanism == "replay":
                assert bool((simulation.collected[phase].version == phase).all())
                rows = [simulation.collected[v].obs[b] for v in np.unique(drawn) for b in np.flatnonzero(drawn == v)]
                assert torch.equal(consumed.obs, torch.stack(rows))
                drawn = np.sort(drawn)
            assert torch.equal(consumed.version, torch.from_numpy(drawn)[:, None].expand(-1, STEPS))


def test_a_new_episode_draws_a_version_and_acts_with_it(witness: MethodCalls) -> None:
    """At step t + 1 of a phase from the stream of (phase, t + 1); at its first step from that of the phase."""
    steps, phases = STEPS // 3, 3 * PHASES  # short phases: some episodes end with one
    short = replace(SMALL, num_steps=steps, steps=phases * ENVS * steps, capacity=4, learning_rate=1e-2)
    simulation = finish(replace(short, assignment="episode"))
    new = at_the_start = 0
    before: Rollout | None = None
    for phase, rollout in enumerate(simulation.consumed):
        done = episode_ends(rollout)
        for b in range(ENVS):
            for t in range(steps):
                v = int(rollout.version[b, t])
                if t == 0 and (before is None or bool(episode_ends(before)[b, -1])):
                    assert v == assignment_of("uniform", 4, phase, ENVS).starts[b]
                    at_the_start += before is not None
                elif t > 0 and bool(done[b, t - 1]):
                    assert v == assignment_of("uniform", 4, phase, ENVS, t).starts[b]
                    new += 1
        for v in rollout.version.unique().tolist():
            mine = (rollout.version == v).flatten()
            obs, action = rollout.obs.flatten(0, 1)[mine], rollout.action.flatten(0, 1)[mine]
            wanted = logp_under(simulation, simulation.versions[v], obs, action)
            torch.testing.assert_close(rollout.behaviour_logp.flatten()[mine], wanted, atol=1e-4, rtol=1e-5)
        before = rollout
    assert new > 20 and at_the_start > 2


def test_only_versions_that_are_taken_up_count_as_assigned(witness: MethodCalls) -> None:
    """An actor in the middle of an episode goes on with the version it has, though the model draws one for it."""
    steps, phases, capacity = STEPS // 3, 3 * PHASES, 2
    short = replace(SMALL, num_steps=steps, steps=phases * ENVS * steps, capacity=capacity)
    simulation = finish(replace(short, assignment="episode"))
    counts, last = [0] * capacity, np.full(ENVS, -1)
    over = np.ones(ENVS, bool)
    for phase, rollout in enumerate(simulation.consumed):
        versions, done = rollout.version.numpy(), episode_ends(rollout).numpy()
        for b in range(ENVS):
            for t in range(steps):
                begins = over[b] if t == 0 else done[b, t - 1]
                gone = t == 0 and last[b] <= phase - capacity  # from the buffer
                counts[phase - versions[b, t]] += bool(begins or gone)
        last, over = versions[:, -1], done[:, -1]
    assert simulation.accounts.histograms["assigned"] == counts
    assert sum(counts) < phases * ENVS + sum(int(episode_ends(r).sum()) for r in simulation.consumed)


def test_environments_start_and_actors_sample_from_their_streams(witness: MethodCalls) -> None:
    import gymnasium

    simulation = finish(replace(SMALL, seed=3))
    env = gymnasium.make_vec("Hopper-v5", ENVS, vectorization_mode="sync")
    start, _ = env.reset(seed=integer(3, "env"))
    assert torch.equal(simulation.collected[0].obs[:, 0], torch.from_numpy(start).float())
    for phase, rollout in enumerate(simulation.collected):
        noise = torch.from_numpy(stream(3, "action", phase).standard_normal((STEPS, ENVS, 3), np.float32))
        drawn = (rollout.action - rollout.behaviour_mean) / rollout.behaviour_log_std.exp()
        torch.testing.assert_close(drawn, noise.transpose(0, 1), atol=1e-5, rtol=1e-4)
        assert float(rollout.action.abs().max()) > 1.0  # as sampled, before the environment's bounds
    first, going = simulation.collected[0], np.ones(ENVS, dtype=bool)
    for t in range(STEPS):  # which are what the environment is given
        _, reward, terminated, truncated, _ = env.step(first.action[:, t].numpy().clip(-1.0, 1.0))
        np.testing.assert_allclose(first.reward[going, t].numpy(), reward[going], rtol=1e-6, atol=1e-6)
        going &= ~(terminated | truncated)


def test_episodes_are_added_up_across_phases(witness: MethodCalls) -> None:
    simulation = recording(SMALL)
    total, length = np.zeros(ENVS), np.zeros(ENVS)
    for record in simulation:
        rollout, returns, lengths = simulation.collected[-1], [], []
        for t in range(STEPS):
            total, length = total + rollout.reward[:, t].numpy(), length + 1
            done = episode_ends(rollout)[:, t].numpy()
            returns, lengths = returns + total[done].tolist(), lengths + length[done].tolist()
            total[done], length[done] = 0.0, 0.0
        assert record.metrics["rollout_episodes"] == len(returns) > 0
        assert record.metrics["rollout_return"] == pytest.approx(np.mean(returns))
        assert record.metrics["rollout_length"] == pytest.approx(np.mean(lengths))
        assert record.metrics["steps"] == (record.metrics["phase"] + 1) * ENVS * STEPS


@pytest.mark.parametrize(
    "settings",
    [{"lag": "geometric:0.3"}, {"lag": "uniform/sync:4"}, {"observation_statistics": "shared_live"}],
    ids=str,
)
def test_mixture_density_weighs_acting_versions_by_probability(witness: MethodCalls, settings: dict[str, Any]) -> None:
    simulation = finish(replace(SMALL, density="mixture", learning_rate=1e-2, **settings))
    model = parse_lag(simulation.spec.lag, 3)
    differ = 0.0
    for phase, rollout in enumerate(simulation.collected):
        obs, action = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)
        weights = model.probabilities(phase, 3)
        newest, total = simulation.versions[phase], torch.zeros(len(obs), dtype=torch.float64)
        plain = torch.zeros_like(total)
        for v, weight in weights.items():
            version = simulation.versions[v]
            if simulation.spec.observation_statistics == "shared_live":
                shared = {key: newest.tensors[key] for key in ("mean", "inverse_std")}
                version = replace(version, tensors={**version.tensors, **shared})
            density = logp_under(simulation, version, obs, action).double().exp()
            total, plain = total + weight * density, plain + density / len(weights)
        torch.testing.assert_close(rollout.behaviour_logp.flatten().double(), total.log(), atol=1e-4, rtol=1e-4)
        differ = max(differ, float((total.log() - plain.log()).abs().max()))
    assert differ > 0.01 or "lag" not in settings or "sync" in settings["lag"]


@pytest.mark.parametrize(
    ("method", "hyper", "remedy"),
    [
        ("ppo_kl", {}, "estimator=k3 or density=component"),
        ("ppo_kl", {"estimator": "analytic"}, "estimator=k3 or density=component"),
        ("vaco", {"trust_region": "kl"}, "kl_estimator=k3 or density=component"),
        ("dppo", {"divergence": "kl"}, "density=component"),
        ("truly_ppo", {}, "density=component"),
    ],
)
def test_a_mixture_has_no_divergence_in_closed_form(method: str, hyper: dict[str, Any], remedy: str) -> None:
    spec = replace(SMALL, density="mixture", algorithm=method, hyper=hyper)
    words = f"^{method} needs a KL from μ in closed form, and the μ of density=mixture has none; give {remedy}$"
    with pytest.raises(UserError, match=words):
        finish(spec)
    with pytest.raises(UserError, match=words):
        find_env(spec.env)[1].check(spec)
    alone = replace(spec, capacity=1)  # one version is no mixture
    find_env(spec.env)[1].check(alone)
    finish(alone)


def test_a_default_sweep_leaves_out_methods_with_a_kl_from_a_mixture() -> None:
    settings = {"density": "mixture"}
    default = plan(env="Hopper", k=[1, 2], seeds=1, settings=settings)
    labels = {k: {run.label for run in default.runs if run.spec.capacity == k} for k in (1, 2)}
    assert labels[1] - labels[2] == {"ppo_kl"} and "ppo_clip" in labels[2]
    (note,) = default.notes
    assert note.startswith("K=2: ppo_kl needs a KL from μ in closed form")
    with pytest.raises(UserError, match="ppo_kl needs a KL from μ in closed form"):
        plan(env="Hopper", k=2, seeds=1, algo="ppo_clip,ppo_kl", settings=settings)


def test_a_divergence_from_a_mixture_is_estimated() -> None:
    spec = replace(SMALL, density="mixture", algorithm="ppo_kl", hyper={"estimator": "k3"})
    said = [record.metrics for record in recording(spec)]
    kl = [metrics["algorithm/kl"] for metrics in said]
    assert kl[0] == pytest.approx(0.0, abs=1e-7) and all(0.0 < value < 0.01 for value in kl[1:])
    assert kl == pytest.approx([metrics["kl_k3_data"] for metrics in said])


def test_scores_are_of_the_newest_policy_on_the_given_episodes(witness: MethodCalls) -> None:
    spec = replace(SMALL, evaluations=3, evaluation_episodes=2, final_episodes=3, learning_rate=1e-2)
    simulation = recording(spec)
    counted = evaluate(spec, simulation.task, simulation.policy, simulation.policy.snapshot(0, 0), 2).steps
    kept = []  # beside the untrained policy, which is scored first
    for record in simulation:
        if record.scores is None:
            assert record.metrics["eval_sampled"] is record.metrics["eval_deterministic"] is None
            continue
        counted += record.scores.steps
        episodes = 3 if record.metrics["phase"] == PHASES - 1 else 2
        newest = simulation.policy.snapshot(0, 0)
        kept.append((newest, record.scores))
        assert evaluate(spec, simulation.task, simulation.policy, newest, episodes) == record.scores
        for mode in ("sampled", "deterministic"):
            assert len(record.scores.returns[mode]) == episodes
            assert record.metrics[f"eval_{mode}"] == np.mean(record.scores.returns[mode])
    assert len(kept) == 3 and simulation.evaluation_steps == counted
    # a version has its own statistics: it scores now as it did then
    version, then = kept[0]
    assert evaluate(spec, simulation.task, simulation.policy, version, 2) == then


def test_sampled_scores_are_those_of_one_environment_played_by_hand(witness: MethodCalls) -> None:
    import gymnasium

    simulation = finish(replace(SMALL, learning_rate=1e-2))
    policy, episodes = simulation.policy, 2
    scores = evaluate(SMALL, simulation.task, policy, policy.snapshot(0, 0), episodes)
    for i in range(episodes):
        env, rng = gymnasium.make("Hopper-v5"), stream(SEED, "evaluation")
        obs, _ = env.reset(seed=integer(SEED, "evaluation", i))
        total, length, done = 0.0, 0, False
        while not done:
            noise = torch.from_numpy(rng.standard_normal((episodes, 3), np.float32))[i]
            with torch.no_grad():
                x = policy.normalise(torch.from_numpy(np.stack([obs.astype(np.float32)] * 16)))
                mean, log_std = policy.actor(policy.parameters[:7], x)
                action = (mean[0] + log_std.exp() * noise).numpy().clip(-1.0, 1.0)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, length, done = total + float(reward), length + 1, terminated or truncated
        assert scores.lengths["sampled"][i] == length
        assert scores.returns["sampled"][i] == pytest.approx(total, rel=1e-6)
