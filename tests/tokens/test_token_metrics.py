"""Metrics of a minibatch of tokens, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rounds import EACH, GROUPS, PHASE, Policies, learner, round_of

from staleharness.batch import Completions
from staleharness.tokens.token_metrics import round_metrics


def test_on_policy_weights_are_one_exactly_in_the_first_step(policy: Policies) -> None:
    made = learner(policy)
    report, _ = made.train(round_of(made.policy, drift=0.0), PHASE)
    for key, value in {"tv": 0.0, "ess": 1.0, "weight_max": 1.0, "weight_min": 1.0, "kl_k3": 0.0, "chi2": 0.0}.items():
        assert report[key] == value, key


def test_a_step_without_a_decision_counts_as_on_policy(policy: Policies) -> None:
    made = learner(policy, mask_truncated=True, minibatches=2, steps=2)
    data = round_of(made.policy, drift=0.0)
    report, _ = made.train(replace(data, truncated=torch.arange(GROUPS * EACH) >= GROUPS * EACH // 2), PHASE)
    assert report["untaught_steps"] == 0.5
    for name in ("ess", "ess_sequence", "weight_mean", "weight_sequence_mean", "weight_max", "weight_min"):
        assert report[name] == 1.0, name
    for name in ("tv", "kl_k1", "kl_k3", "chi2", "chi2_sequence", "weight_std", "weight_sequence_std"):
        assert report[name] == 0.0, name


def test_the_weights_said_of_a_minibatch_are_raw_and_by_hand(policy: Policies) -> None:
    made = learner(policy)
    data = round_of(made.policy)
    with torch.no_grad():
        logp = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    valid = data.mask.numpy().astype(bool)
    log_w = (logp - data.behaviour_logp).double().numpy()
    w = np.exp(log_w[valid])
    sequence = np.exp(np.where(valid, log_w, 0.0).sum(1))
    report, _ = made.train(data, PHASE)
    wanted = {
        "weight_mean": w.mean(),
        "weight_max": w.max(),
        "weight_min": w.min(),
        "weight_std": w.std(),
        "tv": 0.5 * np.abs(w - 1).mean(),
        "chi2": (w**2).mean() - 1,
        "kl_k1": -log_w[valid].mean(),
        "kl_k3": (w - 1 - log_w[valid]).mean(),
        "ess": w.sum() ** 2 / (w**2).sum() / w.size,
        "weight_sequence_max": sequence.max(),
        "weight_sequence_mean": sequence.mean(),
        "ess_sequence": sequence.sum() ** 2 / (sequence**2).sum() / sequence.size,
    }
    for key, value in wanted.items():
        assert report[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    assert report["clipped"] == pytest.approx(report["clipped_positive"] + report["clipped_negative"])
    assert report["algorithm/clipped"] == pytest.approx(report["clipped"])
    centred = data.outcome.view(GROUPS, EACH) - data.outcome.view(GROUPS, EACH).mean(1, keepdim=True)
    sigma = data.outcome.view(GROUPS, EACH).std(1, keepdim=True) + 1e-6
    advantage = np.broadcast_to((centred / sigma).view(-1, 1).double().numpy(), valid.shape)[valid]
    surrogate = np.minimum(w * advantage, w.clip(0.8, 1.2) * advantage)
    assert report["policy_loss"] == pytest.approx(-surrogate.mean(), rel=1e-4)
    assert report["truncated"] == pytest.approx(data.truncated.float().mean().item())
    assert report["rollout_length"] == pytest.approx(valid.sum(1).mean())
    lag = PHASE - data.version.numpy()[valid]
    assert report["lag_mean"] == pytest.approx(lag.mean())
    assert report["lag_histogram"] == np.bincount(lag).tolist()


def test_versions_per_sequence_ignore_padding() -> None:
    """Three rows of five tokens at most: 2, 1 and 3 versions."""
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]).float()
    version = torch.tensor([[2, 2, 3, 3, 4], [3, 3, 4, 4, 4], [2, 3, 3, 4, 4]])
    rows = torch.zeros(3)
    data = Completions(
        prompt=torch.zeros(3, 1, dtype=torch.int64),
        prompt_mask=torch.ones(3, 1, dtype=torch.int64),
        token=version,
        mask=mask,
        behaviour_logp=-mask,
        version=version,
        gradient_step=version,
        group=rows.long(),
        outcome=rows,
        truncated=rows.bool(),
        unparsed=rows.bool(),
    )
    assert round_metrics(data, 3)["versions_per_sequence"] == pytest.approx((2 + 1 + 3) / 3)


def proximal_extremes(report: dict[str, Any]) -> tuple[float, float]:
    return report["proximal_weight_min"], report["proximal_weight_max"]


def test_the_proximal_weight_is_phase_start_over_behaviour(policy: Policies) -> None:
    made = learner(policy, algorithm="decoupled_ppo", minibatches=2, learning_rate=1e-2)
    data = round_of(made.policy, drift=1.0)
    with torch.no_grad():
        start = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    u = (start - data.behaviour_logp).double().numpy()[data.mask.numpy().astype(bool)]
    report, _ = made.train(data, PHASE)
    assert proximal_extremes(report) == pytest.approx((np.exp(u.min()), np.exp(u.max())), rel=1e-4)


def test_the_interpolated_proximal_weight_is_a_power_of_w(policy: Policies) -> None:
    made = learner(policy, algorithm="a3po")
    data = round_of(made.policy)
    with torch.no_grad():
        now = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    valid = data.mask.numpy().astype(bool)
    lag = (PHASE - data.version).double().numpy()[valid]
    u = np.exp((1.0 - 1.0 / np.maximum(lag, 1.0)) * (now - data.behaviour_logp).double().numpy()[valid])
    report, _ = made.train(data, PHASE)
    assert proximal_extremes(report) == pytest.approx((u.min(), u.max()), rel=1e-4)
    assert u.max() < report["weight_max"] and set(lag) == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("algorithm", ["ppo_clip", "vaco", "decoupled_ppo", "a3po"])
def test_who_has_no_proximal_policy_of_its_own_has_no_weight_for_it(policy: Policies, algorithm: str) -> None:
    made = learner(policy, algorithm=algorithm)
    report, _ = made.train(round_of(made.policy), PHASE)
    assert ("proximal_weight_max" in report) is (algorithm in ("decoupled_ppo", "a3po"))
