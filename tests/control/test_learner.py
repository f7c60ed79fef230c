"""Inputs of a method from the learner, and the use of its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_specs import small_control

from staleharness.batch import Decisions, PolicyLoss
from staleharness.control.evaluation import evaluate
from staleharness.control.functional_mlp import value_loss
from staleharness.control.moments import RewardScale, discounted_returns
from staleharness.control.mujoco.vector import MujocoVector
from staleharness.control.phase_batch import PhaseBatch
from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.training.base_learner import normalise
from staleharness.training.loop import simulation_of

SMALL = small_control(4, 6, 40, capacity=3, minibatches=3)


def one_batch(spec: ControlSpec) -> tuple[ControlSimulation, PhaseBatch]:
    simulation = simulation_of(spec)
    simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(1, simulation.learner.gradient_steps))
    rollout = simulation.actors.collect(simulation.buffer, 1).rollout
    reward = simulation.reward_scale(rollout.reward)
    return simulation, PhaseBatch.prepare(spec, simulation.policy, rollout, reward, 1)


@pytest.mark.parametrize("rows", [None, [4, 0, 3]])
def test_the_next_value_is_that_of_the_true_next_observation(rows: list[int] | None) -> None:
    simulation, batch = one_batch(SMALL)
    index = torch.tensor(rows) if rows is not None else None
    chosen = rows if rows is not None else range(6)
    value = batch.start.value.view_as(batch.reward)
    logp = batch.start.logp.view_as(batch.reward)
    shown = batch.trajectories(
        simulation.policy, logp if index is None else logp[index], value if index is None else value[index], index
    )
    rollout, ends = batch.rollout, 0
    last = {
        (int(b), int(t)): o for b, t, o in zip(rollout.final_row, rollout.final_step, rollout.final_obs, strict=True)
    }
    for place, b in enumerate(chosen):
        for t in range(40):
            following = last.get((b, t))
            if following is None:
                following = rollout.obs[b, t + 1]
            elif t < 39:
                ends += 1
            expected = simulation.policy.values(torch.stack([following] * 2))[0]
            torch.testing.assert_close(shown.next_value[place, t], expected, atol=1e-5, rtol=1e-5)
            done = bool(rollout.terminated[b, t] | rollout.truncated[b, t])
            assert float(shown.continues[place, t]) == float(not done and t < 39)
            assert float(shown.discount[place, t]) == pytest.approx(0.0 if rollout.terminated[b, t] else 0.99)
    assert ends > 3


def test_a_time_limit_is_a_termination_only_where_asked() -> None:
    spec = replace(SMALL, env="Pendulum-v1", num_steps=250, steps=3 * 6 * 250)
    for bootstrap in (True, False):
        _, batch = one_batch(replace(spec, bootstrap_truncation=bootstrap))
        truncated = batch.rollout.truncated
        assert int(truncated.sum()) == 6 and not bool(batch.rollout.terminated.any())
        assert bool((batch.discount[truncated] == (0.99 if bootstrap else 0.0)).all())
        assert bool((batch.discount[~truncated] == 0.99).all())
        assert bool((batch.continues[truncated] == 0.0).all())


@pytest.mark.parametrize("whole_rows", [False, True])
def test_every_epoch_visits_every_decision_once(whole_rows: bool) -> None:
    _, batch = one_batch(SMALL)
    seen = []
    for index in batch.minibatches(4, whole_rows, np.random.default_rng(0)):
        seen += index.flatten().tolist()
        if whole_rows:
            assert bool((index.diff(dim=1) == 1).all()) and index.shape[1] == 40
    assert sorted(seen) == list(range(240))


def test_the_shadow_is_the_weighted_mean_of_every_step() -> None:
    spec = replace(SMALL, algorithm="decoupled_ppo", hyper={"proximal": "ewma", "ewma_decay": 0.8})
    simulation = simulation_of(spec)
    learner = simulation.learner
    history = [simulation.policy.actor_flat.detach().clone()]
    optimise = learner.optimise

    def record(rate: float) -> torch.Tensor:
        norm = optimise(rate)
        history.append(simulation.policy.actor_flat.detach().clone())
        return norm

    learner.optimise = record  # type: ignore[method-assign]
    simulation.advance()
    weights = torch.tensor([0.8 ** (len(history) - 1 - i) for i in range(len(history))], dtype=torch.float64)
    expected = (torch.stack(history).double() * weights[:, None]).sum(0) / weights.sum()
    torch.testing.assert_close(learner.shadow[0].double(), expected, atol=1e-6, rtol=1e-5)
    assert len(history) == 7


def test_the_gradient_lag_counts_optimiser_steps_up_to_now() -> None:
    simulation = simulation_of(replace(SMALL, lag="fixed:2"))
    told: list[tuple[float, float]] = []
    algorithm = simulation.learner.algorithm

    class Watching:
        def __getattr__(self, name: str) -> object:
            return getattr(algorithm, name)

        def policy_loss(self, d: Decisions) -> PolicyLoss:
            assert d.gradient_lag.min() == d.gradient_lag.max()
            told.append((float(d.lag[0, 0]), float(d.gradient_lag[0, 0])))
            return algorithm.policy_loss(d)

    simulation.learner.algorithm = Watching()  # type: ignore[assignment]
    for _ in simulation:
        pass
    # six gradient steps a phase; within a phase the learner moves away by one with every step
    assert told == [(float(lag), float(6 * lag + step)) for lag in (0, 1, 2, 2) for step in range(6)]


def test_the_learning_rate_goes_linearly_to_zero() -> None:
    rates = [record.metrics["learning_rate"] for record in simulation_of(SMALL)]
    assert rates == pytest.approx([3e-4, 2.25e-4, 1.5e-4, 0.75e-4])
    assert {r.metrics["learning_rate"] for r in simulation_of(replace(SMALL, anneal_learning_rate=False))} == {3e-4}


def test_the_value_loss_is_clipped_around_the_value_at_phase_start() -> None:
    start, value = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.5, 1.1, 0.0])
    target = torch.tensor([2.0, 1.0, 0.5])
    # by hand: max((1.5-2)², (1.2-2)²) = .64; max(.1², .1²) = .01; max((0-.5)², (.8-.5)²) = .25; half the mean is .15
    loss, pull = value_loss(value, target, start, 0.2, 0.5)
    assert float(loss) == pytest.approx(0.15)
    # and its slope: nothing pulls at the first, held at 1.2; the second's forms are equal, the third is worse as it is
    assert pull.tolist() == pytest.approx([0.0, 0.5 * 0.1 / 3, 0.5 * -0.5 / 3])
    loss, _ = value_loss(value, target, start, 0.0, 0.5)
    assert float(loss) == pytest.approx((0.25 + 0.01 + 0.25) / 6)


def test_normalised_advantages_ignore_padding() -> None:
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    advantage = torch.tensor([[1.0, 2.0, 100.0], [3.0, 6.0, -100.0]])
    flat = advantage[mask == 1]
    expected = (flat - flat.mean()) / (flat.std() + 1e-8)
    torch.testing.assert_close(normalise(advantage, mask, 1.0)[mask == 1], expected)


def test_evaluating_more_often_trains_the_same_policy() -> None:
    policies = []
    for evaluations in (1, 4):
        simulation = simulation_of(replace(SMALL, evaluations=evaluations))
        scored = [record.scores is not None for record in simulation]
        policies.append(simulation.policy.flat.clone())
        assert sum(scored) == evaluations and scored[-1]
    assert torch.equal(*policies)


def test_scores_are_those_of_one_environment_played_by_hand() -> None:
    import gymnasium

    simulation = simulation_of(SMALL)
    for _ in simulation:
        pass
    newest = simulation.policy.snapshot(4, 0)
    scores = evaluate(SMALL, simulation.task, simulation.policy, newest, episodes=3)
    again = evaluate(SMALL, simulation.task, simulation.policy, newest, episodes=3)
    assert scores == again
    from staleharness.base.streams import integer
    from staleharness.control.evaluation import SEED

    for i in range(3):
        env = gymnasium.make("Hopper-v5")
        obs, _ = env.reset(seed=integer(SEED, "evaluation", i))
        total, done, length = 0.0, False, 0
        while not done:
            with torch.no_grad():
                x = simulation.policy.normalise(torch.from_numpy(np.stack([obs.astype(np.float32)] * 16)))
                action, _ = simulation.policy.actor(simulation.policy.parameters[:7], x)
            obs, reward, terminated, truncated, _ = env.step(action[0].numpy().clip(-1, 1))
            total, length, done = total + float(reward), length + 1, terminated or truncated
        assert scores.returns["deterministic"][i] == pytest.approx(total, rel=1e-12)
        assert scores.lengths["deterministic"][i] == length
    assert scores.steps == sum(scores.lengths["sampled"]) + sum(scores.lengths["deterministic"])
    assert scores.returns["sampled"] != scores.returns["deterministic"]


def test_rewards_are_scaled_by_the_deviation_of_returns() -> None:
    generator = torch.Generator().manual_seed(0)
    scale, carried = RewardScale(), torch.zeros(2, dtype=torch.float64)
    samples: list[float] = []
    carry = [0.0, 0.0]
    for _ in range(3):
        reward = torch.randn(2, 7, generator=generator).double()
        done = torch.rand(2, 7, generator=generator) < 0.3
        returns, carried = discounted_returns(reward, done, carried, 0.9)
        scale.update(returns)
        for b in range(2):
            for t in range(7):
                carry[b] = 0.9 * carry[b] + float(reward[b, t])
                samples.append(carry[b])
                assert float(returns[t, b]) == carry[b]  # to the bit
                carry[b] *= not done[b, t]
    deviation = float(np.sqrt(np.var(samples) + 1e-8))
    torch.testing.assert_close(scale(torch.tensor([1.0, -50.0])), torch.tensor([1.0 / deviation, -10.0]))


@pytest.mark.parametrize("rule", ["constant", "inverse_lag", "ess"])
def test_a_step_size_rule_scales_the_step_of_any_method(rule: Any) -> None:
    """Two phases behind, the law 1/lag halves the rate; Adam's first step is as long as its rate."""
    spec = replace(SMALL, lag="fixed:2", step_size=rule, anneal_learning_rate=False, epochs=1, minibatches=1)
    simulation = simulation_of(spec)
    rates = [simulation.learner.optimizer.rate / spec.learning_rate for _ in simulation]
    expected = {"constant": [1.0] * 4, "inverse_lag": [1.0, 1.0, 0.5, 0.5]}
    if rule == "ess":
        assert rates[0] == pytest.approx(1.0) and all(0.5 < x < 1.0 for x in rates[1:])
    else:
        assert rates == pytest.approx(expected[rule])


@pytest.mark.parametrize("name", ["appo", "geppo", "icepop", "m2po", "p3o", "seq_is"])
def test_methods_made_for_tokens_or_reuse_train_on_control(name: str) -> None:
    """On a shuffled minibatch a row is one decision; with stale data the numbers stay finite and something moves."""
    simulation = simulation_of(replace(SMALL, algorithm=name, capacity=3))
    before = simulation.policy.flat.detach().clone()
    records = list(simulation)
    assert not torch.equal(before, simulation.policy.flat.detach())
    assert all(0.0 <= record.metrics["clipped"] <= 1.0 for record in records)


def test_a_method_for_groups_is_refused_on_control() -> None:
    with pytest.raises(UserError, match="tba needs groups of completions of one prompt and a reference policy, which"):
        simulation_of(replace(SMALL, algorithm="tba"))


def test_scores_do_not_depend_on_whether_environments_can_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulation_of(SMALL)
    newest = simulation.policy.snapshot(0, 0)
    resting = evaluate(SMALL, simulation.task, simulation.policy, newest, episodes=3)
    monkeypatch.delattr(MujocoVector, "rest")
    assert evaluate(SMALL, simulation.task, simulation.policy, newest, episodes=3) == resting
    assert len({length for lengths in resting.lengths.values() for length in lengths}) > 1, "all end at once"
