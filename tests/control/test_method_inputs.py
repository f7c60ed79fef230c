"""Whole runs on control, seen by their method: when it is asked, and that all it is told belongs together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from control_runs import ENVS, EPOCHS, PARTS, PHASES, SMALL, STEPS, N, of, phases, places, run
from recorded_runs import collected_by
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from witness import MethodCalls

from staleharness.base.streams import stream
from staleharness.control.functional_mlp import views_of
from staleharness.objectives import gae
from staleharness.training.loop import simulation_of


@pytest.mark.parametrize("realign", ["phase", "epoch"])
def test_targets_are_computed_under_the_current_learner(witness: MethodCalls, realign: str) -> None:
    """The first minibatch of an epoch is scored before any of its steps: the learner then is the learner shown."""
    run(witness, {"realign": realign})
    times = {"phase": 1, "epoch": EPOCHS}[realign]
    assert len(witness.shown) == PHASES * times and len(witness.asked) == PHASES * EPOCHS * PARTS
    for shown, asked in zip(phases(witness.shown), phases(witness.asked), strict=True):
        for epoch in range(EPOCHS):
            t = shown[min(epoch, times - 1)]
            for d in asked[epoch * PARTS : (epoch + 1) * PARTS]:
                assert torch.equal(d.advantage, of(gae(t).advantage, t, d))
            first = asked[epoch * PARTS]
            moved = (first.target_logp - of(t.target_logp, t, first)).abs().max()
            assert (moved < 1e-4) if realign == "epoch" or epoch == 0 else (moved > 1e-3)
        if realign == "epoch":  # and the critic's values are new ones
            assert all(float((t.value - shown[0].value).abs().max()) > 1e-3 for t in shown[1:])


def test_step_targets_use_minibatch_rows_and_current_learner(witness: MethodCalls) -> None:
    """Before them, each phase, the whole of it is shown once, for what is said of the critic."""
    run(witness, {"realign": "step"})
    assert len(witness.asked) == PHASES * EPOCHS * PARTS
    for (whole, *shown), asked in zip(phases(witness.shown), phases(witness.asked), strict=True):
        assert whole.reward.shape == (ENVS, STEPS)
        for t, d in zip(shown, asked, strict=True):
            assert t.reward.shape == d.advantage.shape == (ENVS // PARTS, STEPS)
            assert torch.equal(t.behaviour_logp, d.behaviour_logp) and torch.equal(t.lag, d.lag)
            assert torch.equal(t.target_logp, d.target_logp)
            assert torch.equal(d.advantage, gae(t).advantage)
            inside = (t.continues[:, :-1] == 1.0).nonzero()
            value, following = t.value[:, 1:], t.next_value[:, :-1]
            assert torch.equal(value[inside[:, 0], inside[:, 1]], following[inside[:, 0], inside[:, 1]])
        # the critic has moved since the phase began
        start = {float(row[0]): value for row, value in zip(whole.behaviour_logp, whole.value, strict=True)}
        for t in shown[PARTS:]:
            for row, value in zip(t.behaviour_logp, t.value, strict=True):
                assert float((start[float(row[0])] - value).abs().max()) > 1e-4


def test_each_epoch_and_phase_has_a_minibatch_order_of_its_own(witness: MethodCalls) -> None:
    run(witness)
    for phase, (shown, asked) in enumerate(zip(phases(witness.shown), phases(witness.asked), strict=True)):
        for epoch in range(EPOCHS):
            order = torch.cat([places(d, shown[0]) for d in asked[epoch * PARTS : (epoch + 1) * PARTS]])
            assert order.tolist() == stream(0, "minibatch", phase, epoch).permutation(N).tolist()


@pytest.mark.parametrize("settings", [{}, {"bootstrap_truncation": False, "env": "Pendulum-v1", "num_steps": 220}])
def test_what_targets_are_shown_is_the_runs(witness: MethodCalls, settings: dict[str, Any]) -> None:
    """λ, lag, and scaled rewards; γ, and 0 only where the world ended; V-trace's two policies are two."""
    steps = settings.get("num_steps", STEPS)
    asked = {"gae_lambda": 0.83, "discount": 0.97, "lag": "fixed:2", "steps": PHASES * ENVS * steps, **settings}
    metrics = run(witness, **asked)
    ends = 0
    for phase, (t,) in enumerate(phases(witness.shown)):
        assert t.gae_lambda == 0.83 and bool((t.lag == min(phase, 2)).all()) and bool((t.mask == 1.0).all())
        assert not bool(t.continues[:, -1].any())
        ends += int((t.discount == 0.0).sum())
        assert set(t.discount.unique().tolist()) <= {0.0, float(np.float32(0.97))}
        assert bool((t.continues[t.discount == 0.0] == 0.0).all())
        inside = t.continues == 1.0
        assert torch.equal(t.next_value[:, :-1][inside[:, :-1]], t.value[:, 1:][inside[:, :-1]])
        w = (t.target_logp - t.behaviour_logp).exp()
        stale = float((w - 1.0).abs().max())
        assert (stale < 1e-3) if phase == 0 else (stale > 1e-3)
        assert metrics[phase]["tv_data"] == pytest.approx(0.5 * float((w - 1.0).abs().mean()), rel=1e-3, abs=1e-6)
    assert ends > 0


def test_decisions_are_told_their_own_lag_anchor_and_state(witness: MethodCalls) -> None:
    run(witness, {"anchor": "recompute"})
    mixed = 0
    for phase, (shown, asked) in enumerate(zip(phases(witness.shown), phases(witness.asked), strict=True)):
        for step, d in enumerate(asked):
            assert torch.equal(d.proximal_logp, of(shown[0].target_logp, shown[0], d))
            assert torch.equal(d.lag, of(shown[0].lag, shown[0], d))
            mixed += len(d.lag.unique()) > 1
            assert torch.equal(d.gradient_lag, d.lag * EPOCHS * PARTS + step)
            assert d.state == {"phases": float(phase)}
        assert float((asked[-1].target_logp - asked[-1].proximal_logp).abs().max()) > 1e-3
    assert mixed > PHASES
    run(witness)
    assert all(torch.equal(d.proximal_logp, d.behaviour_logp) for d in witness.asked)


def test_the_shadow_is_the_learner_or_lags_behind_by_decay(witness: MethodCalls) -> None:
    run(witness, {"anchor": "ewma", "decay": 0.0})
    assert all(torch.allclose(d.proximal_logp, d.target_logp, atol=1e-5) for d in witness.asked)
    run(witness, {"anchor": "ewma", "decay": 0.9})
    assert all(float((d.proximal_logp - d.target_logp).abs().max()) > 1e-3 for d in witness.asked[1:])


@pytest.mark.parametrize("anchor", ["behaviour", "recompute", "ewma"])
def test_the_analytic_divergences_are_those_of_the_policies_at_hand(witness: MethodCalls, anchor: str) -> None:
    """Recomputed with torch's own distributions from the weights of the time and the versions that acted."""
    simulation = simulation_of(replace(SMALL, hyper={"anchor": anchor}))
    rollouts = collected_by(simulation)
    policy = simulation.policy
    shadow = (simulation.learner.shadow or [policy.actor_flat])[0]
    witness.watch = lambda: [x.detach().clone() for x in (policy.flat, policy.mean, policy.inverse_std, shadow)]
    for _ in simulation:
        pass

    def at(weights: Any, obs: Tensor) -> Normal:
        flat, mean, inverse_std, *_ = weights
        *layers, log_std = views_of(flat[: policy.actor_size], policy.actor_shapes)
        x = ((obs - mean) * inverse_std).clamp(-10.0, 10.0)
        for i in range(0, len(layers) - 2, 2):
            x = torch.tanh(x @ layers[i] + layers[i + 1])
        return Normal(x @ layers[-2] + layers[-1], log_std.exp())

    moved = 0.0
    for phase in range(PHASES):
        first = phase * EPOCHS * PARTS
        obs, (t,) = rollouts[phase].obs.flatten(0, 1), phases(witness.shown)[phase]
        for step in range(first, first + EPOCHS * PARTS):
            d, said = witness.asked[step], witness.divergence[step]
            index = places(d, t)
            now, start = at(witness.watched[step], obs[index]), at(witness.watched[first], obs[index])
            acted = Normal(
                rollouts[phase].behaviour_mean.flatten(0, 1)[index],
                rollouts[phase].behaviour_log_std.flatten(0, 1)[index].exp(),
            )
            proximal = start if anchor == "recompute" else acted
            if anchor == "ewma":
                _, mean, inverse_std, averaged = witness.watched[step]
                proximal = at((averaged, mean, inverse_std), obs[index])
            for name, other in (("proximal", proximal), ("behaviour", acted)):
                wanted = kl_divergence(other, now).sum(-1)
                torch.testing.assert_close(said[name].flatten(), wanted, atol=2e-5, rtol=1e-3)
        moved = max(moved, float((said["proximal"] - said["behaviour"]).abs().max()))
        # who acted is who is recorded: its mean and deviation give the log-probability of the action
        action = rollouts[phase].action.flatten(0, 1)[index]
        torch.testing.assert_close(acted.log_prob(action).sum(-1), d.behaviour_logp.flatten(), atol=1e-4, rtol=1e-4)
    assert (moved > 1e-2) == (anchor != "behaviour")  # then the two are one


def test_a_methods_step_scale_is_asked_with_its_state_and_taken(witness: MethodCalls) -> None:
    """0 to the power of the phases done: the learner moves in the first phase and never again."""
    run(witness, {"factor": 0.0})
    weights = phases(witness.watched)
    assert all(not torch.equal(a, b) for a, b in zip(weights[0], weights[0][1:], strict=False))
    assert all(torch.equal(w, weights[1][0]) for phase in weights[1:] for w in phase)


def test_next_state_gets_phase_means_of_own_diagnostics(witness: MethodCalls) -> None:
    metrics = run(witness)
    assert len(witness.told) == PHASES
    for phase, (told, asked) in enumerate(zip(witness.told, phases(witness.asked), strict=True)):
        assert set(told) == {"told", "ratio"}
        assert told["told"] == pytest.approx(np.mean([float(d.advantage.mean()) for d in asked]), abs=1e-5)
        ratio = np.mean([float((d.target_logp - d.behaviour_logp).exp().mean()) for d in asked])
        assert told["ratio"] == metrics[phase]["algorithm/ratio"] == pytest.approx(ratio, rel=1e-4)
        assert metrics[phase]["algorithm/phases"] == phase + 1


@pytest.mark.parametrize(("clip", "shrinks"), [(0.003, True), (0.5, False)])
def test_geppos_step_shrinks_and_grows_by_its_rule(clip: float, shrinks: bool) -> None:
    hyper = {"adapt": 0.1, "clip": clip}
    spec = replace(SMALL, algorithm="geppo", hyper=hyper, lag="fixed:2", learning_rate=1e-3)
    factor, factors = 1.0, []
    for record in simulation_of(replace(spec, steps=8 * N)):
        moved = record.metrics["algorithm/moved"]
        factor *= 1.0 / 1.1 if moved > 1.0 else 1.1 if moved < 0.5 else 1.0
        factors.append(factor)
        assert record.metrics["algorithm/step_factor"] == pytest.approx(factor)
    assert min(factors) < 0.8 if shrinks else max(factors) > 1.2


def test_an_adaptive_penalty_follows_the_divergence_of_its_phase() -> None:
    spec = replace(SMALL, algorithm="ppo_kl", hyper={"adaptive": True, "target": 0.02}, learning_rate=1e-3)
    coefficient, factors = 1.0, []
    for record in simulation_of(replace(spec, steps=8 * N)):
        kl = record.metrics["algorithm/kl"]
        factors.append(1.5 if kl > 0.04 else 0.5 if kl < 0.01 else 1.0)
        coefficient *= factors[-1]
        assert record.metrics["algorithm/kl_coef"] == pytest.approx(coefficient)
    assert set(factors) != {1.0}


def test_advantages_are_normalised_where_method_and_run_ask_for_it(witness: MethodCalls) -> None:
    for method in (True, False):
        for asked in (True, False):
            run(witness, {"normalise": method}, normalise_advantage=asked, steps=N)
            for d in witness.asked:
                raw = of(gae(witness.shown[0]).advantage, witness.shown[0], d)
                wanted = (raw - raw.mean()) / raw.std() if method and asked else raw
                torch.testing.assert_close(d.advantage, wanted, atol=1e-5, rtol=1e-4)
