"""Acceptance identities that need no simulator: what must be equal, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from method_examples import make

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions
from staleharness.objectives import effective_sample_size, gae, importance_ratio, spo_surrogate, total_variation, vtrace
from staleharness.testing import example_decisions, example_trajectories, gradient_coefficients, variants
from staleharness.testing.example_batches import with_gradient
from staleharness.training.optimiser import ewma_update

SEEDS = range(5)


def examples(seed: int) -> Decisions:
    return example_decisions(8, 9, seed=seed, dtype=torch.float64)


def ratio_of(d: Decisions) -> torch.Tensor:
    return importance_ratio(d.target_logp, d.behaviour_logp).detach()


# --- 2: on-policy, everybody agrees -----------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [a for name in ALGORITHMS for a in variants(ALGORITHMS[name])], ids=str)
def test_on_policy_all_methods_share_one_gradient(algorithm: Algorithm) -> None:
    if algorithm.policy_gradient:  # not so where a method brings its own baseline or its own objective
        d = example_decisions(on_policy=True, dtype=torch.float64)
        torch.testing.assert_close(gradient_coefficients(algorithm, d), d.advantage * d.mask)


def test_on_policy_distances_are_zero_and_nothing_is_filtered() -> None:
    d = example_decisions(on_policy=True, dtype=torch.float64)
    ratio = ratio_of(d)
    assert (ratio == 1).all()
    assert float(total_variation(ratio, d.mask)) == 0.0
    assert float(effective_sample_size(ratio, d.mask)) == 1.0
    for name in ("ppo_clip", "vaco", "decoupled_ppo", "a3po"):
        assert not make(name).policy_loss(d).diagnostics["clipped"].any()


# --- 3: V-trace on-policy is GAE --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_on_policy_vtrace_is_gae_and_so_is_vs_at_lambda_one(seed: int, gae_lambda: float) -> None:
    t = example_trajectories(5, 20, seed=seed, on_policy=True, gae_lambda=gae_lambda, dtype=torch.float64)
    by_gae, mixed, paper = gae(t), vtrace(t, form="lambda_mix"), vtrace(t, form="vs")
    for by_vtrace in (mixed, paper):
        torch.testing.assert_close(by_vtrace.value_target * t.mask, by_gae.value_target * t.mask)
    assert torch.equal(mixed.advantage, by_gae.advantage)
    assert torch.allclose(paper.advantage, by_gae.advantage) == (gae_lambda == 1.0)


# --- 4: GePPO's recursion is V-trace ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recursion_of_geppo_is_vtrace(seed: int) -> None:
    """A_t = δ_t + γλ c_{t+1} A_{t+1} with c = min(1, w), value target V + c_t A_t (Queeney et al. 2021)."""
    t = example_trajectories(5, 20, seed=seed, dtype=torch.float64)
    c = (t.target_logp - t.behaviour_logp).exp().clamp(max=1.0)
    said = vtrace(t, 1.0, 1.0, "lambda_mix")
    for b in range(5):
        length = int(t.mask[b].sum())
        advantage = 0.0
        for s in reversed(range(length)):
            linked = s + 1 < length and t.continues[b, s] == 1
            carry = t.gae_lambda * float(c[b, s + 1]) * advantage if linked else 0.0
            delta = float(t.reward[b, s] + t.discount[b, s] * t.next_value[b, s] - t.value[b, s])
            advantage = delta + float(t.discount[b, s]) * carry
            assert float(said.advantage[b, s]) == pytest.approx(advantage)
            target = float(t.value[b, s] + c[b, s] * advantage)
            assert float(said.value_target[b, s]) == pytest.approx(target)


# --- 5: decoupled PPO -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_decoupled_ppo_anchored_at_the_behaviour_policy_is_ppo(seed: int) -> None:
    d = examples(seed)
    d = replace(d, proximal_logp=d.behaviour_logp)
    ppo = gradient_coefficients(make("ppo_clip"), d)
    assert torch.equal(gradient_coefficients(make("decoupled_ppo", weight_cap=0.0), d), ppo)
    assert torch.equal(gradient_coefficients(make("ppo_clip", anchor="decoupled"), d), ppo)
    assert torch.equal(gradient_coefficients(make("ppo_clip", anchor="proximal"), d), ppo)


@pytest.mark.parametrize("seed", SEEDS)
def test_decoupled_ppo_is_off_policy_ppo_with_a_shifted_clip(seed: int) -> None:
    """min(wA, clip(w, u(1 − ε), u(1 + ε))A) with u = π_prox/μ."""
    d = examples(seed)
    w = importance_ratio(d.target_logp, d.behaviour_logp)
    u = importance_ratio(d.proximal_logp, d.behaviour_logp)
    objective = torch.minimum(w * d.advantage, torch.clamp(w, 0.8 * u, 1.2 * u) * d.advantage)
    (expected,) = torch.autograd.grad((objective * d.mask).sum(), d.target_logp)
    for twin in (make("decoupled_ppo", weight_cap=0.0), make("ppo_clip", anchor="decoupled")):
        torch.testing.assert_close(-twin.policy_loss(d).loss, objective)
        torch.testing.assert_close(gradient_coefficients(twin, d), expected)


# --- 6: A-3PO is a widened clip ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a3po_is_ppo_with_a_clip_that_widens_with_lag(seed: int) -> None:
    d = examples(seed)
    w, lag = ratio_of(d), d.lag.clamp(min=1.0)
    clipped = ((d.advantage > 0) & (w > 1.2**lag)) | ((d.advantage < 0) & (w < 0.8**lag))
    assert clipped.any() and (d.lag >= 2).any() and ((w - 1).abs() > 0.2)[~clipped].any()
    expected = torch.where(clipped, 0.0, w * d.advantage) * d.mask
    torch.testing.assert_close(gradient_coefficients(make("a3po"), d), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_at_lag_one_a3po_is_ppo(seed: int) -> None:
    d = examples(seed)
    d = replace(d, lag=torch.ones_like(d.lag))
    ppo = gradient_coefficients(make("ppo_clip"), d)
    for interpolation in ("loglinear", "linear"):
        for weight in ("raw", "none", "truncate", "mask"):
            a3po = make("a3po", interpolation=interpolation, behaviour_weight=weight)
            assert torch.equal(gradient_coefficients(a3po, d), ppo)


# --- 7: SPO's vertex --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.5])
def test_spo_is_flat_at_its_vertex_and_lower_on_both_sides(epsilon: float) -> None:
    advantage = torch.tensor([3.0, -0.4], dtype=torch.float64)
    vertex = (1 + epsilon * advantage.sign()).requires_grad_()
    top = spo_surrogate(vertex, advantage, epsilon)
    (slope,) = torch.autograd.grad(top.sum(), vertex)
    torch.testing.assert_close(slope, torch.zeros_like(slope))
    for step in (-0.05, 0.05):
        assert (spo_surrogate(vertex + step, advantage, epsilon) < top).all()


# --- 8: the total-variation filter ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("margin", [0.9, 0.999, 1.001, 1.1])
def test_beyond_delta_exactly_the_outward_decisions_are_filtered(seed: int, margin: float) -> None:
    d = examples(seed)
    w, valid = ratio_of(d), d.mask == 1
    mean_deviation = float((w - 1).abs()[valid].mean())
    clipped = make("vaco", delta=mean_deviation / margin).policy_loss(d).diagnostics["clipped"]
    outward = (d.advantage * (w - 1).sign() > 0) & (margin > 1)
    assert torch.equal(clipped[valid] == 1, outward[valid])
    assert bool(outward[valid].any()) == (margin > 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_flipping_the_advantage_flips_the_filtered_set(seed: int) -> None:
    d = examples(seed)
    one = make("vaco").policy_loss(d).diagnostics["clipped"]
    other = make("vaco").policy_loss(replace(d, advantage=-d.advantage)).diagnostics["clipped"]
    assert one.any()
    assert torch.equal(one + other, torch.ones_like(one))


# --- 9: the shadow ----------------------------------------------------------------------------------------


def test_the_shadow_is_the_explicit_weighted_mean() -> None:
    """Σ β^(n−i) θ_i / Σ β^(n−i) over the start and each step."""
    decay, g = 0.889, torch.Generator().manual_seed(0)
    history = [[torch.randn(3, 2, generator=g), torch.randn(4, generator=g)] for _ in range(12)]
    shadow, weight = [x.clone().requires_grad_() for x in history[0]], 1.0
    for n in range(1, len(history)):
        weight = ewma_update(shadow, history[n], weight, decay)
        weights = [decay ** (n - i) for i in range(n + 1)]
        assert weight == pytest.approx(sum(weights))
        for k, x in enumerate(shadow):
            terms = [w * step[k] for w, step in zip(weights, history, strict=False)]
            torch.testing.assert_close(x.detach(), torch.stack(terms).sum(0) / sum(weights))
    assert all(x.grad_fn is None for x in shadow)


def test_without_decay_the_shadow_is_the_learner() -> None:
    shadow, weight = [torch.zeros(2)], 1.0
    for step in range(3):
        weight = ewma_update(shadow, [torch.full((2,), float(step))], weight, 0.0)
        assert weight == 1.0 and torch.equal(shadow[0], torch.full((2,), float(step)))


def test_a_shadow_of_another_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument"):
        ewma_update([torch.zeros(2)], [torch.zeros(2), torch.zeros(2)], 1.0, 0.5)


# --- 11: a time limit is not a termination ----------------------------------------------------------------


@pytest.mark.parametrize("stale", [False, True])
def test_an_exact_critic_gives_truncation_no_advantage(stale: bool) -> None:
    """Reward 1 for ever at γ = 0.9 is worth 10 everywhere. Cutting the view after 4 steps changes nothing.

    Taking the cut for an end makes the last decision look 9 too bad: 1 − 10 = −9.
    """
    t = example_trajectories(1, 8, on_policy=not stale, discount=0.9, dtype=torch.float64)
    ones, cut = torch.ones(1, 8, dtype=torch.float64), torch.zeros(1, 8, dtype=torch.float64)
    cut[0, 3] = 1.0
    truncated = replace(
        t, reward=ones, value=10 * ones, next_value=10 * ones, mask=ones, discount=0.9 * ones, continues=1 - cut
    )
    taken_for_an_end = replace(truncated, discount=0.9 * (1 - cut))
    for estimate in (gae, vtrace):
        targets = estimate(truncated)
        torch.testing.assert_close(targets.advantage, 0 * ones)
        torch.testing.assert_close(targets.value_target, 10 * ones)
        biased = estimate(taken_for_an_end).advantage[0]
        assert float(biased[3]) == pytest.approx(-9.0)
        assert (biased[:3] < -0.01).all() and (biased[4:].abs() < 1e-12).all()


def test_a_terminated_episode_is_worth_what_it_paid() -> None:
    """Rewards 1, 1, 1, then the end; γ = ½, exact V = 1.75, 1.5, 1: no advantage, whatever follows."""
    t = example_trajectories(1, 4, on_policy=True, dtype=torch.float64)
    value = torch.tensor([[1.75, 1.5, 1.0, 50.0]], dtype=torch.float64)
    ended = torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    t = replace(
        t,
        reward=torch.ones_like(value),
        value=value,
        next_value=torch.tensor([[1.5, 1.0, 77.0, 50.0]], dtype=torch.float64),
        discount=0.5 * (1 - ended),
        continues=1 - ended,
        mask=torch.ones_like(value),
    )
    for estimate in (gae, vtrace):
        torch.testing.assert_close(estimate(t).advantage[:, :3], torch.zeros(1, 3, dtype=torch.float64))


def test_the_examples_disagree_where_methods_do() -> None:
    """So that equality above means something: on stale decisions no two methods have one gradient and stop alike, and
    change the whole gradient alike."""
    d, pulls = examples(0), []
    aligned = torch.ones_like(d.mask[0]), torch.arange(1.0, d.mask.shape[1] + 1, dtype=d.mask.dtype)
    away = d.behaviour_logp - d.target_logp.detach()
    for name in ALGORITHMS:
        stale = [replace(d, behaviour_logp=d.target_logp.detach() + k * away) for k in (0.02, 1.0, 3.0)]
        method = make(name)
        seen = [with_gradient(x, closed_form="closed_form" in method.needs) for x in stale]
        stops = torch.tensor([[float(method.stop(x) != "no")] * d.mask.shape[1] for x in seen])
        changed = method.gradient(*aligned)[None]
        pulls.append(torch.cat([*(gradient_coefficients(method, x) for x in seen), stops.to(d.mask.dtype), changed]))
        assert not any(torch.allclose(pulls[-1], other) for other in pulls[:-1]), name
