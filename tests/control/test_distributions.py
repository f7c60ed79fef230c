"""Choices: their density, divergence, entropy and gradients against torch's own, and whole runs on CartPole."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from small_specs import small_control
from torch.distributions import Categorical as Reference
from torch.distributions import kl_divergence
from whole_runs import assert_resumes, metrics_of

from staleharness.algorithm import ALGORITHMS
from staleharness.control.action_distributions import (
    Categorical,
    Gaussian,
    action_converter,
    distribution_of,
    far_bounds,
)
from staleharness.control.policy import MLPPolicy, OutputGradient
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

NOTHING = torch.zeros(0)
SMALL = small_control(2, 2, 32, env="CartPole-v1", capacity=1)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_density_divergence_and_entropy_are_those_of_torch() -> None:
    logits, others, choices = drawn(9, 4), drawn(9, 4) * 2.0 + 1.0, Categorical(4)
    action = torch.arange(9)[:, None] % 4
    p, q = Reference(logits=logits), Reference(logits=others)
    torch.testing.assert_close(choices.logp(action.float(), logits, NOTHING), p.log_prob(action[:, 0]))
    torch.testing.assert_close(choices.kl(logits, NOTHING, others, NOTHING), kl_divergence(p, q))
    torch.testing.assert_close(choices.entropy(logits, NOTHING), p.entropy().mean())


def test_choices_follow_the_softmax_and_the_mode_without_noise() -> None:
    choices, logits = Categorical(3), torch.tensor([0.0, 1.0, -1.0])
    noise = torch.from_numpy(choices.noise(np.random.default_rng(0), 200_000))
    action = choices.act(logits.expand(200_000, 3), NOTHING, noise)
    assert action.shape == (200_000, 1) and action.dtype == torch.float32
    share = torch.bincount(action[:, 0].long(), minlength=3) / 200_000
    torch.testing.assert_close(share, logits.softmax(0), atol=5e-3, rtol=0.0)
    assert choices.act(logits[None], NOTHING, torch.zeros(1, 3)).item() == 1.0


def test_the_gradient_by_hand_is_autograds() -> None:
    """Through log π, the entropy and the logits, with respect to every weight."""
    policy = MLPPolicy(4, Categorical(3), (8, 8), seed=0)
    obs, action = drawn(7, 4), torch.arange(7)[:, None].float() % 3
    grad_logp, grad_value, grad_logits, grad_entropy = drawn(7), drawn(7), drawn(7, 3), torch.tensor(-0.3)
    with torch.no_grad():
        policy.forward(obs, action, torch.arange(len(obs)))
        policy.backward(OutputGradient(grad_logp, grad_value, grad_entropy, grad_logits))
    found = policy.flat_gradient.clone()
    flat = policy.flat.detach().clone().requires_grad_()
    twin = MLPPolicy(4, Categorical(3), (8, 8), seed=0)
    from staleharness.control.functional_mlp import network, views_of

    weights = views_of(flat, twin.actor_shapes + twin.critic_shapes)
    actor, critic = weights[: len(twin.actor_weights)], weights[len(twin.actor_shapes) :]
    x = twin.normalise(obs)
    logits, value = network(actor, x), network(critic, x).squeeze(-1)
    p = Reference(logits=logits)
    loss = (grad_logp * p.log_prob(action[:, 0])).sum() + (grad_value * value).sum() + (grad_logits * logits).sum()
    (loss + grad_entropy * p.entropy().mean()).backward()
    torch.testing.assert_close(found, flat.grad)


def test_an_environment_is_given_what_its_space_takes() -> None:
    class Space:
        n, start = 3, 5

    class Vector:
        single_action_space = Space()

    env: Any = Vector()
    assert isinstance(distribution_of(env), Categorical)
    given = action_converter(env)(np.array([[0.0], [2.0]], dtype=np.float32))
    assert given.tolist() == [5, 7] and given.dtype == np.int64
    env.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    assert isinstance(distribution_of(env), Gaussian)
    assert action_converter(env)(np.array([[-3.0, 0.5]])).tolist() == [[-1.0, 0.5]]


def test_on_policy_the_weights_of_choices_are_one() -> None:
    first, _ = metrics_of(replace(SMALL, capacity=1))
    assert first["tv_data"] == 0.0 and first["ess_data"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["ppo_clip", "ppo_kl", "vaco", "impala", "decoupled_ppo", "a3po", "spo", "geppo"])
def test_a_method_needs_no_word_about_choices(name: str) -> None:
    records = metrics_of(replace(SMALL, algorithm=name, capacity=2, minibatches=2))
    assert len(records) == 2 and 0.0 < records[-1]["entropy"] <= np.log(2) + 1e-6
    assert ALGORITHMS[name].name == name


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_actions_have_the_type_of_their_box_and_lie_in_it(dtype: type) -> None:
    space = gymnasium.spaces.Box(-0.1, 0.1, (1,), dtype)
    env: Any = SimpleNamespace(single_action_space=space)
    action = np.linspace(-0.2, 0.2, 1001, dtype=np.float32)[:, None]
    given = action_converter(env)(action)
    assert given.dtype == dtype and all(space.contains(x) for x in given)
    if dtype is not np.float16:
        assert given.tobytes() == action.clip(space.low, space.high).tobytes()


def test_a_mixture_of_choices_and_a_run_that_is_resumed() -> None:
    assert_resumes(replace(SMALL, capacity=2, density="mixture", entropy_coef=0.01), 1)


@pytest.mark.long
def test_it_learns_to_keep_the_pole_up() -> None:
    spec = replace(
        SMALL,
        steps=12_288,
        num_envs=8,
        num_steps=128,
        epochs=10,
        minibatches=8,
        capacity=2,
        final_episodes=5,
        learning_rate=1e-3,
    )
    simulation: Any = simulation_of(spec)
    first = simulation.evaluate().mean("sampled")
    records = [record.metrics for record in simulation]
    simulation.close()
    assert first < 60 < 120 < records[-1]["eval_sampled"]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ([-1.0, -0.4], [1.0, 0.4], None),
        ([-np.inf, 0.0], [np.inf, 1.0], None),
        ([-1.0, 100.0], [1.0, 101.0], "action 1 ranges from 100 to 101"),
        ([-30.0, -1.0], [-2.0, 1.0], "action 0 ranges from -30 to -2"),
        ([0.0, -1.0], [1000.0, 1.0], "action 0 ranges from 0 to 1000"),
    ],
)
def test_bounds_that_the_first_policy_does_not_reach_are_said(
    low: list[float], high: list[float], said: str | None
) -> None:
    space = gymnasium.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    line = far_bounds(SimpleNamespace(single_action_space=space))  # type: ignore[arg-type]
    assert line is None if said is None else said in str(line)


def test_no_listed_environment_has_such_bounds_and_a_run_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from staleharness.control import simulation

    for env in ("Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Humanoid-v5", "InvertedPendulum-v5"):
        vector = find_env(env)[1]().make(env, 1, 1)  # type: ignore[attr-defined]
        assert far_bounds(vector) is None
        vector.close()
    monkeypatch.setattr(simulation, "far_bounds", lambda _: "far")
    assert "CartPole-v1: far" in simulation_of(SMALL).warnings
