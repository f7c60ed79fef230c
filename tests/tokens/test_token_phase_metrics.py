"""Metrics of a phase of tokens, recomputed on chains; steps, scores, and what ends a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chain_runs import GROUPS, PHASES, STEPS, H, phases, run
from torch import Tensor
from witness import MethodCalls

from staleharness.batch import Decisions
from staleharness.errors import Diverged


def weight(d: Decisions) -> Tensor:
    return (d.target_logp - d.behaviour_logp).exp()


def test_phase_metrics_are_means_extremes_or_the_first_step(witness: MethodCalls) -> None:
    for m, asked in zip(run(witness, {"anchor": "recompute"}), phases(witness.asked), strict=True):
        tv = [float(0.5 * (weight(d) - 1.0).abs().mean()) for d in asked]
        assert m["tv"] == pytest.approx(np.mean(tv), rel=1e-4)
        assert m["tv_data"] == pytest.approx(tv[0], rel=1e-4, abs=1e-6)
        assert m["weight_max"] == pytest.approx(max(float(weight(d).max()) for d in asked), rel=1e-4)
        assert m["weight_min"] == pytest.approx(min(float(weight(d).min()) for d in asked), rel=1e-4)
        sequence = [weight(d).prod(1) for d in asked]
        chi2 = np.mean([float(w.square().mean()) - 1.0 for w in sequence])
        assert m["chi2_sequence"] == pytest.approx(chi2, rel=1e-3, abs=1e-5)
        loss = np.mean([float(-(weight(d) * d.advantage).mean()) for d in asked])
        assert m["policy_loss"] == pytest.approx(loss, abs=1e-6)


def test_lag_is_in_phases_and_gradient_steps_at_the_phase_start(witness: MethodCalls) -> None:
    for phase, m in enumerate(run(witness, lag="geometric:0.3", capacity=4)):
        lag = np.concatenate([d.lag.flatten().numpy() for d in phases(witness.asked)[phase][:GROUPS]])
        assert m["lag_mean"] == pytest.approx(lag.mean())
        assert m["gradient_lag_mean"] == pytest.approx(lag.mean() * STEPS)
        assert m["lag_p95"] == np.sort(lag)[int(np.ceil(0.95 * lag.size)) - 1]
        assert m["lag_histogram"] == np.bincount(lag.astype(int)).tolist()
        assert m["steps"] == (phase + 1) * STEPS == m["gradient_steps"]


def test_clipped_tokens_are_those_with_an_advantage_and_no_gradient(witness: MethodCalls) -> None:
    """A method that never pulls has clipped whatever had an advantage; plain weighting clips nothing."""
    for m, asked in zip(run(witness, {"mute": True}), phases(witness.asked), strict=True):
        for key, side in (("clipped", 0), ("clipped_positive", 1), ("clipped_negative", -1)):
            share = [
                float(((d.advantage.sign() == side) if side else (d.advantage != 0)).float().mean()) for d in asked
            ]
            assert m[key] == pytest.approx(np.mean(share), abs=1e-6), key
    assert m["clipped_last"] == pytest.approx(share_of(asked[-1])) and m["clipped_first"] == pytest.approx(
        share_of(asked[0])
    )
    assert all(m["clipped"] == 0.0 for m in run(witness))


def share_of(d: Decisions) -> float:
    return float((d.advantage != 0).float().mean())


def test_without_a_policy_gradient_entropy_moves_by_its_bonus_alone(witness: MethodCalls) -> None:
    still = [m["entropy"] for m in run(witness, {"mute": True})]
    p = torch.sigmoid(witness.watched[0])
    assert still[0] == pytest.approx(float(-(p * p.log() + (1 - p) * (1 - p).log()).mean()), rel=1e-5)
    grown = [m["entropy"] for m in run(witness, {"mute": True}, entropy_coef=0.1, learning_rate=0.01)]
    assert len(set(still)) == 1 and still[0] < grown[0] < grown[-1]


def test_the_bonus_is_on_the_mean_entropy(witness: MethodCalls) -> None:
    """d/dz of the entropy of a bit with logit z is −z p (1 − p)."""
    one = {"epochs": 1, "minibatches": 1, "steps": PHASES, "max_grad_norm": 1e9}
    metrics = run(witness, {"mute": True}, entropy_coef=0.3, **one)
    for m, z in zip(metrics, witness.watched, strict=True):
        p = z.sigmoid()
        assert m["grad_norm"] == pytest.approx(0.3 / H * float((z * p * (1 - p)).norm()), rel=1e-4)


def test_rates_anneal_where_the_run_says_so_and_steps_follow(witness: MethodCalls) -> None:
    rates = [m["learning_rate"] for m in run(witness, anneal_learning_rate=True)]
    assert rates == pytest.approx([0.2, 0.15, 0.1, 0.05])
    assert {m["learning_rate"] for m in run(witness)} == {0.2}
    one = {"anneal_learning_rate": True, "epochs": 1, "minibatches": 1, "steps": PHASES, "lag": "fixed:0"}
    run(witness, **one)
    first = (witness.watched[1] - witness.watched[0]).abs()
    assert float(first.max()) == pytest.approx(0.2, rel=1e-3)  # Adam's first step is as long as its rate
    behind = run(witness, lag="fixed:2", step_size="inverse_lag")
    assert [m["step_scale"] for m in behind] == [1.0, 1.0, 0.5, 0.5]


def test_a_gradient_longer_than_the_run_allows_is_cut_and_said_whole(witness: MethodCalls) -> None:
    """ε of Adam makes its first step g/(|g| + ε): with ε far above the gradient it is g/ε, of the clipped gradient."""
    one = {"epochs": 1, "minibatches": 1, "steps": 2, "adam_epsilon": 1e3, "learning_rate": 1e3, "baseline": "none"}
    norms, moves = [], []
    for most in (1e9, 1e-3):
        metrics = run(witness, max_grad_norm=most, **one)
        norms.append(metrics[0]["grad_norm"])
        moves.append(float(torch.linalg.vector_norm(witness.watched[1] - witness.watched[0])))
    assert norms[0] == norms[1] > 1e-2
    assert moves[0] == pytest.approx(norms[0], rel=1e-2) and moves[1] == pytest.approx(1e-3, rel=1e-2)


def test_a_loss_that_is_not_finite_is_said_with_its_step(witness: MethodCalls) -> None:
    with pytest.raises(Diverged, match="policy_loss is not finite at gradient step 2 of phase 1"):
        run(witness, {"breaks_at": STEPS + 2})


def test_a_step_that_is_too_long_is_said_with_its_phase(witness: MethodCalls) -> None:
    with pytest.raises(Diverged, match="a parameter is not finite after phase 0"):
        run(witness, learning_rate=1e39, epochs=1, minibatches=1, steps=PHASES)


def test_scores_are_of_the_policy_after_its_phase(witness: MethodCalls) -> None:
    """Two evaluations of four phases: after the second and the fourth."""
    metrics = run(witness)
    assert [m["eval_sampled"] is not None for m in metrics] == [False, True, False, True]
    after_second = torch.sigmoid(phases(witness.watched)[2][0].double()).numpy()
    ways = np.stack(np.meshgrid(*[[0, 1]] * H, indexing="ij"), -1).reshape(-1, H)
    chance = np.where(ways == 1, after_second, 1.0 - after_second).prod(1)
    assert metrics[1]["eval_sampled"] == pytest.approx(float(chance[ways.sum(1) >= 5].sum()), rel=1e-6)
    assert metrics[1]["eval_deterministic"] == float((after_second >= 0.5).sum() >= 5)
    assert metrics[1]["eval_sampled"] < 1.0
