"""Runs whose sampler is not the trainer: which numbers become μ, what is said of them, and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from language_fixtures import Specs, error_line
from needs import needs_compiler
from whole_runs import all_equal, assert_resumes, metrics_of, run_whole

from staleharness.errors import UserError
from staleharness.language.decoder_interface import DECODERS, Decoded, Request, check_sampler
from staleharness.language.in_process_decoders import TransformersDecoder
from staleharness.language.simulation import KEPT_CACHE
from staleharness.mismatch import Place, read_mismatch
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer

pytestmark = pytest.mark.usefixtures("grades_by_length")


def first_round(spec: Any) -> tuple[Any, Any]:
    """The simulation and the completions of its first round."""
    simulation: Any = simulation_of(spec)
    simulation.buffer.push(simulation.policy.snapshot(0, 0))
    return simulation, simulation.generator.collect(simulation.buffer, 0).completions


@pytest.mark.parametrize("lag", ["oldest", "inflight:3"])
def test_noise_of_size_zero_gives_the_bits_of_none(spec: Specs, lag: str) -> None:
    """With μ by the trainer's arithmetic: decoding and scoring round differently."""
    settings = {"capacity": 3, "lag": lag, "steps": 3, "behaviour": "version"}
    (a, x), (b, y) = (run_whole(spec(mismatch=text, **settings)) for text in ("none", "noise:0"))
    assert a == b and all_equal(x, y)
    assert metrics_of(spec(mismatch="noise:0.1", **settings)) != a


def test_the_sampler_samples_from_a_copy_and_says_so(spec: Specs) -> None:
    """Sampled tokens, and what is reported of them, are those of a run whose trainer has the copied weights."""
    simulation, made = first_round(spec(mismatch="int4"))
    other, _ = first_round(spec())
    with torch.no_grad():
        for name, p in other.policy.parameters.items():
            if ".layers." in name and p.ndim == 2:
                p.copy_(read_mismatch("int4")[0].matrix(p, Place(name, 0, 0)))
    other.generator.cursor = 0
    other.buffer.push(other.policy.snapshot(0, 0))
    copied = other.generator.collect(other.buffer, 0).completions
    assert torch.equal(made.token, copied.token) and torch.equal(made.mask, copied.mask)
    torch.testing.assert_close(made.sampler_logp, copied.version_logp, atol=1e-5, rtol=1e-5)
    assert torch.equal(made.behaviour_logp, made.sampler_logp)
    assert (made.version_logp - made.sampler_logp).abs().max() > 0.05
    with torch.no_grad():
        scored = simulation.policy.score(made.prompt, made.prompt_mask, made.token, made.mask)
    torch.testing.assert_close(made.version_logp, scored.logp)
    torch.testing.assert_close(made.version_entropy, scored.entropy)


@pytest.mark.parametrize(
    ("settings", "sampler"),
    [
        ({}, False),
        ({"behaviour": "sampler"}, True),
        ({"mismatch": "fp8"}, True),
        ({"mismatch": "fp8", "behaviour": "version"}, False),
        ({"lag": "inflight:3", "kv_cache": "keep", "capacity": 2}, True),
        ({"lag": "inflight:3", "kv_cache": "keep", "capacity": 2, "behaviour": "version"}, False),
    ],
)
def test_mu_is_the_number_that_the_setting_names(spec: Specs, settings: dict[str, Any], sampler: bool) -> None:
    _, made = first_round(spec(**settings))
    assert torch.equal(made.behaviour_logp, made.sampler_logp if sampler else made.version_logp)
    assert not torch.equal(made.sampler_logp, made.version_logp)


def test_a_kept_cache_is_called_a_third_source(spec: Specs) -> None:
    """Only where weights change inside a completion: elsewhere nothing is kept."""
    for lag, kv_cache, is_noted in (
        ("inflight:3", "keep", True),
        ("inflight:3", "recompute", False),
        ("oldest", "keep", False),
    ):
        simulation: Any = simulation_of(spec(lag=lag, kv_cache=kv_cache, capacity=2))
        assert [line for line in simulation.warnings if "third source" in line] == [KEPT_CACHE] * is_noted


@pytest.mark.parametrize("decoder", ["transformers", "shared_prompts", pytest.param("native", marks=needs_compiler)])
def test_with_top_p_every_weight_is_the_mass_that_is_kept(spec: Specs, decoder: str) -> None:
    """log π/μ = log S of the token's own distribution, whatever the token."""
    simulation, made = first_round(spec(mismatch="sampling[top_p=0.6]", decoder=decoder))
    prompt, seen = made.prompt, 0
    for row in range(len(made.token)):
        ids = prompt[row][made.prompt_mask[row].bool()].tolist()
        for t in range(int(made.mask[row].sum())):
            with torch.no_grad():
                logits = simulation.policy.model(torch.tensor([ids])).logits[0, -1].double()
            p = logits.softmax(-1).numpy()
            order, kept, mass = np.argsort(-p, kind="stable"), [], 0.0
            for i in order:
                if mass >= 0.6:
                    break
                kept.append(int(i))
                mass += p[i]
            token = int(made.token[row, t])
            assert token in kept
            w = (made.version_logp[row, t] - made.behaviour_logp[row, t]).exp()
            assert float(w) == pytest.approx(mass, rel=1e-4)
            seen += len(kept) < len(p)
            ids.append(token)
    assert seen > 20


def test_raw_log_probabilities_hide_what_the_surprisal_gap_shows(spec: Specs) -> None:
    settings = {"prompts": 40, "steps": 1, "behaviour": "version"}
    (raw,) = metrics_of(spec(mismatch="sampling[top_p=0.7,logprobs=raw]", **settings))
    (honest,) = metrics_of(spec(**settings))
    assert raw["mismatch/kl_k3"] == pytest.approx(0.0, abs=1e-9)
    assert raw["mismatch/surprisal_gap"] > 5 > 3 > abs(honest["mismatch/surprisal_gap"])


def test_the_two_parts_of_the_drift_add_up(spec: Specs) -> None:
    """k1 of π against μ is that of the version against the sampler plus that of π against the version."""
    simulation: Any = simulation_of(spec(mismatch="noise:0.2", capacity=3, lag="oldest", minibatches=1, steps=4))
    for record in simulation:
        m = record.metrics
        assert m["kl_k1"] == pytest.approx(m["mismatch/kl_k1_engine"] + m["mismatch/kl_k1_lag"], abs=1e-5)
        engine, lag = (m[f"mismatch/kl_k1_{part}_data"] for part in ("engine", "lag"))
        assert m["kl_k1_data"] == pytest.approx(engine + lag, abs=1e-5)
        assert engine == pytest.approx(m["mismatch/kl_k1"], abs=1e-5)
    assert abs(engine) > 1e-3 and abs(lag) > 1e-4
    (first,) = metrics_of(spec(mismatch="noise:0.2", steps=1))
    assert first["mismatch/kl_k1_lag_data"] == pytest.approx(0.0, abs=1e-6)


def test_a_stopped_run_under_noise_goes_on_to_the_same_bits(spec: Specs) -> None:
    assert_resumes(spec(capacity=3, lag="oldest", steps=5, mismatch="noise:0.1", evaluations=2), 3)


def test_scores_are_of_the_trainers_weights(spec: Specs) -> None:
    (plain,), (noisy,) = (metrics_of(spec(steps=1, learning_rate=1e-12, mismatch=text)) for text in ("none", "noise:1"))
    assert plain["eval_deterministic"] == noisy["eval_deterministic"]
    assert plain["untrained/deterministic"] == noisy["untrained/deterministic"]
    assert plain["reward"] != noisy["reward"]


class Silent(TransformersDecoder):
    """An engine that reports no log-probabilities and samples its own way."""

    reports_logp, reads_sampling = False, False

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        from dataclasses import replace

        return replace(super().decode(request, buffer), logp=None)


def test_a_silent_engine_serves_only_where_mu_is_the_version(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    len(list(DECODERS))
    monkeypatch.setitem(DECODERS._classes, "silent", Silent)
    monkeypatch.setattr(Silent, "name", "silent")
    check_sampler(spec(decoder="silent"))
    check_sampler(spec(decoder="silent", mismatch="fp8", behaviour="version"))
    line = error_line(lambda: check_sampler(spec(decoder="silent", mismatch="fp8")))
    assert "the decoder silent reports no log-probabilities" in line and "SET=behaviour=version" in line
    shaped = {"mismatch": "sampling:0.8", "behaviour": "version"}
    assert "temperature 1 only" in error_line(lambda: check_sampler(spec(decoder="silent", **shaped)))
    simulation, _ = first_round(spec())
    silent = Silent(simulation.policy)
    simulation.sampler.decoder = silent
    request = simulation.sampler.request([0], [(0, 0)], np.zeros((3, 1), np.int64), 10)
    decoded = simulation.sampler.decode(request, simulation.buffer)
    arguments = request, decoded, simulation.buffer, [0], np.zeros(1, np.int64)
    of_silent = simulation.sampler.grade(*arguments)
    assert of_silent.sampler_logp is None and torch.equal(of_silent.behaviour_logp, of_silent.version_logp)
    simulation.policy.spec = spec(behaviour="sampler")
    with pytest.raises(UserError, match="silent reports no log-probabilities"):
        simulation.sampler.grade(*arguments)


def test_a_method_that_does_not_read_mu_says_that_it_is_blind(spec: Specs) -> None:
    anchored = {"algorithm": "ppo_clip", "hyper": {"anchor": "proximal"}}
    (line, *_) = simulation_of(spec(mismatch="fp8", **anchored)).warnings
    assert "blind to MISMATCH=fp8" in line and "does not depend on μ" in line
    (line,) = simulation_of(spec(mismatch="fp8", behaviour="version")).warnings
    assert "blind to MISMATCH=fp8" in line and "behaviour=version" in line
    for method in ("ppo_clip", "tis", "vaco", "mis_seq", "dppo", "gspo", "icepop", "decoupled_ppo"):
        assert not any("blind" in text for text in simulation_of(spec(mismatch="fp8", algorithm=method)).warnings), (
            method
        )
    engine = {"algorithm": "tis", "hyper": {"correct": "engine"}}
    assert not any("blind" in text for text in simulation_of(spec(mismatch="fp8", **engine)).warnings)
