"""K = 1 is synchronous training, bit for bit."""

from __future__ import annotations

import pytest
import torch
from kernels import products_keep_their_bits
from synchronous_ppo import train

from staleharness.control.spec import ControlSpec
from staleharness.task import simulation_of

SIZE = {"num_envs": 4, "num_steps": 96, "epochs": 3, "minibatches": 4}


@pytest.mark.parametrize("env", ["Hopper-v5", "HalfCheetah-v5"])
def test_capacity_one_is_an_independent_synchronous_loop_bit_for_bit(env: str) -> None:
    phases, seed = 5, 7
    spec = ControlSpec(
        env=env, algorithm="ppo_clip", capacity=1, seed=seed, steps=phases * 4 * 96, evaluations=1,
        evaluation_episodes=1, final_episodes=1, **SIZE,
    )  # fmt: skip
    simulation = simulation_of(spec)
    exact = all(products_keep_their_bits(*widths) for widths in ((11, 64, 64, 3), (17, 64, 64, 6)))
    for phase, expected in enumerate(train(env, seed=seed, phases=phases, **SIZE)):
        record = simulation.advance()
        ours = simulation.policy.flat.detach()
        if not exact and not torch.equal(ours, expected):  # later phases carry the difference on
            torch.testing.assert_close(ours, expected, rtol=0.0, atol=1e-5)
            pytest.skip(
                "this processor's products do not keep their bits; the first phase agrees within 1e-5"
            )
        assert torch.equal(ours, expected), (
            f"phase {phase}: {int((ours != expected).sum())} of {ours.numel()} parameters differ, "
            f"by up to {float((ours - expected).abs().max())}"
        )
        assert record.metrics["lag_max"] == 0


@pytest.mark.parametrize(
    "algorithm", ["ppo_clip", "ppo_kl", "spo", "impala", "vaco", "decoupled_ppo", "a3po"]
)
def test_without_lag_every_weight_is_exactly_one_before_the_first_step(algorithm: str) -> None:
    spec = ControlSpec(
        env="Hopper-v5", algorithm=algorithm, capacity=1, steps=3 * 4 * 96, evaluations=1, evaluation_episodes=1,
        final_episodes=1, **SIZE,
    )  # fmt: skip
    for record in simulation_of(spec):
        metrics = record.metrics
        assert (
            metrics["tv_data"] == 0.0
            and metrics["weight_max_data"] == 1.0
            and metrics["weight_std_data"] == 0.0
        )
        assert metrics["ess_data"] == 1.0
        assert metrics["clipped_first"] == 0.0
