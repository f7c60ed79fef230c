"""Runs on the bit chain: the noise, the lag, the gradient, resuming, and what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from whole_runs import assert_resumes, metrics_of

from staleharness.algorithm import ALGORITHMS
from staleharness.base.streams import stream
from staleharness.chain.simulation import ChainSimulation
from staleharness.chain.spec import ChainSpec
from staleharness.running.runner_interface import Job
from staleharness.running.worker import execute
from staleharness.statistics import scores
from staleharness.store.store import Store
from staleharness.training.loop import simulation_of


def spec_of(**settings: Any) -> ChainSpec:
    small = {"env": "bit-chain", "algorithm": "seq_is", "horizon": 6, "batch": 8, "steps": 6, "evaluations": 2}
    return ChainSpec.from_dict({**small, **settings})


def advance(spec: ChainSpec, phases: int) -> ChainSimulation:
    """A simulation that has done some phases and stored the version of the next."""
    simulation = simulation_of(spec)
    for _ in range(phases):
        simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(phases, simulation.gradient_steps))
    return simulation


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def test_the_same_spec_gives_the_same_bits_and_another_seed_others() -> None:
    assert metrics_of(spec_of(capacity=3)) == metrics_of(spec_of(capacity=3))
    assert metrics_of(spec_of(capacity=3)) != metrics_of(spec_of(capacity=3, seed=1))


def test_recorded_logp_is_that_of_the_acting_version() -> None:
    simulation = advance(spec_of(capacity=4, learning_rate=0.5), 5)
    data = simulation.collect(5).data
    assert len(data.version.unique()) > 1
    for row in range(len(data.token)):
        (number,) = data.version[row].unique().tolist()
        version = simulation.buffer[number]
        p = sigmoid(version.tensors["logits"].double().numpy())
        bits = data.token[row].numpy()
        expected = np.log(np.where(bits == 1, p, 1.0 - p))
        np.testing.assert_allclose(data.behaviour_logp[row].numpy(), expected, rtol=1e-5)
        assert (data.gradient_step[row] == version.gradient_step).all() and number == version.gradient_step


def test_a_bit_compares_one_uniform_number_with_its_probability() -> None:
    small, large = (advance(spec_of(batch=batch), 0) for batch in (8, 64))
    noise = stream(0, "action", 0).random((64, 6), np.float32)
    bits = large.collect(0).data.token.numpy()
    assert (bits == (noise < large.policy.logits.sigmoid().detach().numpy())).all()
    assert (small.collect(0).data.token.numpy() == bits[:8]).all()


@pytest.mark.parametrize("horizon", [1, 7, 64, 129])
def test_without_lag_every_weight_is_exactly_one(horizon: int) -> None:
    for m in metrics_of(spec_of(horizon=horizon, learning_rate=0.3)):
        assert (m["weight_min"], m["weight_max"], m["weight_sequence_max"], m["tv"]) == (1.0, 1.0, 1.0, 0.0)


def test_lag_is_as_the_model_says() -> None:
    for phase, m in enumerate(metrics_of(spec_of(capacity=3, lag="fixed:2"))):
        assert m["lag_max"] == m["lag_mean"] == m["lag_p95"] == min(phase, 2)
    counts = metrics_of(spec_of(capacity=3, batch=300))[-1]["lag_histogram"]
    assert len(counts) == 3 and sum(counts) == 300 * 6 and min(counts) > 400


@pytest.mark.parametrize("level", ["sequence", "token", "geometric"])
def test_the_gradient_of_a_stale_step_is_the_formula(level: str) -> None:
    """−1/(B·H) Σ_i Σ_t u_it (R_i − R̄)(b_it − p_t) with u the weight at its level, worked out in NumPy."""
    spec = spec_of(
        capacity=4, learning_rate=0.4, algorithm="tis", hyper={"cap": 0.0, "level": level}, batch=32, start=0.4
    )
    simulation = advance(spec, 4)
    data = simulation.collect(4).data
    p = sigmoid(simulation.policy.logits.detach().double().numpy())
    bits = data.token.numpy()
    log_w = np.log(np.where(bits == 1, p, 1.0 - p)) - data.behaviour_logp.double().numpy()
    weight = {
        "sequence": np.exp(log_w.sum(1, keepdims=True)),
        "token": np.exp(log_w),
        "geometric": np.exp(log_w.mean(1, keepdims=True)),
    }[level]
    reward = (bits.sum(1) >= 5).astype(float)
    assert 0 < reward.sum() < len(reward) and weight.std() > 0.05
    expected = -(weight * (reward - reward.mean())[:, None] * (bits - p)).mean(0) / 6
    simulation.learner.train(data, 4)
    assert simulation.policy.logits.grad is not None
    np.testing.assert_allclose(simulation.policy.logits.grad.numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("algorithm", ["seq_is", "tis", "ppo_clip"])
def test_without_lag_it_is_a_plain_on_policy_loop(algorithm: str) -> None:
    """REINFORCE with the batch's mean as baseline and Adam, in float64 and without the harness."""
    spec = spec_of(algorithm=algorithm, horizon=8, batch=32, steps=20, start=0.3, learning_rate=0.1)
    simulation = simulation_of(spec)
    logits = simulation.policy.logits.detach().double().numpy().copy()
    first, second = np.zeros(8), np.zeros(8)
    for step in range(1, 21):
        p = sigmoid(logits)
        bits = stream(0, "action", step - 1).random((32, 8), np.float32) < p.astype(np.float32)
        reward = (bits.sum(1) >= 6).astype(float)
        gradient = -((reward - reward.mean())[:, None] * (bits - p)).mean(0) / 8
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        logits -= 0.1 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        simulation.advance()
        np.testing.assert_allclose(simulation.policy.logits.detach().numpy(), logits, atol=2e-4)


def test_a_stopped_run_goes_on_as_if_nothing_had_happened() -> None:
    assert_resumes(spec_of(capacity=3, algorithm="ppo_kl", hyper={"adaptive": True}, minibatches=2, steps=12), 3)


def test_the_second_minibatch_is_off_policy() -> None:
    one, two = (metrics_of(spec_of(minibatches=n, learning_rate=0.3, start=0.5))[0] for n in (1, 2))
    assert one["weight_max"] == 1.0 and two["weight_max"] > 1.0
    assert two["gradient_steps"] == 2 and one["gradient_steps"] == 1


def test_each_minibatch_is_a_group_of_its_own() -> None:
    data = advance(spec_of(minibatches=3, batch=8), 0).collect(0).data
    assert data.group.tolist() == [0] * 8 + [1] * 8 + [2] * 8


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if "closed_form" not in ALGORITHMS[n].needs])
def test_every_method_runs_from_its_own_file(name: str) -> None:
    records = metrics_of(spec_of(algorithm=name, capacity=2, steps=4, minibatches=2, start=0.5))
    assert len(records) == 2 and np.isfinite(records[-1]["eval_sampled"])


def test_learning_is_seen_in_the_exact_success_probability() -> None:
    records = metrics_of(spec_of(capacity=4, steps=60, batch=64, learning_rate=0.1))
    assert records[-1]["eval_sampled"] > 0.9 and records[-1]["eval_deterministic"] == 1.0


def test_a_stored_run_is_reported_by_its_success_probability(tmp_path: Path) -> None:
    spec = spec_of(capacity=2)
    store = Store(tmp_path)
    store.open_for_writing()
    folder = execute(Job("0123456789ab", "seq_is", spec.to_dict(), str(tmp_path)), lambda event: None, lambda: False)
    record = json.loads((folder / "run.json").read_text())
    runs = store.read_all()
    assert record["task"]["unit"] == scores.unit(runs) == "optimiser steps"
    assert scores.resolve_auto(runs, "auto", "auto") == ("sampled", "raw")
    assert scores.score_in_words(runs, "sampled") == "success probability"
    simulation = simulation_of(spec)
    *_, last = simulation
    p = torch.sigmoid(simulation.policy.logits.detach().double()).numpy()
    assert record["scores"]["sampled"]["mean"] == simulation.task.success_probability(spec, p)
    assert last.scores is not None and last.scores.steps == record["evaluation_steps"] == 0
