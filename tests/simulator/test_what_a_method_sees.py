"""Whole runs on control, seen by their method: when it is asked, and that all it is told belongs together."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from witness import Seen

from staleharness.base.streams import stream
from staleharness.batch import Decisions, Rollout, Trajectories
from staleharness.control.policy import views_of
from staleharness.control.spec import ControlSpec
from staleharness.errors import Diverged
from staleharness.objectives import gae
from staleharness.task import simulation_of

EPOCHS, PARTS, ENVS, STEPS, PHASES = 3, 2, 6, 40, 4
N = ENVS * STEPS
SMALL = ControlSpec(
    env="Hopper-v5", algorithm="witness", capacity=3, steps=PHASES * N, num_envs=ENVS, num_steps=STEPS, epochs=EPOCHS,
    minibatches=PARTS, learning_rate=3e-3, anneal_learning_rate=False, evaluations=1, evaluation_episodes=1,
    final_episodes=1, threads=1,
)  # fmt: skip


def run(seen: Seen, hyper: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The metrics of a whole run."""
    for past in (seen.shown, seen.asked, seen.divergence, seen.told, seen.watched):
        past.clear()
    simulation = simulation_of(replace(SMALL, hyper=hyper or {}, **settings))
    seen.watch = lambda: simulation.policy.flat.detach().clone()
    metrics = [record.metrics for record in simulation]
    simulation.close()
    return metrics


def phases(seen: list[Any]) -> list[list[Any]]:
    """What was seen, phase by phase."""
    size = len(seen) // PHASES
    return [seen[i : i + size] for i in range(0, len(seen), size)]


def places(d: Decisions, t: Trajectories) -> Tensor:
    """Which of the trajectories' decisions, flat, each of the minibatch is, by its behaviour log-probability."""
    at = {x: i for i, x in enumerate(t.behaviour_logp.flatten().tolist())}
    return torch.tensor([at[x] for x in d.behaviour_logp.flatten().tolist()])


def of(x: Tensor, t: Trajectories, d: Decisions) -> Tensor:
    """A column [B, T] of the trajectories at the decisions of a minibatch."""
    return x.flatten()[places(d, t)].view(d.advantage.shape)


@pytest.mark.parametrize("realign", ["phase", "epoch"])
def test_targets_are_asked_when_the_method_says_under_the_learner_as_it_then_stands(
    witness: Seen, realign: str
) -> None:
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


def test_targets_at_every_step_are_asked_of_the_minibatchs_rows_and_the_learner_as_it_stands(
    witness: Seen,
) -> None:
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


def test_epochs_and_phases_have_orders_of_their_own_each_from_its_stream(witness: Seen) -> None:
    run(witness)
    for phase, (shown, asked) in enumerate(zip(phases(witness.shown), phases(witness.asked), strict=True)):
        for epoch in range(EPOCHS):
            order = torch.cat([places(d, shown[0]) for d in asked[epoch * PARTS : (epoch + 1) * PARTS]])
            assert order.tolist() == stream(0, "minibatch", phase, epoch).permutation(N).tolist()


@pytest.mark.parametrize(
    "settings", [{}, {"bootstrap_truncation": False, "env": "Pendulum-v1", "num_steps": 220}]
)
def test_what_targets_are_shown_is_the_runs(witness: Seen, settings: dict[str, Any]) -> None:
    """λ, lag, and scaled rewards; γ, and 0 only where the world ended; V-trace's two policies are two."""
    steps = settings.get("num_steps", STEPS)
    asked = {
        "gae_lambda": 0.83,
        "discount": 0.97,
        "lag": "fixed:2",
        "steps": PHASES * ENVS * steps,
        **settings,
    }
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
        assert metrics[phase]["tv_data"] == pytest.approx(
            0.5 * float((w - 1.0).abs().mean()), rel=1e-3, abs=1e-6
        )
    assert ends > 0


def test_decisions_are_told_their_own_lag_anchor_and_state(witness: Seen) -> None:
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


def test_a_shadow_that_forgets_at_once_is_the_learner_and_one_that_does_not_lags_behind(
    witness: Seen,
) -> None:
    run(witness, {"anchor": "ewma", "decay": 0.0})
    assert all(torch.allclose(d.proximal_logp, d.target_logp, atol=1e-5) for d in witness.asked)
    run(witness, {"anchor": "ewma", "decay": 0.9})
    assert all(float((d.proximal_logp - d.target_logp).abs().max()) > 1e-3 for d in witness.asked[1:])


@pytest.mark.parametrize("anchor", ["behaviour", "recompute"])
def test_the_analytic_divergences_are_those_of_the_policies_at_hand(witness: Seen, anchor: str) -> None:
    """Recomputed with torch's own distributions from the weights of the time and the versions that acted."""
    simulation = simulation_of(replace(SMALL, hyper={"anchor": anchor}))
    rollouts: list[Rollout] = []
    collect = simulation.collector.collect

    def watched(*arguments: Any) -> Any:
        made = collect(*arguments)
        rollouts.append(made[0])
        return made

    simulation.collector.collect = watched  # type: ignore[method-assign]
    policy = simulation.policy
    witness.watch = lambda: (policy.flat.detach().clone(), policy.mean.clone(), policy.inverse_std.clone())
    for _ in simulation:
        pass

    def at(weights: Any, obs: Tensor) -> Normal:
        flat, mean, inverse_std = weights
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
            for name, other in (("proximal", start), ("behaviour", acted)):
                wanted = kl_divergence(other, now).sum(-1)
                torch.testing.assert_close(said[name].flatten(), wanted, atol=2e-5, rtol=1e-3)
        moved = max(moved, float((said["proximal"] - said["behaviour"]).abs().max()))
        # who acted is who is recorded: its mean and deviation give the log-probability of the action
        action = rollouts[phase].action.flatten(0, 1)[index]
        torch.testing.assert_close(
            acted.log_prob(action).sum(-1), d.behaviour_logp.flatten(), atol=1e-4, rtol=1e-4
        )
    assert moved > 1e-2


def test_a_methods_step_scale_is_asked_with_its_state_and_taken(witness: Seen) -> None:
    """0 to the power of the phases done: the learner moves in the first phase and never again."""
    run(witness, {"factor": 0.0})
    weights = phases(witness.watched)
    assert all(not torch.equal(a, b) for a, b in zip(weights[0], weights[0][1:], strict=False))
    assert all(torch.equal(w, weights[1][0]) for phase in weights[1:] for w in phase)


def test_the_next_state_is_asked_with_the_phases_means_of_the_methods_own_diagnostics(witness: Seen) -> None:
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


def test_advantages_are_normalised_where_the_method_and_the_run_say_so(witness: Seen) -> None:
    for method in (True, False):
        for asked in (True, False):
            run(witness, {"normalise": method}, normalise_advantage=asked, steps=N)
            for d in witness.asked:
                raw = of(gae(witness.shown[0]).advantage, witness.shown[0], d)
                wanted = (raw - raw.mean()) / raw.std() if method and asked else raw
                torch.testing.assert_close(d.advantage, wanted, atol=1e-5, rtol=1e-4)


def test_without_a_policy_gradient_entropy_moves_by_its_bonus_alone(witness: Seen) -> None:
    still = [m["entropy"] for m in run(witness, {"mute": True})]
    grown = [m["entropy"] for m in run(witness, {"mute": True}, entropy_coef=0.01)]
    assert len(set(still)) == 1 and all(a < b for a, b in itertools.pairwise(grown))
    assert still[0] == pytest.approx(
        3 * 0.5 * np.log(2 * np.pi * np.e), rel=1e-5
    )  # of three standard normals


def test_the_norm_said_is_that_before_clipping_and_the_critics_share_has_its_coefficient(
    witness: Seen,
) -> None:
    one = {"epochs": 1, "minibatches": 1, "steps": N}
    half, whole, clipped = (
        run(witness, {"mute": True}, value_coef=c, max_grad_norm=most, **one)[0]["grad_norm"]
        for c, most in ((0.5, 1e9), (1.0, 1e9), (1.0, 1e-3))
    )
    assert whole == pytest.approx(2.0 * half, rel=1e-5) and clipped == whole > 1e-2


def test_clipped_decisions_are_those_with_an_advantage_and_no_gradient(witness: Seen) -> None:
    for hyper, share in (({}, 0.0), ({"mute": True}, 1.0), ({"mute": True, "blind": True}, 0.0)):
        for m in run(witness, hyper, steps=2 * N):
            assert m["clipped"] == m["clipped_first"] == m["clipped_last"] == share


def test_what_is_said_of_a_phase_is_the_mean_of_its_steps_and_of_the_policies_before_and_after(
    witness: Seen,
) -> None:
    """Statistics are frozen, so that the learner after a phase can still be asked about its data. The largest lag has
    10% of the decisions in one phase and 5% in another, either side of what a percentile takes for its own."""
    asked = {"lag": "geometric:0.3", "num_envs": 20, "num_steps": N // 20}
    simulation = simulation_of(replace(SMALL, observation_statistics="frozen", **asked))
    rollouts: list[Rollout] = []
    collect = simulation.collector.collect

    def watched(*arguments: Any) -> Any:
        made = collect(*arguments)
        rollouts.append(made[0])
        return made

    simulation.collector.collect = watched  # type: ignore[method-assign]
    for m in simulation:
        if m.metrics["phase"] == 0:
            continue
        t, rollout, said = witness.shown[-1], rollouts[-1], m.metrics
        mu, start = t.behaviour_logp.flatten().double(), t.target_logp.flatten().double()
        end = simulation.policy.evaluate_now(
            rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)
        ).logp.double()
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
        }  # fmt: skip
        for key, value in wanted.items():
            assert said[key] == pytest.approx(float(value), rel=2e-3, abs=1e-5), key
        steps = witness.asked[-EPOCHS * PARTS :]
        loss = [float(-((d.target_logp - d.behaviour_logp).exp() * d.advantage).mean()) for d in steps]
        assert said["policy_loss"] == pytest.approx(np.mean(loss), rel=1e-3, abs=1e-5)
        assert float((t.lag == t.lag.max()).float().mean()) == pytest.approx(
            {1: 0.15, 2: 0.1, 3: 0.05}[said["phase"]]
        )
        assert said["tv_forward"] > 1e-3 and said["tv_end"] != pytest.approx(said["tv_data"], rel=1e-2)


def test_a_loss_that_is_not_finite_is_said_with_its_step(witness: Seen) -> None:
    with pytest.raises(Diverged, match="policy_loss is not finite at gradient step 3 of phase 1"):
        run(witness, {"breaks_at": EPOCHS * PARTS + 3})


def test_a_step_that_is_too_long_is_said_with_its_phase(witness: Seen) -> None:
    with pytest.raises(Diverged, match="a parameter is not finite after phase 0"):
        run(witness, learning_rate=1e39, epochs=1, minibatches=1)


def test_nothing_is_clipped_at_the_first_step_without_lag_and_something_at_the_last(witness: Seen) -> None:
    for m in run(witness, {}, algorithm="ppo_clip", capacity=1):
        assert 0.0 == m["clipped_first"] < m["clipped"] < m["clipped_last"]


def test_weights_that_are_not_finite_are_said_before_they_train(witness: Seen) -> None:
    simulation = simulation_of(SMALL)
    simulation.advance()
    with torch.no_grad():
        simulation.policy.flat.fill_(torch.nan)
    with pytest.raises(Diverged, match="behaviour log-probability is not finite in phase 1"):
        simulation.advance()
