"""The variance-optimal baseline against two backward passes and the gradients of rows (VCPO)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rounds import EACH, GROUPS, PHASE, Policies, close, gradients, learner, round_of


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("form", ["paper", "release"])
def test_the_optimal_baseline_of_one_backward_pass_is_that_of_two(
    policy: Policies, aggregation: str, form: str
) -> None:
    """The gradient of VCPO against a literal reading: norms of every completion's own gradient first, then the loss."""
    settings = {"algorithm": "vcpo", "aggregation": aggregation, "hyper": {"baseline": form, "cap": 1.5}}
    found = gradients(policy, **settings)
    fresh = policy(prompts=GROUPS, completions=EACH)
    data = round_of(fresh)
    total = [torch.zeros_like(p) for p in fresh.parameters.values()]
    tokens = float(data.mask.sum())
    for g in range(GROUPS):
        rows = range(g * EACH, (g + 1) * EACH)
        reward = data.outcome[g * EACH : (g + 1) * EACH].numpy()
        own, weight, length = [], [], []
        for row in rows:
            one = data.rows(torch.tensor([row]))
            fresh.model.zero_grad()
            logp = fresh.score(one.prompt, one.prompt_mask, one.token, one.mask).logp
            logp.sum().backward()
            own.append([p.grad.clone() for p in fresh.parameters.values() if p.grad is not None])
            weight.append(float((logp.detach() - one.behaviour_logp).sum().exp()))
            length.append(float(one.mask.sum()))
        w, n = np.array(weight), np.array(length)
        norm = np.array([sum(float(x.square().sum()) for x in each) for each in own])
        share = w**2 * norm if form == "paper" else w**2 * np.minimum(w, 1.5) ** 2 * norm / n**2
        baseline = (share * reward).sum() / share.sum()
        sigma = reward.std(ddof=1) + 1e-6
        scale = np.full(EACH, 1.0 / tokens) if aggregation == "token-mean" else 1.0 / n / (GROUPS * EACH)
        for i in range(EACH):
            factor = scale[i] * min(w[i], 1.5) * (reward[i] - baseline) / sigma
            total = [t - factor * x for t, x in zip(total, own[i], strict=True)]
    assert close(found, total)
    assert max(float(x.abs().max()) for x in total) > 1e-3
    plain = gradients(policy, **{**settings, "hyper": {"baseline": "group", "cap": 1.5}})
    assert not close(found, plain)


def test_the_optimal_baseline_replaces_the_runs_baseline(policy: Policies) -> None:
    """Baselines of one scale: only the scale is left of them."""
    mean, others, nothing = (gradients(policy, algorithm="vcpo", baseline=name) for name in ("dr_grpo", "rloo", "none"))
    assert close(others, mean) and close(nothing, mean)
    assert max(float(x.abs().max()) for x in mean) > 1e-3


def test_equal_rewards_have_no_gradient_under_the_optimal_baseline(policy: Policies) -> None:
    """Not even rounding."""
    data = round_of(policy(prompts=GROUPS, completions=EACH))
    right, wrong = data.outcome.clone(), data.outcome.clone()
    for group in (0, GROUPS - 1):
        right[data.group == group], wrong[data.group == group] = 1.0, 0.0
    found = [gradients(policy, replace(data, outcome=x), algorithm="vcpo") for x in (right, wrong)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert max(float(x.abs().max()) for x in found[0]) > 1e-3


@pytest.mark.parametrize("cap", [1.5, 1e9])
def test_second_moment_ratio_is_that_of_the_row_gradients(policy: Policies, cap: float) -> None:
    settings = {"algorithm": "vcpo", "aggregation": "seq-mean-token-mean", "hyper": {"cap": cap}}
    made = learner(policy, **settings)
    data = round_of(made.policy)
    report, _ = made.train(data, PHASE)
    fresh = policy(prompts=GROUPS, completions=EACH)
    own, mean = 0.0, 0.0
    for g in range(GROUPS):
        reward = data.outcome[g * EACH : (g + 1) * EACH].double().numpy()
        if reward.min() == reward.max():
            continue
        share, energy = [], []
        for row in range(g * EACH, (g + 1) * EACH):
            one = data.rows(torch.tensor([row]))
            fresh.model.zero_grad()
            logp = fresh.score(one.prompt, one.prompt_mask, one.token, one.mask).logp
            logp.sum().backward()
            norm = sum(float(p.grad.square().sum()) for p in fresh.parameters.values() if p.grad is not None)
            w = float((logp.detach() - one.behaviour_logp).sum().exp())
            share.append(w**2 * norm)
            energy.append(min(w, cap) ** 2 * norm / float(one.mask.sum()) ** 2)
        baseline = np.dot(share, reward) / np.sum(share)
        sigma = reward.std(ddof=1)
        own += np.dot(energy, (reward - baseline) ** 2) / sigma**2
        mean += np.dot(energy, (reward - reward.mean()) ** 2) / sigma**2
    assert report["second_moment_ratio"] == pytest.approx(own / mean, rel=1e-3)
    equal, _ = learner(policy, **settings).train(replace(data, outcome=torch.ones(GROUPS * EACH)), PHASE)
    assert equal["second_moment_ratio"] == 1.0 and equal["grad_norm"] == 0.0
    plain, _ = learner(policy, algorithm="vcpo", hyper={"baseline": "group"}).train(data, PHASE)
    assert "second_moment_ratio" not in plain


def test_vcpo_scales_steps_by_the_ess_of_untruncated_weights(policy: Policies) -> None:
    made = learner(policy, algorithm="vcpo", hyper={"baseline": "group"})
    report, _ = made.train(round_of(made.policy), PHASE)
    assert report["step_scale"] == pytest.approx(report["ess_sequence"] ** 0.5, rel=1e-5)
    on_policy, _ = learner(policy, algorithm="vcpo").train(round_of(policy(), drift=0.0), PHASE)
    assert on_policy["step_scale"] == pytest.approx(1.0, abs=1e-6)  # rows are scored alone: other rounding


def test_the_host_asks_a_gpu_once_a_group_and_not_once_a_row(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(policy, "vcpo")
    data = round_of(made.policy)
    callers: list[str] = []
    for name in ("__float__", "__bool__", "__int__", "item", "tolist"):
        ask = getattr(torch.Tensor, name)

        def note(*given: Any, ask: Any = ask) -> Any:
            callers.append(sys._getframe(1).f_code.co_name)
            return ask(*given)

        monkeypatch.setattr(torch.Tensor, name, note)
    made.train(data, PHASE)
    assert callers.count("gradient_by_rows") == 4 + GROUPS  # four lists of all rows' numbers first
    assert callers.count("row_baseline") == GROUPS
    assert not {"score", "next_row", "_take", "loss_of", "decisions"} & {*callers}
