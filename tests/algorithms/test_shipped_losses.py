"""Losses as systems and recent papers have them: each against its objective, read literally and differentiated exactly
by complex steps, and against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import objective_readings as read
import pytest
import torch
from method_examples import assert_clipped_have_no_gradient, assert_pulls, examples, make
from objective_readings import Objective, gradient_of

from staleharness.algorithm import Algorithm
from staleharness.errors import UserError
from staleharness.objectives import aggregation_weights
from staleharness.testing import CHECKS, decisions, gradient_coefficients, variants

CASES: list[tuple[Algorithm, Objective]] = [
    (make("ppo_clip", dual_clip=1.3), read.dual_clip(1.3)),
    (make("ppo_clip", dual_clip=1.3, anchor="proximal"), read.dual_clip(1.3, "proximal")),
    (make("ppo_clip", dual_clip=3.0, anchor="decoupled"), read.dual_clip(3.0, "decoupled")),
    (make("sapo"), read.sapo(1.0, 1.05)),
    (make("sapo", tau_positive=2.5, tau_negative=2.0, anchor="proximal"), read.sapo(2.5, 2.0, True)),
]
CASES += [
    (make("vespo"), read.vespo((2.0, 3.0), (3.0, 2.0))),
    (make("vespo", k_positive=1.0, lambda_negative=0.5), read.vespo((1.0, 3.0), (3.0, 0.5))),
    (make("minirl"), read.minirl(0.2, 0.27, 5.0)),
    (make("minirl", clip=0.05, clip_high=0.0, cap=1.1), read.minirl(0.05, 0.05, 1.1)),
    (make("minirl", cap=0.0), read.minirl(0.2, 0.27, math.inf)),
    (make("dg"), read.dg(1.0)),
    (make("dg", eta=0.3), read.dg(0.3)),
    (make("oapl"), read.oapl(1.0, 1e-3)),
    (make("oapl", beta_value=0.1, beta=0.7), read.oapl(0.1, 0.7)),
    (make("ce_gppo"), read.ce_gppo(0.75, 1.0, 0.2, 0.2)),
    (make("ce_gppo", beta_low=0.0, beta_high=0.5, clip_high=0.1), read.ce_gppo(0.0, 0.5, 0.2, 0.1)),
    (make("ce_gppo", dual_clip=1.5, anchor="proximal"), read.ce_gppo(0.75, 1.0, 0.2, 0.2, 1.5, True)),
    (make("aspo"), read.aspo(0.2, 0.2, 3.0)),
    (make("aspo", clip_high=0.4, cap=1.2, anchor="proximal"), read.aspo(0.2, 0.4, 1.2, True)),
    (make("bapo"), read.bapo((0.6, 0.9, 1.2, 3.0), 0.05, False)),
    (make("bapo", share=0.6, step=0.1, high_most=1.5), read.bapo((0.6, 0.9, 1.2, 1.5), 0.1, False, 0.6)),
    (make("bapo", form="release"), read.bapo((0.6, 0.9, 1.2, 3.0), 0.05, True)),
    (make("bapo", form="release", low_most=0.8, high_most=2.0), read.bapo((0.6, 0.8, 1.2, 2.0), 0.05, True)),
    (make("prime_rl"), read.prime_rl(0.2, 1e-3)),
    (make("prime_rl", delta=0.02, tau=0.5), read.prime_rl(0.02, 0.5)),
    (make("ipo"), read.prime_rl(0.1, 1e-3, both=True)),
    (make("ipo", delta=0.01, tau=0.0), read.prime_rl(0.01, 0.0, both=True)),
    (make("dcpo"), read.dcpo(0.2, 0.28, 10.0)),
    (make("tis", low=0.5, cap=5.0), read.tis(0.5, 5.0)),
    (make("tis", low=0.9, cap=1.2, level="sequence"), read.tis(0.9, 1.2, "sequence")),
    (make("k3_rejection", largest=0.05, delta=0.1), read.trust_region_mask(0.05, 0.1)),
    (make("k3_rejection", largest=2.0, delta=0.3), read.trust_region_mask(2.0, 0.3)),
    (make("icepop", kpop=0.05, low=0.0, high=0.0), read.kpop(0.05)),
    (make("icepop", kpop=0.01), read.kpop(0.01, 0.5, 5.0)),
    (make("dcpo", clip=0.02, clip_high=0.0, most=1.3, anchor="proximal"), read.dcpo(0.02, 0.02, 1.3, True)),
]
PRESETS: dict[str, tuple[str, ...]] = {  # loss, rollout_rs, rollout_is
    "disabled": ("decoupled",),
    "decoupled_token_is": ("decoupled", "", "token"),
    "decoupled_seq_is": ("decoupled", "", "sequence"),
    "decoupled_token_icepop": ("decoupled", "", "icepop"),
    "decoupled_seq_is_rs": ("decoupled", "seq_sum_k1", "sequence"),
    "decoupled_geo_rs": ("decoupled", "seq_mean_k1"),
    "decoupled_geo_rs_seq_tis": ("decoupled", "seq_mean_k1", "sequence"),
    "decoupled_geo_rs_token_tis": ("decoupled", "seq_mean_k1", "token"),
    "decoupled_k3_rs": ("decoupled", "seq_mean_k3"),
    "decoupled_k3_rs_seq_tis": ("decoupled", "seq_mean_k3", "sequence"),
    "decoupled_k3_rs_token_tis": ("decoupled", "seq_mean_k3", "token"),
    "bypass_ppo_clip": ("ppo",),
    "bypass_ppo_clip_geo_rs": ("ppo", "seq_mean_k1"),
    "bypass_ppo_clip_k3_rs": ("ppo", "seq_mean_k3"),
    "bypass_pg_is": ("pg", "", "sequence"),
    "bypass_pg_token_icepop": ("pg", "", "icepop"),
    "bypass_pg_geo_rs": ("pg", "seq_mean_k1"),
    "bypass_pg_geo_rs_seq_tis": ("pg", "seq_mean_k1", "sequence"),
    "bypass_pg_geo_rs_token_tis": ("pg", "seq_mean_k1", "token"),
}
CASES += [(make("verl", preset=name), read.verl(*parts)) for name, parts in PRESETS.items()]
PENALISED = {"prime_rl", "ipo"}  # masked decisions still feel the penalty
of_each = pytest.mark.parametrize(("algorithm", "objective"), CASES, ids=[str(a) for a, _ in CASES])


@of_each
@pytest.mark.long
def test_the_gradient_is_that_of_the_objective_as_written(algorithm: Algorithm, objective: Objective) -> None:
    plain = []
    for spread in (1.0, 0.1, 0.01):
        for seed in range(3):
            d = examples(seed, spread)
            pull = gradient_coefficients(algorithm, d)
            torch.testing.assert_close(pull, gradient_of(objective, d), rtol=1e-9, atol=1e-9)
            plain.append(torch.allclose(pull, (d.target_logp - d.behaviour_logp).detach().exp() * d.advantage * d.mask))
    assert not all(plain)


@of_each
def test_options_away_from_the_defaults_keep_the_contract(algorithm: Algorithm, objective: Objective) -> None:
    if algorithm not in variants(type(algorithm)):  # those are tested with all registered methods
        for check in CHECKS:
            check(algorithm)


@pytest.mark.parametrize("algorithm", [a for a, _ in CASES if a.policy_gradient and a.name not in PENALISED], ids=str)
def test_clipped_says_which_decisions_have_no_gradient(algorithm: Algorithm) -> None:
    assert_clipped_have_no_gradient(algorithm, seeds=1)


# --- dual clip --------------------------------------------------------------------------------------------


def test_dual_clip_ends_the_pull_of_bad_decisions_far_above() -> None:
    """c = 3: at w = 4 and A = −2 the objective is −6, not −8, and flat; good decisions know nothing of it."""
    method = make("ppo_clip", dual_clip=3.0)
    assert_pulls(method, (4.0, -2.0, 0.0), (2.5, -2.0, -5.0), (4.0, 2.0, 0.0), (0.5, -2.0, 0.0), (1.1, 2.0, 2.2))
    assert_pulls(make("ppo_clip", clip=4.0, dual_clip=3.0), (4.0, 2.0, 8.0), (4.0, -2.0, 0.0))
    answer = method.policy_loss(decisions([[4.0, 2.5, 0.5]], [[-2.0, -2.0, -2.0]]))
    assert answer.loss[0].tolist() == pytest.approx([6.0, 5.0, 1.6], abs=1e-12)
    assert answer.diagnostics["clipped"].tolist() == [[1.0, 0.0, 1.0]]


@pytest.mark.parametrize("c", [1.0, 0.5, -3.0])
def test_a_dual_clip_that_would_silence_fresh_data_is_refused(c: float) -> None:
    with pytest.raises(UserError, match=r"ppo_clip: dual_clip must be 0 \(none\) or above 1"):
        make("ppo_clip", dual_clip=c)


# --- SAPO -------------------------------------------------------------------------------------------------


def test_sapo_weakens_a_pull_on_both_sides_of_one() -> None:
    """τ = 1: s = σ(ln 3) = 3/4 at r = 1 + ln 3, so 4·s(1 − s) = 3/4; τ = 2 halves the distance that it takes."""
    far, half = 2.09861228866811, 1.549306144334055  # 1 + ln 3, 1 + ln 3 / 2
    method = make("sapo", tau_positive=1.0, tau_negative=2.0)
    assert_pulls(method, (far, 2.0, 1.5 * far), (half, -2.0, -1.5 * half), (1.0, 2.0, 2.0), (1.0, -2.0, -2.0))
    answer = method.policy_loss(decisions([[far, half]], [[2.0, -2.0]]))
    assert answer.loss[0].tolist() == pytest.approx([-6.0, 3.0], abs=1e-12)  # 4·¾·2; 4/2·¾·2
    assert answer.diagnostics["gate"].tolist() == [[pytest.approx(0.75), pytest.approx(0.75)]]


@pytest.mark.parametrize("key", ["tau_positive", "tau_negative"])
def test_a_gate_without_width_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"sapo: {key} must be above 0"):
        make("sapo", **{key: 0.0})


# --- VESPO, MiniRL, DG, OAPL ------------------------------------------------------------------------------


def test_vespo_reshapes_the_weight_of_the_whole_completion() -> None:
    """Two tokens with w = 2 and ½·e^½: W = e^½. A > 0: e^(3 + 2/2 − 3√e); A < 0: e^(2 + 3/2 − 2√e)."""
    root = math.sqrt(math.e)
    good, bad = math.exp(4.0 - 3.0 * root), math.exp(3.5 - 2.0 * root)
    assert_pulls(make("vespo"), (2.0, 2.0, 2.0 * good), (0.5 * root, -1.0, -bad))
    assert_pulls(make("vespo"), (1.0, 0.7, 0.7), (1.0, -0.7, -0.7))  # φ(1) = 1
    assert_pulls(make("vespo"), (2 / 3, 1.0, math.e * 4 / 9))  # the peak W = k/λ: e^3 (2/3)² e^−2


def test_minirl_clips_around_the_learner_and_weighs_for_mu() -> None:
    """u = 4: w = 4.8 is r = 1.2, inside 1.27; w = 5.2 is r = 1.3, masked at A > 0 and cut to 5 at A < 0."""
    rows = ((4.8, 2.0, 9.6), (5.2, 2.0, 0.0), (5.2, -2.0, -10.0), (3.0, -2.0, 0.0), (3.0, 2.0, 6.0))
    assert_pulls(make("minirl"), *rows, proximal_ratio=4.0)


def test_dg_gates_by_advantage_times_surprisal() -> None:
    """log π = −ln 3, so σ(±ln 3) is ¾ at A = 1 and ¼ at A = −1; η = ½ squares the odds: 9/10 and 1/10."""
    log3 = math.log(3.0)
    assert_pulls(make("dg"), (9.0, 1.0, 0.75), (0.1, -1.0, -0.25), target_logp=-log3)
    assert_pulls(make("dg", eta=0.5), (1.0, 1.0, 0.9), (1.0, -1.0, -0.1), target_logp=-log3)
    assert_pulls(make("dg"), (1.0, 1.0, 0.5), target_logp=0.0)


def test_oapl_regresses_the_log_ratio_on_the_optimal_advantage() -> None:
    """Rewards 1 and 0, β₁ = 1: V* = ln((e + 1)/2). Row 0 has Σ log w = ln 6, and pulls with 2β(1 − V* − β ln 6)."""
    value, beta = math.log((math.e + 1) / 2), 0.1
    d = decisions([[2.0, 3.0], [1.0, 5.0]], [[9.0, 9.0]], mask=[[1, 1], [1, 0]], group=[4, 4], outcome=[1.0, 0.0])
    pulls = gradient_coefficients(make("oapl", beta=beta), d)
    first = 2 * beta * (1 - value - beta * math.log(6.0))
    wanted = torch.tensor([[first, first], [2 * beta * -value, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(pulls, wanted, rtol=1e-9, atol=1e-9)


def test_oapls_value_is_finite_at_a_tiny_temperature() -> None:
    """β₁ = 1e-4: V* is the best reward of each group, 1 and 0; e^(1/β₁) is beyond any float."""
    d = decisions([[1.0]] * 4, [[1.0]], group=[0, 0, 1, 1], outcome=[1.0, 0.0, 0.0, 0.0])
    pulls = gradient_coefficients(make("oapl", beta_value=1e-4, beta=1.0), d)
    torch.testing.assert_close(pulls[:, 0], torch.tensor([0.0, -2.0, 0.0, 0.0], dtype=torch.float64), atol=3e-4, rtol=0)


# --- CE-GPPO, BAPO, ASPO, GMPO, DCPO ----------------------------------------------------------------------


def test_ce_gppo_bounds_the_gradient_that_ppo_would_drop() -> None:
    assert_pulls(
        make("ce_gppo", beta_low=0.5, beta_high=2.0),
        (1.5, 2.0, 4.8),  # 2·1.2·2
        (0.5, -2.0, -0.8),  # 0.5·0.8·−2
        (1.5, -2.0, -3.0),
        (0.5, 2.0, 1.0),
        (11.0, -1.0, -11.0),
    )
    assert_pulls(make("ce_gppo", dual_clip=10.0), (11.0, -1.0, 0.0), (9.0, -1.0, -9.0))


def bounds_of(**options: object) -> list[float]:
    """c_low and c_high for w = 2 at A = 1, and w = ½ and 1 at A = −1."""
    d = decisions([[2.0, 0.5, 1.0]], [[1.0, -1.0, -1.0]])
    said = make("bapo", **options).policy_loss(d).diagnostics
    return [float(said[f"bound_{side}"][0, 0]) for side in ("low", "high")]


def test_bapo_widens_its_clip_until_the_shares_are_balanced() -> None:
    """c_high against max(½, c_low) + 1 = 1.6: 1.6 of it are needed, eight steps of 0.05 from 1.2."""
    assert bounds_of(share=0.5) == [0.6, pytest.approx(1.6)]
    assert bounds_of(share=0.4) == [0.6, 1.2]  # 1.2 of 2.8 is 0.43
    assert bounds_of(share=0.9) == [0.9, 3.0]  # out of reach: w is 2, so 2 of 3.6
    assert_pulls(make("bapo"), (2.0, 1.0, 0.0), (0.5, -1.0, 0.0), (1.0, -1.0, -1.0))


def test_bapos_release_raises_the_lower_bound_first_and_in_vain() -> None:
    """At c_low = 0.9 the bad side is 1.9, so that c_high must reach 1.9 in place of the paper's 1.6."""
    assert bounds_of(form="release") == [0.9, pytest.approx(1.9)]
    assert_pulls(make("bapo", form="release"), (4.0, -1.0, 0.0), (2.5, -1.0, -2.5))
    assert_pulls(make("bapo"), (4.0, -1.0, -4.0), (2.5, -1.0, -2.5))


def test_aspo_flips_the_ratio_of_good_decisions() -> None:
    assert_pulls(
        make("aspo"),
        (0.5, 2.0, 4.0),  # 1/0.5
        (0.2, 2.0, 6.0),  # 1/0.2 cut to 3
        (1.3, 2.0, 0.0),
        (4.0, -2.0, -6.0),  # cut to 3, and the gradient stays
        (0.5, -2.0, 0.0),
        (2.0, -2.0, -4.0),
    )


@pytest.mark.parametrize("options", [{}, {"clip": 0.05}, {"clip_high": 0.1, "anchor": "proximal"}], ids=str)
def test_gmpo_is_the_derivative_of_verls_geometric_mean(options: dict[str, object]) -> None:
    method = make("gmpo", **options)
    low = float(options.get("clip", 0.4))  # type: ignore[arg-type]
    objective = read.gmpo(low, float(options.get("clip_high", low)), "anchor" in options)  # type: ignore[arg-type]
    for spread in (1.0, 0.1):
        for seed in range(3):
            d = examples(seed, spread)
            d = replace(d, advantage=d.advantage[:, :1].expand(d.mask.shape))
            torch.testing.assert_close(
                gradient_coefficients(method, d), gradient_of(objective, d), rtol=1e-9, atol=1e-9
            )


def test_gmpo_cuts_tokens_and_weighs_the_row_by_what_is_left() -> None:
    """log r = 1, cut to 0.4, and −0.2: G = e^0.1. The cut token has no gradient; at A < 0 it is not cut."""
    rows = (math.e, math.exp(-0.2))
    assert_pulls(make("gmpo"), (rows[0], 2.0, 0.0), (rows[1], 2.0, 2.0 * math.exp(0.1)))
    assert_pulls(make("gmpo"), (rows[0], -2.0, -2.0 * math.exp(0.4)), (rows[1], -2.0, -2.0 * math.exp(0.4)))


def test_dcpo_lets_unlikely_tokens_move_further() -> None:
    """ε = 0.16. p = 1: bounds ½ + ½√0.36 = 0.8 and ½ + ½√1.64 = 1.14; p = 0.04: ½ and ½ + ½√17 = 2.56."""
    method = make("dcpo", clip=0.16, clip_high=0.16, most=10.0)
    likely = {"target_logp": [[math.log(1.1), math.log(1.2), math.log(0.7)]], "closed_form": False}
    assert_pulls(method, (1.1, 1.0, 1.1), (1.2, 1.0, 0.0), (0.7, -1.0, 0.0), **likely)
    rare = {"target_logp": [[math.log(0.04 * w) for w in (2.5, 2.6, 0.51, 0.49, 11.0)]], "closed_form": False}
    assert_pulls(
        method, (2.5, 1.0, 2.5), (2.6, 1.0, 0.0), (0.51, -1.0, -0.51), (0.49, -1.0, 0.0), (11.0, -1.0, 0.0), **rare
    )


# --- prime-rl, verl ---------------------------------------------------------------------------------------


def test_kpop_bounds_likely_and_unlikely_tokens_by_their_divergence() -> None:
    """KL of two outcomes, from and to μ. μ = ½, π = ¾: ½ log(4/3) = 0.1438 and 0.1308; the same ratio at μ = 0.02:
    0.0019 and 0.0022. A tenfold ratio at 0.002 has 0.0136 and 0.0282: an unlikely token may move further."""
    method = make("icepop", kpop=0.14, low=0.0, high=0.0)
    for p, w, larger in ((0.5, 1.5, 0.5 * math.log(4 / 3)), (0.02, 1.5, 0.002215), (0.002, 10.0, 0.028215)):
        here = {"target_logp": math.log(p * w), "closed_form": False}
        assert_pulls(method, (w, 1.0, 0.0 if larger > 0.14 else w), **here)
        assert_pulls(make("icepop", kpop=larger * 1.001, low=0.0, high=0.0), (w, -1.0, -w), **here)
        assert_pulls(make("icepop", kpop=larger * 0.999, low=0.0, high=0.0), (w, -1.0, 0.0), **here)


def test_prime_rl_masks_by_probability_and_pulls_back() -> None:
    """π = 0.6 and μ = 0.3: w = 2, π − μ = 0.3 > 0.2. The penalty pulls with −2τ log w, masked or not."""
    back = 2e-3 * math.log(2.0)
    here = {"target_logp": math.log(0.6), "closed_form": False}
    assert_pulls(make("prime_rl"), (2.0, 1.0, -back), (2.0, -1.0, -2.0 - back), **here)
    assert_pulls(make("ipo"), (2.0, 1.0, -back), (2.0, -1.0, -back), **here)
    rare = {"target_logp": math.log(0.06), "closed_form": False}
    assert_pulls(make("prime_rl"), (2.0, 1.0, 2.0 - back), **rare)
    assert_pulls(make("prime_rl", tau=0.0), (1.3, 1.0, 0.0), (1.3, -1.0, -1.3), (0.7, -1.0, 0.0))  # a density


def test_every_preset_of_verl_is_there() -> None:
    from typing import get_args

    assert set(get_args(type(make("verl")).hyper_parameter_types()["preset"])) == set(PRESETS)
    assert len(PRESETS) == 18 + 1


def test_verls_mask_beside_a_clip_around_the_sampler() -> None:
    """Row 0 has w = 1.3, 1.001, of mean k3 0.0188: rejected. Row 1 has 1.01, 3.5 at A < 0: k3 0.62; row 2 is kept."""
    d = decisions([[1.3, 1.001], [1.01, 3.5], [1.1, 0.95]], [[1.0, 1.0], [1.0, -1.0], [1.0, -1.0]])
    pulls = gradient_coefficients(make("verl", preset="bypass_ppo_clip_k3_rs"), d)
    kept = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.1, -0.95]], dtype=torch.float64)
    torch.testing.assert_close(pulls, kept, rtol=1e-9, atol=1e-9)
    plain = gradient_coefficients(make("verl", preset="bypass_ppo_clip"), d)
    wanted = torch.tensor([[0.0, 1.001], [1.01, 0.0], [1.1, -0.95]], dtype=torch.float64)  # 3.5: the dual clip
    torch.testing.assert_close(plain, wanted, rtol=1e-9, atol=1e-9)


def test_tokens_that_verl_rejects_stay_in_the_denominator() -> None:
    """Rows of 2 tokens with A = 1; the second row's geometric mean is 1.1: rejected. The loss is −(r + r)/4, not /2."""
    d = decisions([[1.0, 1.0], [1.1, 1.1]], 1.0)
    loss = make("verl", preset="bypass_ppo_clip_geo_rs").policy_loss(d).loss
    (gradient,) = torch.autograd.grad((loss * aggregation_weights(d.mask, "token-mean", 2)).sum(), d.target_logp)
    torch.testing.assert_close(gradient, torch.tensor([[-0.25, -0.25], [0.0, 0.0]], dtype=torch.float64))


def test_presets_that_have_a_method_of_their_own_are_that_method() -> None:
    same = {
        "decoupled_token_is": make("tis", clip=0.2),
        "decoupled_seq_is": make("tis", clip=0.2, level="sequence"),
        "decoupled_token_icepop": make("icepop", clip=0.2),
        "bypass_pg_is": make("tis", level="sequence"),
        "bypass_pg_token_icepop": make("icepop"),
        "bypass_ppo_clip": make("ppo_clip"),
        "disabled": make("ppo_clip", anchor="proximal"),
    }
    for preset, method in same.items():
        d = examples(1, 1.0)
        mine = gradient_coefficients(make("verl", preset=preset, dual_clip=0.0), d)
        torch.testing.assert_close(mine, gradient_coefficients(method, d), rtol=1e-9, atol=1e-9)


def test_luspo_is_gspo_summed_over_the_tokens_of_a_completion() -> None:
    """TRL's loss is GSPO's per completion times its length: Dr. GRPO's aggregation, up to the longest length."""
    d = examples(0, 1.0)
    pulls = gradient_coefficients(make("gspo", clip=2e-3, clip_high=2.5e-3), d)
    length = d.mask.sum(1, keepdim=True)
    luspo = pulls / length * length / len(d.mask)  # mean over completions of (token mean × length)
    ours = pulls * aggregation_weights(d.mask, "seq-mean-token-sum-norm", 9)
    torch.testing.assert_close(9 * ours, luspo, rtol=1e-9, atol=1e-9)


# --- options of methods that were there -------------------------------------------------------------------


def test_a_weight_may_be_cut_on_both_sides() -> None:
    method = make("tis", low=0.5, cap=5.0)
    assert_pulls(method, (0.2, 2.0, 1.0), (0.7, 2.0, 1.4), (9.0, -2.0, -10.0))
    assert method.policy_loss(decisions([[0.2, 0.7, 9.0]], [[1.0]])).diagnostics["truncated"].tolist() == [[1, 0, 1]]
    with pytest.raises(UserError, match="tis: low must be 0"):
        make("tis", low=3.0, cap=2.0)


def test_one_token_that_went_too_far_rejects_its_completion() -> None:
    """k2 of w = e is ½; mean k3 is (e − 2)/3 = 0.24 there, and 0.5 − log 1.5 = 0.09 in the second row."""
    d = decisions([[math.e, 1.0, 1.0], [1.5, 1.5, 1.5]], [[1.0]])
    pulls = gradient_coefficients(make("k3_rejection", largest=0.4, delta=0.25), d)
    wanted = torch.tensor([[0.0, 0.0, 0.0], [1.5, 1.5, 1.5]], dtype=torch.float64)
    torch.testing.assert_close(pulls, wanted, rtol=1e-9, atol=1e-9)
    assert (gradient_coefficients(make("k3_rejection", largest=0.6, delta=0.25), d) != 0).all()
