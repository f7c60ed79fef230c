"""The gradients taken by hand are those of autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from control_runs import SMALL
from torch import Tensor

from staleharness.control.action_distributions import Gaussian
from staleharness.control.functional_mlp import SIZES, NetworkPass, means, network, value_loss
from staleharness.control.policy import MLPPolicy, OutputGradient
from staleharness.training.loop import simulation_of


def by_autograd(policy: MLPPolicy, obs: Tensor, action: Tensor, loss: Callable[..., Tensor]) -> Tensor:
    """∂L/∂θ [P] of loss(log π, V, entropy, mean, log σ), with nothing of `NetworkPass` or `Gaussian`."""
    leaves = [p.clone().requires_grad_() for p in policy.parameters]
    last = len(policy.actor_shapes) - 1
    x, log_std = policy.normalise(obs), leaves[last]
    mean, value = means(leaves[:last], x), network(leaves[last + 1 :], x).squeeze(-1)
    entropy = torch.distributions.Normal(mean[0], log_std.exp()).entropy().sum()
    loss(Gaussian(len(log_std)).logp(action, mean, log_std), value, entropy, mean, log_std).backward()
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in leaves])


@pytest.mark.parametrize("beside", [False, True], ids=["log-probability", "mean and deviation too"])
@pytest.mark.parametrize(
    ("obs_dim", "act_dim", "rows", "hidden"),
    [(11, 3, 64, (64, 64)), (3, 1, 65, (64, 64)), (17, 6, 5, (32,)), (27, 8, 300, (48, 32, 16))],
)
def test_the_backward_pass_is_the_gradient_of_autograd(
    obs_dim: int, act_dim: int, rows: int, hidden: tuple[int, ...], beside: bool
) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    policy = MLPPolicy(obs_dim, Gaussian(act_dim), hidden, seed=0)
    policy.flat += 0.1 * draw(len(policy.flat))
    for n in (rows, rows + 1, rows):  # memory is kept by the number of rows, and used again
        obs, action = draw(n, obs_dim), draw(n, act_dim)
        pull = OutputGradient(draw(n), draw(n), draw(1)[0], draw(n, act_dim), draw(act_dim))
        if not beside:
            pull = pull._replace(mean=None, log_std=None)

        def loss(*said: Tensor, pull: OutputGradient = pull) -> Tensor:
            return torch.stack([(x * y).sum() for x, y in zip(said, pull, strict=True) if y is not None]).sum()

        with torch.no_grad():
            now = policy.forward(obs, action, torch.arange(len(obs)))
            policy.backward(pull)
        wanted = by_autograd(policy, obs, action, loss)
        torch.testing.assert_close(policy.flat_gradient, wanted, rtol=1e-4, atol=1e-5)
        said = policy.evaluate(obs, action)
        for name in ("logp", "value", "mean", "log_std", "entropy"):
            torch.testing.assert_close(getattr(now, name), getattr(said, name))


@pytest.mark.parametrize("clip", [0.0, 0.2])
@pytest.mark.parametrize("n", [64, 77])
def test_the_gradient_of_the_value_loss_is_that_of_autograd(clip: float, n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    value, target, start = (torch.randn(n, generator=generator).round(decimals=1) for _ in range(3))
    target[:9] = value[:9]  # no miss at all, and with it some losses that are equal
    start[5:20] = value[5:20]
    leaf = value.clone().requires_grad_()
    each = (leaf - target).square()
    if clip > 0:
        each = torch.maximum(each, (start + (leaf - start).clamp(-clip, clip) - target).square())
    wanted = 0.5 * each.mean()
    (0.7 * wanted).backward()
    loss, pull = value_loss(value, target, start, clip, coef=0.7)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(pull, leaf.grad)
    assert bool((pull != 0).any()) and bool((pull == 0).any())


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo_clip", {}),
        ("ppo_kl", {"entropy_coef": 0.01}),
        ("ppo_kl", {"hyper": {"estimator": "k3"}, "value_clip": 0.0}),
        ("vaco", {"value_coef": 0.25, "entropy_coef": 0.1}),
    ],
)
def test_a_gradient_step_is_that_of_the_whole_loss(algorithm: str, settings: dict) -> None:
    spec = replace(SMALL, algorithm=algorithm, **settings)
    simulation = simulation_of(spec)
    learner, policy = simulation.learner, simulation.policy
    gradient, checked = learner.gradient, 0

    def record(part):  # type: ignore[no-untyped-def]
        nonlocal checked
        batch, flat = learner.batch, part.decision.flatten()
        taken = gradient(part)
        d = taken.decisions

        def loss(logp: Tensor, value: Tensor, entropy: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
            shape = d.mask.shape

            def kl(anchor: str) -> Tensor:
                assert anchor == "behaviour"
                old = torch.distributions.Normal(
                    batch.rollout.behaviour_mean.flatten(0, 1)[flat],
                    batch.rollout.behaviour_log_std.flatten(0, 1)[flat].exp(),
                )
                new = torch.distributions.Normal(mean, log_std.exp())
                return torch.distributions.kl_divergence(old, new).sum(-1).view(shape)

            answer = learner.algorithm.policy_loss(replace(d, target_logp=logp.view(shape), analytic_kl=kl))
            target, start = part.fixed.value_target.flatten(), batch.start.value[flat]
            each = (value - target).square()
            if spec.value_clip > 0:
                near = start + (value - start).clamp(-spec.value_clip, spec.value_clip)
                each = torch.maximum(each, (near - target).square())
            critic = spec.value_coef * 0.5 * each.mean()
            return answer.loss.mean() - spec.entropy_coef * entropy + critic

        wanted = by_autograd(policy, batch.obs[flat], batch.action[flat], loss)
        torch.testing.assert_close(policy.flat_gradient, wanted, rtol=1e-3, atol=1e-6)
        checked += 1
        return taken

    learner.gradient = record  # type: ignore[method-assign]
    for _ in range(2):
        simulation.advance()
    assert checked == 2 * spec.epochs * spec.minibatches


def test_a_method_that_moves_no_policy_still_trains_the_critic() -> None:
    """After the first gradient step a loss may even be free of it; at the first that is taken for a mistake."""
    simulation = simulation_of(replace(SMALL, algorithm="ppo_clip"))
    learner, before = simulation.learner, simulation.policy.flat.clone()
    asked = learner.algorithm.policy_loss
    object.__setattr__(
        learner.algorithm,
        "policy_loss",
        lambda d: replace(asked(d), loss=0.0 * (d.target_logp if learner.gradient_steps == 0 else d.advantage)),
    )
    record = simulation.advance()
    moved = simulation.policy.flat != before
    assert not bool(moved[: simulation.policy.actor_size].any())
    assert bool(moved[simulation.policy.actor_size :].any())
    assert record.metrics["clipped"] > 0.9


def test_memory_is_held_for_a_few_numbers_of_rows() -> None:
    """Masked decisions make the number of rows differ from phase to phase."""
    layers = [torch.randn(3, 4), torch.randn(4), torch.randn(4, 2), torch.randn(2)]
    network = NetworkPass(layers)
    for rows in range(20, 40):
        x, pull = torch.randn(rows, 3), torch.randn(rows, 2)
        network.forward(x)
        gradients = network.backward(pull)
        assert [g.shape for g in gradients] == [w.shape for w in layers]
        assert len(network.memory) <= SIZES
