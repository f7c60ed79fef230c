"""A copy of the version acts on control: what it is, what is recorded of it, and bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from recorded_runs import finish, recording
from small_specs import small_control
from torch import Tensor
from whole_runs import Metrics, all_equal, assert_resumes, metrics_of, run_whole

from staleharness.control.functional_mlp import views_of
from staleharness.control.spec import ControlSpec
from staleharness.mismatch import MISMATCHES, Mismatch, Place, read_mismatch
from staleharness.training.policy_buffer import Version

SMALL = small_control(4, 6, 32, capacity=3, lag="oldest", learning_rate=3e-3, evaluations=2)
CHOICES = replace(SMALL, env="CartPole-v1")


def without_mismatch(metrics: Metrics) -> Metrics:
    return [{k: v for k, v in of_phase.items() if not k.startswith("mismatch/")} for of_phase in metrics]


@dataclass(frozen=True)
class Drawing(Mismatch):
    """Noise from torch's global generator."""

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight + 0.1 * torch.randn_like(weight)


def test_a_model_that_draws_globally_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    list(MISMATCHES)
    monkeypatch.setattr(MISMATCHES, "_classes", dict(MISMATCHES._classes))
    MISMATCHES.register("drawing")(Drawing)
    assert_resumes(replace(SMALL, num_steps=16, steps=4 * 6 * 16, evaluations=1, lag="uniform", mismatch="drawing"), 2)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"behaviour": "version"},
        {"lag": "uniform"},
        {"lag": "uniform", "assignment": "episode", "behaviour": "version"},
        {"mechanism": "replay", "lag": "fixed:2"},
        {"observation_statistics": "shared_live", "behaviour": "version"},
        {"learner": "native", "behaviour": "version"},
        {"value_function": "behaviour"},
        {"env": "CartPole-v1", "behaviour": "version"},
    ],
    ids=str,
)
@pytest.mark.long
def test_noise_of_size_zero_gives_the_bits_of_none(settings: dict[str, Any]) -> None:
    spec = replace(SMALL, num_steps=16, steps=4 * 6 * 16, evaluations=1, **settings)
    (a, x), (b, y) = run_whole(spec), run_whole(replace(spec, mismatch="noise:0+sampling:1"))
    assert all_equal(x, y) and a == without_mismatch(b)
    assert b[-1]["mismatch/kl_k3"] == b[-1]["mismatch/kl_k1_engine_data"] == 0.0
    c = metrics_of(replace(spec, mismatch="noise:1"))
    assert without_mismatch(c) != a and "mismatch/kl_k3" not in a[-1]


def means_by_hand(simulation: Any, version: Version, obs: Tensor, text: str) -> tuple[Tensor, Tensor]:
    """Network output and log σ of a copy, matrix by matrix in double precision."""
    (model,) = read_mismatch(text)
    *layers, log_std = views_of(version.tensors["actor"], simulation.policy.actor_shapes)
    x = ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-10, 10).double()
    for i in range(0, len(layers), 2):
        place = Place(f"actor.{i // 2}", version.phase, simulation.spec.seed)
        weight = model.matrix(layers[i].t().contiguous(), place).double()
        x = x @ weight.t() + layers[i + 1].double()
        x = x.tanh() if i < len(layers) - 2 else x
    return x, log_std.double()


@pytest.mark.parametrize("text", ["int4", "noise:0.3"])
def test_what_acts_is_the_copy_of_the_version(text: str) -> None:
    simulation = finish(replace(SMALL, mismatch=text))
    for rollout in simulation.consumed[1:]:
        (v,) = rollout.version.unique().tolist()
        version, obs = simulation.versions[v], rollout.obs.flatten(0, 1)
        mean, log_std = means_by_hand(simulation, version, obs, text)
        torch.testing.assert_close(rollout.behaviour_mean.flatten(0, 1).double(), mean, atol=1e-5, rtol=1e-4)
        z = (rollout.action.flatten(0, 1).double() - mean) / log_std.exp()
        logp = (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        torch.testing.assert_close(rollout.sampler_logp.flatten().double(), logp, atol=1e-4, rtol=1e-4)
        assert torch.equal(rollout.behaviour_logp, rollout.sampler_logp)
        mean, _ = means_by_hand(simulation, version, obs, "noise:0")
        z = (rollout.action.flatten(0, 1).double() - mean) / log_std.exp()
        logp = (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        torch.testing.assert_close(rollout.version_logp.flatten().double(), logp, atol=1e-4, rtol=1e-4)
        entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum().float()
        torch.testing.assert_close(rollout.version_entropy, entropy.expand_as(rollout.version_entropy))
        assert (rollout.version_logp - rollout.sampler_logp).abs().max() > 1e-3


def first_rollout(spec: ControlSpec) -> tuple[Any, Any]:
    simulation = recording(spec)
    simulation.advance()
    return simulation, simulation.consumed[0]


@pytest.mark.parametrize("raw", [False, True])
def test_a_temperature_multiplies_the_variance(raw: bool) -> None:
    settings = {"mismatch": "sampling[temperature=0.25,logprobs=raw]", "behaviour": "version"}
    _, made = first_rollout(replace(SMALL, **settings) if raw else replace(SMALL, mismatch="sampling:0.25"))
    _, plain = first_rollout(SMALL)
    first = made.action[:, 0] - plain.behaviour_mean[:, 0]  # the same state and noise, and σ = 1
    torch.testing.assert_close(first, 0.5 * (plain.action[:, 0] - plain.behaviour_mean[:, 0]), atol=1e-5, rtol=1e-5)
    if raw:
        assert torch.equal(made.sampler_logp, made.version_logp) and torch.equal(made.behaviour_logp, made.version_logp)
    else:
        torch.testing.assert_close(made.behaviour_log_std, torch.full_like(made.behaviour_log_std, math.log(0.5)))
        z = (made.action - made.behaviour_mean) / 0.5
        logp = (-0.5 * z.square() - math.log(0.5) - 0.5 * math.log(2 * math.pi)).sum(-1)
        torch.testing.assert_close(made.behaviour_logp, logp)


def test_a_temperature_divides_the_logits_of_choices() -> None:
    _, plain = first_rollout(CHOICES)
    for text, scale in (("sampling:0.5", 2.0), ("sampling[temperature=0.5,logprobs=raw]", 1.0)):
        raw = scale == 1.0
        _, made = first_rollout(replace(CHOICES, mismatch=text, behaviour="version" if raw else "auto"))
        logits = plain.behaviour_mean[:, 0] * scale
        chosen = logits.log_softmax(-1).gather(-1, made.action[:, 0].long())[:, 0]
        torch.testing.assert_close(made.sampler_logp[:, 0], chosen)
        p = plain.behaviour_mean[:, 0].softmax(-1)
        torch.testing.assert_close(made.version_entropy[:, 0], -(p * p.log()).sum(-1))


def test_raw_log_probabilities_hide_what_the_gap_shows() -> None:
    spec = replace(SMALL, num_steps=128, steps=6 * 128, behaviour="version")
    (raw,) = metrics_of(replace(spec, mismatch="sampling[temperature=0.8,logprobs=raw]"))
    (honest,) = metrics_of(replace(spec, mismatch="noise:0"))
    assert raw["mismatch/kl_k3"] == pytest.approx(0.0, abs=1e-9)
    assert raw["mismatch/surprisal_gap"] > 4 > 3 > abs(honest["mismatch/surprisal_gap"])


def test_mu_is_the_number_that_the_setting_names() -> None:
    for behaviour, sampler in (("auto", True), ("sampler", True), ("version", False)):
        simulation = finish(replace(SMALL, mismatch="noise:0.2", behaviour=behaviour))
        for made in simulation.consumed:
            assert torch.equal(made.behaviour_logp, made.sampler_logp if sampler else made.version_logp)
            again = simulation.policy.distribution.logp(made.action, made.behaviour_mean, made.behaviour_log_std)
            assert torch.equal(again, made.behaviour_logp)  # the closed-form KL is of the same policy
            assert not torch.equal(made.sampler_logp, made.version_logp)


@pytest.mark.parametrize("settings", [{}, {"mechanism": "replay", "lag": "fixed:2"}], ids=str)
def test_the_two_parts_of_the_drift_add_up(settings: dict[str, Any]) -> None:
    metrics = metrics_of(replace(SMALL, mismatch="noise:0.3", **settings))
    for m in metrics:
        engine, lag = (m[f"mismatch/kl_k1_{part}_data"] for part in ("engine", "lag"))
        assert m["kl_k1_data"] == pytest.approx(engine + lag, abs=1e-5)
        positive, negative, newer, older = (
            m[f"mismatch/tails_{name}"] for name in ("positive", "negative", "newer", "older")
        )
        assert positive + negative == pytest.approx(newer + older)
    assert abs(engine) > 1e-4 and abs(lag) > 1e-4
    assert metrics[0]["mismatch/kl_k1_lag_data"] == pytest.approx(0.0, abs=1e-6)


def test_a_stopped_run_under_noise_goes_on_to_the_same_bits() -> None:
    assert_resumes(replace(SMALL, mismatch="noise:0.2+fp8", mechanism="replay", lag="fixed:2"), 2)


def test_scores_are_of_the_trainers_weights() -> None:
    spec = replace(SMALL, learning_rate=1e-30, steps=6 * 32, evaluations=1, observation_statistics="snapshot")
    (plain,), (noisy,) = metrics_of(spec), metrics_of(replace(spec, mismatch="noise:1"))
    assert plain["untrained/deterministic"] == noisy["untrained/deterministic"]
    assert plain["rollout_return"] != noisy["rollout_return"]


@pytest.mark.parametrize("learner", ["native", "compiled"])
@pytest.mark.long
def test_other_arithmetic_acts_with_copies_too(learner: str) -> None:
    """Equal to torch as far as without a mismatch."""
    spec = replace(SMALL, mismatch="int4", steps=2 * 6 * 32)
    a, b = metrics_of(spec), metrics_of(replace(spec, learner=learner))
    for name in ("mismatch/kl_k3", "mismatch/kl_k1_engine_data", "kl_k1_data"):
        assert a[0][name] == pytest.approx(b[0][name], rel=2e-2, abs=1e-7), name
