"""Losses as systems and recent papers have them: each against its objective, read literally and differentiated exactly
by complex steps, and against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import objective_readings as read
import pytest
import torch
from method_examples import examples, make
from objective_readings import Objective, gradient_of

from staleharness.algorithm import Algorithm
from staleharness.errors import UserError
from staleharness.testing import CHECKS, decisions, gradient_coefficients

CASES: list[tuple[Algorithm, Objective]] = [
    (make("ppo_clip", dual_clip=1.3), read.dual_clip(1.3)),
    (make("ppo_clip", dual_clip=1.3, anchor="proximal"), read.dual_clip(1.3, "proximal")),
    (make("ppo_clip", dual_clip=3.0, anchor="decoupled"), read.dual_clip(3.0, "decoupled")),
    (make("sapo"), read.sapo(1.0, 1.05)),
    (make("sapo", tau_positive=2.5, tau_negative=2.0, anchor="proximal"), read.sapo(2.5, 2.0, True)),
]
of_each = pytest.mark.parametrize(("algorithm", "objective"), CASES, ids=[str(a) for a, _ in CASES])


@of_each
def test_the_gradient_is_that_of_the_objective_as_written(algorithm: Algorithm, objective: Objective) -> None:
    plain = []
    for spread in (1.0, 0.1):
        for seed in range(3):
            d = examples(seed, spread)
            pull = gradient_coefficients(algorithm, d)
            torch.testing.assert_close(pull, gradient_of(objective, d), rtol=1e-9, atol=1e-9)
            plain.append(torch.allclose(pull, (d.target_logp - d.behaviour_logp).detach().exp() * d.advantage * d.mask))
    assert not all(plain)


@of_each
def test_options_away_from_the_defaults_keep_the_contract(algorithm: Algorithm, objective: Objective) -> None:
    for check in CHECKS:
        check(algorithm)


@of_each
def test_clipped_says_which_decisions_have_no_gradient(algorithm: Algorithm, objective: Objective) -> None:
    for spread in (1.0, 0.1):
        d = replace(examples(0, spread), state=algorithm.init_state())
        said = algorithm.policy_loss(d).diagnostics.get("clipped", torch.zeros_like(d.mask))
        silent = (gradient_coefficients(algorithm, d) == 0) & (d.mask == 1)
        if algorithm.policy_gradient:
            assert torch.equal((said == 1) & (d.mask == 1), silent)


def by_hand(algorithm: Algorithm, *rows: tuple[float, float, float], **given: object) -> None:
    """Rows are w = π/μ, A and the coefficient of ∇log π, all in one completion."""
    d = decisions([[w for w, _, _ in rows]], [[a for _, a, _ in rows]], **given)
    wanted = torch.tensor([[c for _, _, c in rows]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(algorithm, d), wanted, rtol=1e-9, atol=1e-9)


# --- dual clip --------------------------------------------------------------------------------------------


def test_dual_clip_ends_the_pull_of_bad_decisions_far_above() -> None:
    """c = 3: at w = 4 and A = −2 the objective is −6, not −8, and flat; good decisions know nothing of it."""
    method = make("ppo_clip", dual_clip=3.0)
    by_hand(method, (4.0, -2.0, 0.0), (2.5, -2.0, -5.0), (4.0, 2.0, 0.0), (0.5, -2.0, 0.0), (1.1, 2.0, 2.2))
    by_hand(make("ppo_clip", clip=4.0, dual_clip=3.0), (4.0, 2.0, 8.0), (4.0, -2.0, 0.0))
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
    by_hand(method, (far, 2.0, 1.5 * far), (half, -2.0, -1.5 * half), (1.0, 2.0, 2.0), (1.0, -2.0, -2.0))
    answer = method.policy_loss(decisions([[far, half]], [[2.0, -2.0]]))
    assert answer.loss[0].tolist() == pytest.approx([-6.0, 3.0], abs=1e-12)  # 4·¾·2; 4/2·¾·2
    assert answer.diagnostics["gate"].tolist() == [[pytest.approx(0.75), pytest.approx(0.75)]]


@pytest.mark.parametrize("key", ["tau_positive", "tau_negative"])
def test_a_gate_without_width_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"sapo: {key} must be above 0"):
        make("sapo", **{key: 0.0})
