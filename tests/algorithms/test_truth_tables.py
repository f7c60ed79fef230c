"""Each algorithm on numbers worked out by hand.

A row of a table is: ratio w = π/μ, advantage A, and the coefficient that ∇log π gets (−∂loss/∂log π).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_examples import assert_pulls, make

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions
from staleharness.errors import UserError
from staleharness.objectives import gae, vtrace
from staleharness.testing import decisions, example_decisions, example_trajectories, gradient_coefficients, variants

E = math.e


def answer(algorithm: Algorithm, d: Decisions) -> tuple[list[float], dict[str, list[float]]]:
    """Loss and diagnostics of the first row, as numbers."""
    said = algorithm.policy_loss(replace(d, state=algorithm.init_state()))
    return said.loss[0].tolist(), {name: x[0].tolist() for name, x in said.diagnostics.items()}


LOSSES: dict[str, tuple[list[float], list[float], dict[str, Any], list[float], dict[str, list[float]]]] = {
    # The smaller of two objectives: 1.2·2 = 2.4, 1.5·(−2) = −3, 0.5·2 = 1, 0.8·(−2) = −1.6
    "ppo_clip": ([1.5, 1.5, 0.5, 0.5], [2.0, -2.0, 2.0, -2.0], {}, [-2.4, 3.0, -1.0, 1.6], {"clipped": [1, 0, 0, 1]}),
    # w = 1.5, A = 2: 3 − 2·0.25/0.4 = 1.75. A = −2: −3 − 1.25 = −4.25
    "spo": ([1.5, 1.5], [2.0, -2.0], {}, [-1.75, 4.25], {"ratio_deviation": [0.5, 0.5]}),
    # log π = −1: −ρ·A·log π = 0.5·2 = 1, and 1·2 = 2 where w = 3 is truncated
    "impala": ([0.5, 3.0], [2.0, 2.0], {"target_logp": -1.0}, [1.0, 2.0], {"rho_truncated": [0, 1]}),
    # w = 1.21, d = 2: r = u = 1.1. d = 1: r = 1.21, clipped to 1.2, u = 1. A = 2
    "a3po": (
        *([1.21, 1.21], [2.0, 2.0], {"lag": [[2.0, 1.0]]}),
        *([-2.42, -2.4], {"behaviour_weight": [1.1, 1.0], "clipped": [0, 1]}),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_diagnostics_by_hand(name: str) -> None:
    ratio, advantage, given, loss, diagnostics = LOSSES[name]
    found, said = answer(make(name), decisions([ratio], [advantage], **given))
    assert found == pytest.approx(loss)
    assert {key: said[key] for key in diagnostics} == {key: pytest.approx(x) for key, x in diagnostics.items()}


# --- PPO-clip: the four corners ---------------------------------------------------------------------------


def test_ppo_clips_only_in_the_direction_of_the_advantage() -> None:
    assert_pulls(
        make("ppo_clip", clip=0.2),
        (1.5, +2.0, 0.0),  # above 1.2 and wanted up: clipped
        (1.5, -2.0, -3.0),  # above, wanted down: 1.5 · −2
        (0.5, +2.0, +1.0),  # below 0.8, wanted up: 0.5 · 2
        (0.5, -2.0, 0.0),  # below and wanted down: clipped
        (1.1, +2.0, +2.2),  # inside
        (0.9, -2.0, -1.8),
    )


@pytest.mark.parametrize(
    ("anchor", "pulls"),
    [
        ("behaviour", [0.0, 0.0, -6.0]),  # r = w = 1.5, 3, 3
        ("proximal", [2.0, 0.0, -3.0]),  # r = w/u = 1, 1.5, 1.5
        ("decoupled", [3.0, 0.0, -6.0]),  # the same, times u = 1.5, 2, 2
    ],
)
def test_the_anchor_says_what_is_clipped_and_what_is_weighted(anchor: str, pulls: list[float]) -> None:
    rows = zip([1.5, 3.0, 3.0], [2.0, 2.0, -2.0], pulls, strict=True)
    assert_pulls(make("ppo_clip", anchor=anchor), *rows, proximal_ratio=[[1.5, 2.0, 2.0]])


# --- PPO-KL -----------------------------------------------------------------------------------------------


def test_a_penalty_pulls_back_where_the_clip_is_silent() -> None:
    """log w = 1, κ = ½. k2 pulls with κ·log w = ½, k3 with κ(w − 1)."""
    assert_pulls(make("ppo_kl", kl_coef=0.5, estimator="k2"), (E, 2.0, -0.5))
    assert_pulls(make("ppo_kl", kl_coef=0.5, estimator="k3"), (E, 2.0, -0.5 * (E - 1)))


def test_the_penalty_is_subtracted_from_the_plain_surrogate() -> None:
    assert_pulls(make("ppo_kl", clip=0.0, kl_coef=0.5, estimator="k2"), (E, 2.0, 2 * E - 0.5))
    assert_pulls(make("ppo_kl", clip=0.0, kl_coef=0.5, estimator="k3"), (E, 2.0, 2 * E - 0.5 * (E - 1)))
    assert_pulls(make("ppo_kl", clip=0.0, kl_coef=0.5, estimator="analytic"), (E, 2.0, 2 * E - 0.5))


def test_the_penalty_has_the_reference_asked_for() -> None:
    """w = u = e: the policy stands on the proximal one, so that its penalty is at rest."""
    given = {"proximal_ratio": [[E]]}
    for estimator in ("k2", "k3", "analytic"):
        algorithm = make("ppo_kl", clip=0.0, reference="proximal", estimator=estimator)
        assert algorithm.proximal == "recompute"
        assert_pulls(algorithm, (E, 2.0, 2 * E), **given)
    assert_pulls(make("ppo_kl", clip=0.0, reference="behaviour", estimator="k2"), (E, 2.0, 2 * E - 1), **given)


def test_the_loss_of_ppo_kl_by_hand() -> None:
    """w = e, A = 2: clipped objective 2.4, k2 = ½, k3 = e − 2, κ = 1."""
    d = decisions([[E]], [[2.0]])
    for estimator, kl in (("k2", 0.5), ("k3", E - 2), ("analytic", 0.5)):
        loss, diagnostics = answer(make("ppo_kl", estimator=estimator), d)
        assert loss == pytest.approx([kl - 2.4])
        assert diagnostics["kl"] == pytest.approx([kl])


@pytest.mark.parametrize(("kl", "after"), [(0.021, 3.0), (0.019, 2.0), (0.006, 2.0), (0.004, 1.0)])
def test_the_adaptive_coefficient_follows_its_target(kl: float, after: float) -> None:
    """target 0.01, so above 0.02 the coefficient grows by half and below 0.005 it halves."""
    adaptive = make("ppo_kl", kl_coef=2.0, adaptive=True, estimator="k3")
    assert adaptive.next_state(adaptive.init_state(), {"kl": kl}) == {"kl_coef": after}
    fixed = make("ppo_kl", kl_coef=2.0, estimator="k3")
    assert fixed.next_state(fixed.init_state(), {"kl": kl}) == {"kl_coef": 2.0}


def test_the_loss_uses_the_coefficient_of_the_state() -> None:
    d = replace(decisions([[E]], [[2.0]]), state={"kl_coef": 10.0})
    pull = gradient_coefficients(make("ppo_kl", estimator="k2", adaptive=True), d)
    torch.testing.assert_close(pull, torch.tensor([[-10.0]], dtype=torch.float64))


def test_an_analytic_kl_without_a_closed_form_is_refused() -> None:
    d = replace(decisions([[1.0]], [[1.0]]), analytic_kl=None)
    with pytest.raises(UserError, match="use auto, k2 or k3"):
        gradient_coefficients(make("ppo_kl", estimator="analytic"), d)


# --- SPO --------------------------------------------------------------------------------------------------


def test_spo_turns_round_at_its_vertex() -> None:
    """w(A − |A|(w − 1)/ε) with ε = 0.2."""
    assert_pulls(
        make("spo", epsilon=0.2),
        (1.0, +2.0, +2.0),  # at w = 1 the plain gradient
        (1.2, +2.0, 0.0),  # the vertex, 1 + ε
        (0.8, -2.0, 0.0),  # the vertex, 1 − ε
        (1.5, +2.0, -4.5),  # 1.5·(2 − 2·0.5/0.2): back, where PPO is silent
        (0.5, -2.0, +1.5),  # 0.5·(−2 + 5)
        (0.5, +2.0, +3.5),  # 0.5·(2 + 5)
        (1.5, -2.0, -10.5),  # 1.5·(−2 − 5)
    )


# --- IMPALA -----------------------------------------------------------------------------------------------


def test_impala_truncates_the_weight_from_above_only() -> None:
    assert_pulls(make("impala"), (0.5, 2.0, 1.0), (1.0, 2.0, 2.0), (3.0, 2.0, 2.0), (3.0, -2.0, -2.0))
    assert_pulls(make("impala", pg_rho_bar=2.0), (0.5, 2.0, 1.0), (3.0, 2.0, 4.0))


def test_impala_uses_vtrace_at_every_step_and_raw_advantages() -> None:
    algorithm, t = make("impala", rho_bar=2.0, c_bar=0.5, advantage_form="vs"), example_trajectories()
    assert algorithm.realign_every == "step" and algorithm.normalise_advantage is False
    said, expected = algorithm.targets(t), vtrace(t, 2.0, 0.5, "vs")
    assert torch.equal(said.advantage, expected.advantage)
    assert torch.equal(said.value_target, expected.value_target)


# --- VACO -------------------------------------------------------------------------------------------------


def test_vaco_filters_nothing_within_its_total_variation() -> None:
    """mean|w − 1| = 0.15, D_TV = 0.075 ≤ δ/2 = 0.1. A clip would have stopped the first and the last."""
    assert_pulls(make("vaco"), (1.3, 2.0, 2.6), (1.0, 2.0, 2.0), (1.0, -2.0, -2.0), (0.7, -2.0, -1.4))


def test_vaco_filters_decisions_that_raise_total_variation() -> None:
    """mean|w − 1| = ½, D_TV = ¼ > 0.1. Filtered: A sign(w − 1) > 0."""
    assert_pulls(
        make("vaco"),
        (1.5, +2.0, 0.0),  # above 1, wanted up
        (0.5, +2.0, +1.0),
        (1.5, -2.0, -3.0),
        (0.5, -2.0, 0.0),  # below 1, wanted down
    )


def test_vaco_filters_small_deviations_but_no_ratio_of_one() -> None:
    """mean|w − 1| = (0.01 + 0 + 0 + 0.9)/4 = 0.2275, D_TV = 0.11375 > 0.1."""
    assert_pulls(make("vaco"), (1.01, 2.0, 0.0), (1.0, 2.0, 2.0), (1.0, -2.0, -2.0), (1.9, 2.0, 0.0))


def test_the_threshold_is_on_half_the_mean_deviation() -> None:
    """One of four decisions off by x: D_TV = x/8, which passes 0.1 at x = 0.8."""
    assert_pulls(make("vaco"), (1.79, 1.0, 1.79), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    assert_pulls(make("vaco"), (1.81, 1.0, 0.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    assert_pulls(make("vaco", delta=0.3), (1.81, 1.0, 1.81), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))


def test_padding_does_not_dilute_total_variation() -> None:
    """Over the two decisions D_TV = 0.15, over all four columns it would be 0.075."""
    rows = ((1.6, 1.0, 0.0), (1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, 1.0, 0.0))
    assert_pulls(make("vaco"), *rows, mask=[[1.0, 1.0, 0.0, 0.0]])


def test_filtered_decisions_are_reported_and_have_no_loss() -> None:
    loss, diagnostics = answer(make("vaco"), decisions([[1.5, 0.5, 1.5, 0.5]], [[2.0, 2.0, -2.0, -2.0]]))
    assert loss == pytest.approx([0.0, -1.0, 3.0, 0.0])
    assert diagnostics == {"clipped": [1.0, 0.0, 0.0, 1.0], "filter_active": [1.0] * 4}
    _, diagnostics = answer(make("vaco"), decisions([[1.1, 0.9]], [[2.0, -2.0]]))
    assert diagnostics == {"clipped": [0.0, 0.0], "filter_active": [0.0, 0.0]}


def test_the_entropy_variant_shifts_the_advantage() -> None:
    """α = ½, log π = −3: Ã = −1 + 1.5 = ½, which is wanted up although A is wanted down."""
    assert_pulls(make("vaco", entropy_coef=0.5), (1.0, -1.0, 0.5), target_logp=-3.0)
    assert_pulls(make("vaco", entropy_coef=0.5), (1.5, -1.0, 0.0), target_logp=-3.0)
    assert_pulls(make("vaco", entropy_coef=0.0), (1.5, -1.0, -1.5), target_logp=-3.0)


def test_the_other_trust_regions_of_vaco_are_the_other_methods() -> None:
    d = example_decisions(dtype=torch.float64)
    for switch, twin in (
        ("clip", make("ppo_clip", clip=0.3)),
        ("spo", make("spo", epsilon=0.3)),
        ("kl", make("ppo_kl", clip=0.0)),
        ("none", make("ppo_clip", clip=math.inf)),
    ):
        algorithm = make("vaco", trust_region=switch, delta=0.3)
        torch.testing.assert_close(gradient_coefficients(algorithm, d), gradient_coefficients(twin, d))
    assert_pulls(make("vaco", trust_region="kl", kl_coef=0.5, kl_estimator="k3"), (E, 2.0, 2 * E - 0.5 * (E - 1)))


def test_vacos_advantage_and_value_target_have_own_estimators() -> None:
    t = example_trajectories()
    by_gae, by_vtrace = gae(t), vtrace(t, 2.0, 0.5, "vs")
    estimators = {"gae": by_gae, "vtrace": by_vtrace}
    for advantage in ("gae", "vtrace"):
        for value_target in ("same", "gae", "vtrace"):
            said = make(
                "vaco", advantage=advantage, value_target=value_target, rho_bar=2.0, c_bar=0.5, advantage_form="vs"
            ).targets(t)
            source = advantage if value_target == "same" else value_target
            assert torch.equal(said.advantage, estimators[advantage].advantage)
            assert torch.equal(said.value_target, estimators[source].value_target)
    assert not torch.equal(by_gae.advantage, by_vtrace.advantage)


# --- decoupled PPO ----------------------------------------------------------------------------------------


def test_decoupled_ppo_clips_by_one_policy_weights_by_another() -> None:
    """u = π_prox/μ = 2 throughout, so r = w/2."""
    assert_pulls(
        make("decoupled_ppo"),
        (2.2, +2.0, +4.4),  # r = 1.1, inside: the full wA
        (3.0, +2.0, 0.0),  # r = 1.5, clipped
        (3.0, -2.0, -6.0),  # r = 1.5, wanted down: 2 · 1.5 · −2
        (1.0, +2.0, +2.0),  # r = 0.5, although w = 1
        (1.0, -2.0, 0.0),
        proximal_ratio=2.0,
    )


def test_the_weight_cap_keeps_a_gradient() -> None:
    """cap 2. w = u = 4: r = 1 and the weight falls from 4 to 2. w = 4, u = 1: r = 4, weight from 1 to ½."""
    for cap, pulls in ((2.0, (2.0, -2.0, 1.5)), (0.0, (4.0, -4.0, 1.5)), (100.0, (4.0, -4.0, 1.5))):
        rows = zip((4.0, 4.0, 1.5), (1.0, -1.0, 1.0), pulls, strict=True)
        assert_pulls(make("decoupled_ppo", weight_cap=cap), *rows, proximal_ratio=[[4.0, 1.0, 1.5]])
    _, diagnostics = answer(make("decoupled_ppo", weight_cap=2.0), decisions([[4.0]], [[1.0]], proximal_ratio=4.0))
    assert diagnostics["behaviour_weight"] == pytest.approx([2.0])


def test_decoupled_ppo_asks_for_its_anchor() -> None:
    assert make("decoupled_ppo").proximal == "recompute"
    shadow = make("decoupled_ppo", proximal="ewma", ewma_decay=0.99)
    assert (shadow.proximal, shadow.ewma_decay) == ("ewma", 0.99)


# --- A-3PO ------------------------------------------------------------------------------------------------


def test_a3po_widens_its_clip_with_lag() -> None:
    """Bounds (1 ± 0.2)^d: d = 1 [0.8, 1.2], d = 2 [0.64, 1.44], d = 5 [0.328, 2.488]."""
    a3po = make("a3po")
    assert_pulls(a3po, (1.1, 2.0, 2.2), (1.3, 2.0, 0.0), (1.3, -2.0, -2.6), (0.7, -2.0, 0.0), lag=1.0)
    assert_pulls(a3po, (1.4, 2.0, 2.8), (1.5, 2.0, 0.0), (0.65, -2.0, -1.3), (0.63, -2.0, 0.0), lag=2.0)
    assert_pulls(a3po, (2.4, 2.0, 4.8), (2.5, 2.0, 0.0), (0.33, -2.0, -0.66), (0.32, -2.0, 0.0), lag=5.0)


def test_a3po_takes_the_lag_of_each_decision() -> None:
    rows = ((1.4, 2.0, 0.0), (1.4, 2.0, 0.0), (1.4, 2.0, 2.8), (1.4, 2.0, 2.8))
    assert_pulls(make("a3po"), *rows, lag=[[0.0, 1.0, 2.0, 5.0]], gradient_lag=0.0)
    assert_pulls(make("a3po", lag_unit="gradient_steps"), *rows, lag=1.0, gradient_lag=[[0.0, 1.0, 2.0, 5.0]])


def test_at_lag_zero_the_code_is_ppo_and_the_paper_never_clips() -> None:
    assert_pulls(make("a3po", d0="areal"), (1.5, 2.0, 0.0), (0.5, -2.0, 0.0), (1.1, 2.0, 2.2), lag=0.0)
    assert_pulls(make("a3po", d0="paper"), (1.5, 2.0, 3.0), (0.5, -2.0, -1.0), (1.1, 2.0, 2.2), lag=0.0)
    assert_pulls(make("a3po", d0="paper"), (1.5, 2.0, 0.0), (1.1, 2.0, 2.2), lag=1.0)


@pytest.mark.parametrize(
    ("weight", "cap", "pull"),
    [
        ("raw", 1.5, -4.0),  # u r A = 2·2·(−1)
        ("none", 1.5, -2.0),  # r A
        ("truncate", 1.5, -3.0),  # 1.5·2·(−1)
        ("truncate", 5.0, -4.0),
        ("mask", 1.5, 0.0),
        ("mask", 5.0, -4.0),
    ],
)
def test_the_behaviour_weight_of_a3po(weight: str, cap: float, pull: float) -> None:
    """w = 4, d = 2: r = 2 and u = 2; A < 0, so that nothing is clipped."""
    assert_pulls(make("a3po", behaviour_weight=weight, weight_cap=cap), (4.0, -1.0, pull), lag=2.0)


def test_linear_interpolation_mixes_probabilities() -> None:
    """d = 2: π_prox = (μ + π)/2, u = (1 + w)/2, r = 2w/(1 + w): w = 1.48, 1.6, 3 give r = 1.19, 1.23, 1.5."""
    linear = make("a3po", interpolation="linear")
    assert_pulls(linear, (1.48, 2.0, 2.96), (1.6, 2.0, 0.0), (3.0, -1.0, -3.0), lag=2.0)
    assert_pulls(make("a3po"), (1.48, 2.0, 0.0), lag=2.0)
    _, diagnostics = answer(linear, decisions([[3.0]], [[-1.0]], lag=5.0))
    assert diagnostics["behaviour_weight"] == pytest.approx([2.6])  # 1/5 + 4/5 · 3
    assert_pulls(linear, (1.1, 2.0, 2.2), (1.3, 2.0, 0.0), lag=1.0)


# --- all of them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [a for name in ALGORITHMS for a in variants(ALGORITHMS[name])], ids=str)
def test_only_methods_with_a_proximal_policy_read_it(algorithm: Algorithm) -> None:
    pulls = []
    for fresh in (False, True):  # stale rows are all rejected by narrow windows, wherever the proximal policy is
        d = example_decisions(on_policy=fresh, dtype=torch.float64)
        elsewhere = replace(d, proximal_logp=d.proximal_logp + 0.7)
        pulls.append((gradient_coefficients(algorithm, d), gradient_coefficients(algorithm, elsewhere)))
    same = all(torch.equal(x, y) for x, y in pulls)
    if algorithm.proximal == "behaviour":
        assert same
    elif algorithm != make("ppo_kl", reference="proximal"):  # whose closed form does not ask `proximal_logp`
        assert not same


def test_truly_ppo_pulls_back_what_has_left_its_region() -> None:
    """Wang et al. 2019, eq. 16, with K = ½ log² r (the stand-in of the records) and δ = 0.03: r = 1.3 has K = 0.034."""
    method = ALGORITHMS["truly_ppo"](delta=0.03, alpha=5.0)
    d = decisions([[1.3, 1.3, 1.1, 0.75, 0.75]], [[1.0, -1.0, 1.0, -1.0, 1.0]])
    log = d.target_logp.detach() - d.behaviour_logp
    r = log.exp()
    wanted = r * d.advantage  # within the region, or where the step has not helped yet
    wanted[0, 0] -= 5.0 * log[0, 0]  # K ≥ δ and rA > A; ∂K/∂log π = log r
    wanted[0, 3] -= 5.0 * log[0, 3]
    torch.testing.assert_close(gradient_coefficients(method, d), wanted)
    assert method.policy_loss(d).diagnostics["rolled_back"].tolist() == [[1.0, 0.0, 0.0, 1.0, 0.0]]
    tr = ALGORITHMS["truly_ppo"](rule="tr", delta=0.03)
    silent = r * d.advantage
    silent[0, 0] = silent[0, 3] = 0.0
    torch.testing.assert_close(gradient_coefficients(tr, d), silent)


@pytest.mark.parametrize("rule", ["truly", "tr"])
def test_truly_ppo_lets_a_step_that_has_not_helped_go_on(rule: str) -> None:
    """A = 0 gains nothing by any ratio, rA = A, and r = 1 has gained nothing yet, however large K is."""
    method = ALGORITHMS["truly_ppo"](rule=rule, delta=0.03)
    d = decisions([[1.3, 1.0]], [[0.0, 2.0]])
    anywhere = replace(d, analytic_kl=lambda anchor: 0.05 + d.target_logp - d.target_logp.detach())
    torch.testing.assert_close(gradient_coefficients(method, anywhere), torch.tensor([[0.0, 2.0]], dtype=torch.float64))


def test_ppo_rb_turns_its_slope_outside_the_clip() -> None:
    """Wang et al. 2019, eq. 7: beyond 1 ± ε the slope of r is −α, and the objective has no step there."""
    method = ALGORITHMS["truly_ppo"](rule="rollback", alpha=0.3, clip=0.2)
    d = decisions([[1.5, 1.1, 0.5, 0.5, 1.2]], [[2.0, 2.0, -1.0, 1.0, 1.0]])
    wanted = torch.tensor([[-0.3 * 1.5 * 2.0, 1.1 * 2.0, -0.3 * 0.5 * -1.0, 0.5, 1.2]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(method, d), wanted)
    loss = method.policy_loss(d).loss
    assert loss[0, 0].item() == pytest.approx(-(-0.3 * 1.5 + 1.3 * 1.2) * 2.0)


def test_espo_weighs_by_the_ratio_and_stops_by_its_deviation() -> None:
    method = ALGORITHMS["espo"](delta=0.25)
    d = decisions([[1.5, 0.9]], [[1.0, -1.0]], mask=[[1.0, 1.0]])
    torch.testing.assert_close(gradient_coefficients(method, d), torch.tensor([[1.5, -0.9]], dtype=torch.float64))
    assert method.stop(d) == "phase"  # (0.5 + 0.1) / 2 = 0.3
    assert method.stop(replace(d, mask=torch.tensor([[0.0, 1.0]], dtype=torch.float64))) == "no"
    near = ALGORITHMS["espo"](delta=0.31)
    assert near.stop(d) == "no" and ALGORITHMS["espo"](every="epoch").stop(d) == "epoch"
