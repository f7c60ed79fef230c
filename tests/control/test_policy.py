"""K versions act at once exactly as each would alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from kernels import products_keep_their_bits

from staleharness.control import policy as policy_module
from staleharness.control.action_distributions import Gaussian
from staleharness.control.moments import Moments
from staleharness.control.policy import BatchedPolicies, MLPPolicy


def several_versions(obs_dim: int, act_dim: int, count: int) -> tuple[MLPPolicy, list]:
    rng = np.random.default_rng(0)
    policy = MLPPolicy(obs_dim, Gaussian(act_dim), (64, 64), seed=0)
    versions = []
    for phase in range(count):
        with torch.no_grad():
            policy.flat.add_(torch.from_numpy(rng.normal(size=policy.flat.shape[0]).astype("f4")) * 0.1)
        policy.set_statistics(Moments.initial(obs_dim).with_samples(torch.from_numpy(rng.normal(size=(50, obs_dim)))))
        versions.append(policy.snapshot(phase, phase))
    return policy, versions


def nearly(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def act(actors: BatchedPolicies, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(actions, their log-probabilities, mean actions)."""
    action, mean = actors.act(obs, noise)
    return action, actors.distribution.logp(action, mean, actors.log_std), mean


@pytest.mark.parametrize(("obs_dim", "act_dim"), [(3, 1), (11, 3), (17, 6), (105, 8), (348, 17)])
@pytest.mark.parametrize("envs", [1, 5, 33, 500])
def test_versions_acting_together_give_the_bits_of_each_acting_alone(obs_dim: int, act_dim: int, envs: int) -> None:
    policy, versions = several_versions(obs_dim, act_dim, 8)
    rng = np.random.default_rng(1)
    assignment = rng.integers(0, 8, size=envs)
    obs = torch.from_numpy(rng.normal(size=(envs, obs_dim)).astype("f4"))
    noise = torch.from_numpy(rng.normal(size=(envs, act_dim)).astype("f4"))
    exact = products_keep_their_bits(obs_dim, 64, 64, act_dim)
    together = act(BatchedPolicies(policy, versions, assignment), obs, noise)
    for v, version in enumerate(versions):
        alone = act(BatchedPolicies(policy, [version], np.zeros(envs, dtype=np.int64)), obs, noise)
        mine = assignment == v
        for a, b in zip(together, alone, strict=True):
            assert torch.equal(a[mine], b[mine]) or (not exact and nearly(a[mine], b[mine]))
    # the newest version is the learner: its minibatch of other rows agrees, too
    action, logp, _ = act(BatchedPolicies(policy, versions[-1:], np.zeros(envs, dtype=np.int64)), obs, noise)
    if envs >= 33:
        rows = torch.from_numpy(rng.permutation(envs)[:20])
        again = policy.evaluate(obs[rows], action[rows]).logp
        assert torch.equal(again, logp[rows]) or (not exact and nearly(again, logp[rows]))


@pytest.mark.parametrize(("wrong_below", "rows"), [(0, 4), (6, 8), (16, 16)])
def test_groups_have_as_few_rows_as_round_alike(monkeypatch: pytest.MonkeyPatch, wrong_below: int, rows: int) -> None:
    """On a machine whose products of fewer than `wrong_below` rows round differently."""

    def product(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x.double() @ weight.double()).float() + bias + 1e-6 * (x.shape[1] < wrong_below)

    monkeypatch.setattr(torch, "baddbmm", product)
    policy_module.fewest_rows.cache_clear()
    try:
        assert policy_module.fewest_rows(3, 2, ((11, 64), (64,), (64, 1), (1,), (1,))) == rows
        assert policy_module.fewest_rows(3, 13, ((11, 64), (64,), (64, 1), (1,), (1,))) == 16
    finally:
        policy_module.fewest_rows.cache_clear()


def test_a_snapshot_does_not_change_when_the_policy_does() -> None:
    policy, versions = several_versions(11, 3, 1)
    kept = {key: value.clone() for key, value in versions[0].tensors.items()}
    with torch.no_grad():
        policy.flat.add_(1.0)
    policy.set_statistics(Moments.initial(11))
    assert all(torch.equal(versions[0].tensors[key], value) for key, value in kept.items())


def test_log_probability_and_divergence_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    a, m, n = (torch.randn(50, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    s, t = (0.3 * torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2))
    p, q = torch.distributions.Normal(m, s.exp()), torch.distributions.Normal(n, t.exp())
    torch.testing.assert_close(Gaussian(4).logp(a, m, s), p.log_prob(a).sum(-1))
    torch.testing.assert_close(Gaussian(4).kl(m, s, n, t), torch.distributions.kl_divergence(p, q).sum(-1))


def test_the_initial_policy_is_orthogonal_with_the_gains_of_cleanrl() -> None:
    policy = MLPPolicy(11, Gaussian(3), (64, 64), seed=3)
    gains = [math.sqrt(2), math.sqrt(2), 0.01]
    for weight, gain in zip(policy.parameters[0:6:2], gains, strict=True):
        short = weight.t() @ weight if weight.shape[0] >= weight.shape[1] else weight @ weight.t()
        torch.testing.assert_close(short, gain**2 * torch.eye(short.shape[0]), atol=1e-5, rtol=1e-4)
    assert all(float(bias.abs().max()) == 0.0 for bias in policy.parameters[1:7:2])
    assert float(policy.parameters[6].abs().max()) == 0.0, "log sigma starts at 0"


def test_running_moments_are_those_of_all_samples_together() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, 5, generator=generator) * n + n for n in (1, 7, 64)]
    moments = Moments.initial(5)
    for part in parts:
        moments = moments.with_samples(part)
    whole = torch.cat(parts).double()
    torch.testing.assert_close(moments.mean, whole.mean(0))
    torch.testing.assert_close(moments.variance, whole.var(0, correction=0))
