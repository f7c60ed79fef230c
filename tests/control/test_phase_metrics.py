"""Metrics of a phase, recomputed from the inputs of its method; and the errors that end a run."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from control_runs import EPOCHS, PARTS, SMALL, N, run
from recorded_runs import collected_by
from witness import MethodCalls

from staleharness.errors import Diverged
from staleharness.objectives import gae
from staleharness.training.loop import simulation_of


def test_without_a_policy_gradient_entropy_moves_by_its_bonus_alone(witness: MethodCalls) -> None:
    still = [m["entropy"] for m in run(witness, {"mute": True})]
    grown = [m["entropy"] for m in run(witness, {"mute": True}, entropy_coef=0.01)]
    assert len(set(still)) == 1 and all(a < b for a, b in itertools.pairwise(grown))
    assert still[0] == pytest.approx(3 * 0.5 * np.log(2 * np.pi * np.e), rel=1e-5)  # of three standard normals


def test_grad_norm_is_before_clipping_and_includes_value_coef(witness: MethodCalls) -> None:
    one = {"epochs": 1, "minibatches": 1, "steps": N}
    half, whole, clipped = (
        run(witness, {"mute": True}, value_coef=c, max_grad_norm=most, **one)[0]["grad_norm"]
        for c, most in ((0.5, 1e9), (1.0, 1e9), (1.0, 1e-3))
    )
    assert whole == pytest.approx(2.0 * half, rel=1e-5) and clipped == whole > 1e-2


def test_clipped_counts_decisions_with_advantage_and_no_gradient(witness: MethodCalls) -> None:
    for hyper, share in (({}, 0.0), ({"mute": True}, 1.0), ({"mute": True, "blind": True}, 0.0)):
        for m in run(witness, hyper, steps=2 * N):
            assert m["clipped"] == m["clipped_first"] == m["clipped_last"] == share


def test_phase_metrics_are_means_over_steps_and_both_end_policies(witness: MethodCalls) -> None:
    """Statistics are frozen, so that the learner after a phase can still be asked about its data. The largest lag has
    10% of the decisions in one phase and 5% in another, either side of what a percentile takes for its own."""
    asked = {"lag": "geometric:0.3", "num_envs": 20, "num_steps": N // 20}
    simulation = simulation_of(replace(SMALL, observation_statistics="frozen", **asked))
    rollouts = collected_by(simulation)
    for m in simulation:
        if m.metrics["phase"] == 0:
            continue
        t, rollout, said = witness.shown[-1], rollouts[-1], m.metrics
        mu, start = t.behaviour_logp.flatten().double(), t.target_logp.flatten().double()
        end = simulation.policy.evaluate(rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)).logp.double()
        before, after = (start - mu).exp(), (end - mu).exp()
        target = gae(t).value_target
        lag = np.sort(t.lag.flatten().numpy())
        wanted = {
            "tv_data": 0.5 * (before - 1.0).abs().mean(),
            "ess_data": before.sum() ** 2 / (before**2).sum() / N,
            "kl_k1_data": (mu - start).mean(),
            "kl_k3_data": (before - 1.0 - (start - mu)).mean(),
            "weight_max_data": before.max(),
            "weight_std_data": before.std(correction=0),
            "tv_end": 0.5 * (after - 1.0).abs().mean(),
            "ess_end": after.sum() ** 2 / (after**2).sum() / N,
            "tv_forward": 0.5 * (after - before).abs().mean(),
            "explained_variance": 1.0 - (target - t.value).var() / target.var(),
            "lag_p95": lag[int(np.ceil(0.95 * N)) - 1],
            "lag_mean": lag.mean(),
            "gradient_lag_mean": lag.mean() * EPOCHS * PARTS,
        }
        for key, value in wanted.items():
            assert said[key] == pytest.approx(float(value), rel=2e-3, abs=1e-5), key
        steps = witness.asked[-EPOCHS * PARTS :]
        loss = [float(-((d.target_logp - d.behaviour_logp).exp() * d.advantage).mean()) for d in steps]
        assert said["policy_loss"] == pytest.approx(np.mean(loss), rel=1e-3, abs=1e-5)
        assert float((t.lag == t.lag.max()).float().mean()) == pytest.approx({1: 0.15, 2: 0.1, 3: 0.05}[said["phase"]])
        assert said["tv_forward"] > 1e-3 and said["tv_end"] != pytest.approx(said["tv_data"], rel=1e-2)


def test_a_loss_that_is_not_finite_is_said_with_its_step(witness: MethodCalls) -> None:
    with pytest.raises(Diverged, match="policy_loss is not finite at gradient step 3 of phase 1"):
        run(witness, {"breaks_at": EPOCHS * PARTS + 3})


def test_a_step_that_is_too_long_is_said_with_its_phase(witness: MethodCalls) -> None:
    with pytest.raises(Diverged, match="a parameter is not finite after phase 0"):
        run(witness, learning_rate=1e39, epochs=1, minibatches=1)


def test_on_policy_clipping_starts_after_the_first_step(witness: MethodCalls) -> None:
    for m in run(witness, {}, algorithm="ppo_clip", capacity=1):
        assert 0.0 == m["clipped_first"] < m["clipped"] < m["clipped_last"]


@pytest.mark.parametrize(("mechanism", "lag"), [("reexecute", "uniform"), ("replay", "fixed:1")])
def test_weights_that_are_not_finite_are_said_before_they_train(witness: MethodCalls, mechanism: str, lag: str) -> None:
    """In a replay too, where what the phase trains on is a finite one's."""
    simulation = simulation_of(replace(SMALL, mechanism=mechanism, lag=lag))
    simulation.advance()
    with torch.no_grad():
        simulation.policy.flat.fill_(torch.nan)
    with pytest.raises(Diverged, match="behaviour log-probability is not finite in phase 1"):
        simulation.advance()


def test_the_factor_on_the_step_is_not_said(witness: MethodCalls) -> None:
    """Control has no such metric: a run made again has the checksum of the published one."""
    assert all("step_scale" not in m for m in run(witness, steps=N))
