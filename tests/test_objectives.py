"""The shared mathematics against slow literal readings of the papers and against exact expectations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from staleharness import objectives
from staleharness.batch import Trajectories
from staleharness.objectives import AdvantageForm, gae, step_factor, vtrace
from staleharness.testing import decisions, example_decisions, example_trajectories
from staleharness.testing.example_batches import rows_of


def episode_end(t: Trajectories, b: int, s: int) -> int:
    """The last column that a sum starting at column s of row b may reach."""
    while s + 1 < t.mask.shape[1] and t.continues[b, s] == 1 and t.mask[b, s + 1] == 1:
        s += 1
    return s


def literal_gae(t: Trajectories) -> Tensor:
    """A_s = Σ_l (γλ)^l δ_{s+l}, term by term."""
    out = torch.zeros_like(t.reward)
    for b, s in torch.nonzero(t.mask).tolist():
        for u in range(s, episode_end(t, b, s) + 1):
            term = float(t.reward[b, u] + t.discount[b, u] * t.next_value[b, u] - t.value[b, u])
            for i in range(s, u):
                term *= float(t.discount[b, i]) * t.gae_lambda
            out[b, s] += term
    return out


def literal_vtrace(t: Trajectories, rho_bar: float, c_bar: float) -> Tensor:
    """v_s = V(x_s) + Σ_t γ^{t−s} (Π_{i=s}^{t−1} c_i) ρ_t (r_t + γ V(x_{t+1}) − V(x_t)), eq. 1 as printed."""
    out = t.value.clone()
    for b, s in torch.nonzero(t.mask).tolist():
        for u in range(s, episode_end(t, b, s) + 1):
            product = 1.0
            for i in range(s, u):
                w = math.exp(float(t.target_logp[b, i] - t.behaviour_logp[b, i]))
                product *= float(t.discount[b, i]) * t.gae_lambda * min(c_bar, w)
            rho = min(rho_bar, math.exp(float(t.target_logp[b, u] - t.behaviour_logp[b, u])))
            td_error = float(t.reward[b, u] + t.discount[b, u] * t.next_value[b, u] - t.value[b, u])
            out[b, s] += product * rho * td_error
    return out


def literal_vtrace_advantage(t: Trajectories, v: Tensor, form: str) -> Tensor:
    """r + γ q − V, with q = v' or λ v' + (1 − λ) V', and V' where there is no successor."""
    out = torch.zeros_like(v)
    for b, s in torch.nonzero(t.mask).tolist():
        q = bootstrap = float(t.next_value[b, s])
        if episode_end(t, b, s) > s:
            mix = t.gae_lambda if form == "lambda_mix" else 1.0
            q = mix * float(v[b, s + 1]) + (1.0 - mix) * bootstrap
        out[b, s] = float(t.reward[b, s]) + float(t.discount[b, s]) * q - float(t.value[b, s])
    return out


def trajectories(seed: int, gae_lambda: float = 0.8) -> Trajectories:
    return example_trajectories(6, 17, seed=seed, gae_lambda=gae_lambda, dtype=torch.float64)


def test_the_examples_cover_all_ends_and_both_sides_of_truncation() -> None:
    seen = {"tiny": False, "huge": False, "terminated": False, "truncated": False, "padded": False, "cut": False}
    for t in map(trajectories, range(4)):
        valid = t.mask == 1
        ratio = (t.target_logp - t.behaviour_logp).exp()
        seen["tiny"] |= bool((valid & (ratio < 0.03)).any())
        seen["huge"] |= bool((valid & (ratio > 10)).any())
        seen["terminated"] |= bool((valid & (t.discount == 0)).any())
        seen["truncated"] |= bool((valid & (t.continues == 0) & (t.discount > 0)).any())
        seen["padded"] |= bool((~valid).any())
        seen["cut"] |= bool((valid & (t.continues == 1))[:, -1].any())  # the row ends, the episode does not
    assert all(seen.values()), seen


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_gae_is_the_literal_sum(seed: int, gae_lambda: float) -> None:
    t = trajectories(seed, gae_lambda)
    targets = gae(t)
    torch.testing.assert_close(targets.advantage, literal_gae(t))
    torch.testing.assert_close(targets.value_target * t.mask, (literal_gae(t) + t.value) * t.mask)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (3.0, 1.0), (0.5, 0.2), (1e9, 1e9)])
def test_vtrace_is_the_literal_double_sum(seed: int, gae_lambda: float, rho_bar: float, c_bar: float) -> None:
    t = trajectories(seed, gae_lambda)
    v = literal_vtrace(t, rho_bar, c_bar)
    forms: tuple[AdvantageForm, ...] = ("vs", "lambda_mix")
    for form in forms:
        targets = vtrace(t, rho_bar, c_bar, form)
        torch.testing.assert_close(targets.value_target * t.mask, v * t.mask)
        torch.testing.assert_close(targets.advantage, literal_vtrace_advantage(t, v, form))


def test_a_hole_in_a_row_is_no_successor() -> None:
    t = trajectories(1)
    holed = replace(t, mask=torch.ones_like(t.mask))
    holed.mask[:, 5] = 0.0
    torch.testing.assert_close(gae(holed).advantage, literal_gae(holed))
    v = literal_vtrace(holed, 1.0, 1.0)
    torch.testing.assert_close(vtrace(holed).advantage, literal_vtrace_advantage(holed, v, "lambda_mix"))


def test_vtrace_by_hand() -> None:
    """γ = ½, λ = 1, two decisions and a row's end with V(s₂) = 8.

    δ₁ = 1·(2 + ½·8 − 4) = 2 with w₁ = 3 truncated to 1, so v₁ = 6.
    δ₀ = ½·(1 + ½·4 − 2) = ½ with w₀ = ½, c₀ = ½, so v₀ = 2 + ½ + ½·½·(6 − 4) = 3.
    A₁ = 2 + ½·8 − 4 = 2, and A₀ = 1 + ½·6 − 2 = 2: neither carries ρ.
    """
    t = Trajectories(
        reward=torch.tensor([[1.0, 2.0]]),
        discount=torch.tensor([[0.5, 0.5]]),
        continues=torch.ones(1, 2),
        value=torch.tensor([[2.0, 4.0]]),
        next_value=torch.tensor([[4.0, 8.0]]),
        behaviour_logp=torch.zeros(1, 2),
        target_logp=torch.tensor([[0.5, 3.0]]).log(),
        lag=torch.ones(1, 2),
        mask=torch.ones(1, 2),
        gae_lambda=1.0,
    )
    targets = vtrace(t)
    torch.testing.assert_close(targets.value_target, torch.tensor([[3.0, 6.0]]))
    torch.testing.assert_close(targets.advantage, torch.tensor([[2.0, 2.0]]))


def test_gae_has_the_bits_of_the_textbook_loop() -> None:
    t = example_trajectories(3, 200)
    t = replace(t, mask=torch.ones_like(t.mask))
    expected = torch.zeros_like(t.reward)
    carry = torch.zeros(3)
    for s in reversed(range(200)):
        delta = t.reward[:, s] + t.discount[:, s] * t.next_value[:, s] - t.value[:, s]
        carry = delta + t.discount[:, s] * t.continues[:, s] * t.gae_lambda * carry
        expected[:, s] = carry
    assert torch.equal(gae(t).advantage, expected)


def test_a_device_without_numpy_gets_the_same_sums() -> None:
    x, decay = torch.randn(2, 30, 3, generator=torch.Generator().manual_seed(0)).unbind(0)
    sums = x.clone()
    objectives.accumulate(sums.unbind(0), decay.unbind(0))
    assert torch.equal(sums.t(), objectives.sum_backwards(x.t(), decay.t()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_advantages_are_the_same_on_a_gpu() -> None:
    t = trajectories(2)
    there = replace(t, **{key: x.cuda() for key, x in vars(t).items() if isinstance(x, Tensor)})
    for here, away in ((gae(t), gae(there)), (vtrace(t), vtrace(there))):
        torch.testing.assert_close(here.advantage, away.advantage.cpu())
        torch.testing.assert_close(here.value_target, away.value_target.cpu())


# Divergences, on three actions with known probabilities, where expectations are finite sums.

MU = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
PI = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def test_k1_and_k3_estimate_the_kl_and_k3_is_never_negative() -> None:
    exact = float((MU * (MU / PI).log()).sum())
    for estimator in (objectives.kl_k1, objectives.kl_k3):
        assert float((MU * estimator(PI.log(), MU.log())).sum()) == pytest.approx(exact)
    assert (objectives.kl_k3(PI.log(), MU.log()) > 0).all()


def test_the_kl_estimators_by_hand() -> None:
    """log w = 1 and −1: k1 = −log w, k2 = ½ log² w, k3 = w − 1 − log w."""
    target, anchor = torch.tensor([1.0, -1.0]), torch.zeros(2)
    torch.testing.assert_close(objectives.kl_k1(target, anchor), torch.tensor([-1.0, 1.0]))
    torch.testing.assert_close(objectives.kl_k2(target, anchor), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(objectives.kl_k3(target, anchor), torch.tensor([math.e - 2, 1 / math.e]))


def test_total_variation_is_half_the_l1_distance() -> None:
    counts = (10 * MU).round().long()  # 2, 5 and 3 samples: exactly μ
    ratio = (PI / MU).repeat_interleave(counts)[None]
    exact = 0.5 * (PI - MU).abs().sum()
    torch.testing.assert_close(objectives.total_variation(ratio, torch.ones_like(ratio)), exact)


def test_effective_sample_size_by_hand() -> None:
    """w = 1, 3: (1 + 3)²/(2·(1 + 9)) = 0.8; the padded 100 does not count."""
    ratio, mask = torch.tensor([[1.0, 3.0, 100.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert float(objectives.effective_sample_size(ratio, mask)) == pytest.approx(0.8)


def test_a_ratio_is_clamped_before_the_exponential() -> None:
    ratio = objectives.importance_ratio(torch.tensor([500.0, -500.0]), torch.zeros(2))
    torch.testing.assert_close(ratio, torch.tensor([math.exp(20.0), math.exp(-20.0)]))


def test_the_kl_is_measured_against_the_anchor_asked_for() -> None:
    """w = e², u = e: log π is 2 above log μ and 1 above log π_prox."""
    d = decisions(ratio=[[math.e**2]], advantage=[[0.0]], proximal_ratio=[[math.e]])
    assert float(objectives.kl_divergence(d, "behaviour", "k2").detach()) == pytest.approx(2.0)
    assert float(objectives.kl_divergence(d, "proximal", "k2").detach()) == pytest.approx(0.5)
    assert float(objectives.kl_divergence(d, "behaviour", "k3").detach()) == pytest.approx(math.e**2 - 3)
    assert float(objectives.kl_divergence(d, "proximal", "k3").detach()) == pytest.approx(math.e - 2)
    exact = replace(d, analytic_kl=lambda anchor: {"behaviour": d.lag + 7, "proximal": d.lag + 9}[anchor])
    assert float(objectives.kl_divergence(exact, "behaviour", "analytic")) == 7.0
    assert float(objectives.kl_divergence(exact, "proximal", "analytic")) == 9.0


# --- the size of a step -----------------------------------------------------------------------------------


def test_the_ess_rule_is_the_root_of_the_effective_share() -> None:
    """Completions of weight 2·½ = 1 and 3·1 = 3: ESS/B = 16/(2·10) = 0.8. Tokens alone would give another share."""
    d = decisions([[2.0, 0.5], [3.0, 1.0]], 1.0)
    assert step_factor(d, "ess") == pytest.approx(math.sqrt(0.8))
    single = decisions([[1.0], [3.0]], 1.0)
    assert step_factor(single, "ess") == pytest.approx(math.sqrt(0.8))


def test_the_ess_rule_counts_no_padding_and_no_empty_rows() -> None:
    d = decisions([[1.0, 9.0], [3.0, 9.0], [7.0, 9.0]], 1.0, mask=[[1, 0], [1, 0], [0, 0]])
    assert step_factor(d, "ess") == pytest.approx(math.sqrt(0.8))


def test_the_ess_rule_looks_at_untruncated_weights() -> None:
    """One of four completions e^15 times as likely as the others: an effective sample of one."""
    d = decisions([[math.exp(15.0)], [1.0], [1.0], [1.0]], 1.0)
    assert step_factor(d, "ess") == pytest.approx(0.5, rel=1e-5)
    far = decisions([[math.exp(30.0)], [math.exp(40.0)], [0.0001], [1.0]], 1.0)
    assert step_factor(far, "ess") == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("shift", [-50.0, -3.0, 0.0, 3.0, 50.0])
def test_the_sample_size_of_rows_depends_on_no_scale(shift: float) -> None:
    """Also where the weights of all rows are beyond e^±20; compared with weights in float64."""
    log_w = torch.randn(6, 9, generator=torch.Generator().manual_seed(0)) / 3 + shift
    mask = torch.ones(6, 9)
    mask[4, 5:], mask[5] = 0.0, 0.0  # a shorter row, and one that does not count
    total = (log_w * mask).double().sum(1)[:5]
    if shift:
        total = total - total.max()
    expected = total.exp().sum().square() / (5 * total.exp().square().sum())
    assert float(objectives.sequence_sample_size(log_w, mask)) == pytest.approx(float(expected), rel=1e-3)
    assert float(objectives.sequence_sample_size(log_w[5:], mask[5:])) == 0.0


def test_the_ess_rule_weighs_against_the_policy_that_acted() -> None:
    d = decisions([[1.0], [3.0]], 1.0)
    assert step_factor(replace(d, proximal_logp=d.target_logp), "ess") == pytest.approx(math.sqrt(0.8))


def test_the_ess_rule_changes_nothing_where_weights_are_equal() -> None:
    assert step_factor(decisions([[1.0] * 3] * 5, 1.0), "ess") == pytest.approx(1.0)
    assert step_factor(decisions([[1.1] * 3] * 5, 1.0), "ess") == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_ess_rule_is_between_one_completion_and_all_of_them(seed: int) -> None:
    d = example_decisions(6, 9, seed=seed, dtype=torch.float64)
    assert math.sqrt(1 / 6) <= step_factor(d, "ess") <= 1.0
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert step_factor(rows_of(d, order), "ess") == pytest.approx(step_factor(d, "ess"))


def test_the_lag_rule_divides_by_the_mean_lag_of_what_is_there() -> None:
    """Lags 2 and 6, and 90 in padding: ¼."""
    d = decisions([[1.0, 1.0, 1.0]], 1.0, lag=[[2.0, 6.0, 90.0]], mask=[[1, 1, 0]])
    assert step_factor(d, "inverse_lag") == pytest.approx(0.25)
    for lag in (0.0, 0.5, 1.0):
        assert step_factor(decisions([[1.0]], 1.0, lag=lag), "inverse_lag") == 1.0


def test_without_a_rule_the_step_is_as_the_run_has_it() -> None:
    assert step_factor(example_decisions(), "constant") == 1.0


def test_group_totals_are_of_rows_with_one_number() -> None:
    group, x = torch.tensor([7, 2, 7]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert objectives.group_total(x, group).tolist() == [[6.0, 8.0], [3.0, 4.0], [6.0, 8.0]]
    assert objectives.group_total(x[:, 0], group).tolist() == [6.0, 3.0, 6.0]


def test_the_clipped_surrogate_has_the_bits_of_its_formula() -> None:
    """Value, gradient and indicator as min(rA, clip(r)A) gives them, at the bounds, where products tie, and at 0."""
    generator = torch.Generator().manual_seed(0)
    low, high = (torch.tensor(x) for x in (0.8, 1.28))
    neighbours = [low.nextafter(torch.tensor(0.0)), high.nextafter(torch.tensor(2.0)), low, high, torch.tensor(1.0)]
    ratios = torch.cat([torch.stack(neighbours).repeat(1000), torch.rand(1000, generator=generator) + 0.5])
    advantage = torch.randn(len(ratios), generator=generator)
    advantage[::7] = 0.0
    upstream, results = torch.rand(len(ratios), generator=generator), []
    for form in ("formula", "function"):
        r = ratios.clone().requires_grad_()
        if form == "formula":
            objective = torch.minimum(r * advantage, r.clamp(0.8, 1.28) * advantage)
            outside = ((advantage > 0) & (r > 1.28)) | ((advantage < 0) & (r < 0.8))
            tied = (ratios * advantage == ratios.clamp(0.8, 1.28) * advantage) & outside
            assert int(tied.sum()) > 10  # by rounding alone: half of the gradient is left
        else:
            objective, outside = objectives.clipped_surrogate(r, advantage, 0.2, 0.28)
        (gradient,) = torch.autograd.grad(objective, r, upstream)
        results.append((objective.detach(), gradient, outside.float()))
    for wanted, found in zip(*results, strict=True):
        assert torch.equal(found, wanted)
    nothing, _ = objectives.clipped_surrogate(torch.tensor([math.nan, 1.0]), torch.tensor([1.0, math.nan]), 0.2)
    assert bool(nothing.isnan().all())
