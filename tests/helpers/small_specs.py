"""Short runs on control and chains, each with a single short evaluation."""

from __future__ import annotations

from typing import Any

from staleharness.chain.spec import ChainSpec
from staleharness.control.spec import ControlSpec


def small_control(phases: int, num_envs: int, num_steps: int, **settings: Any) -> ControlSpec:
    """Return a run of so many phases: PPO-clip on Hopper, two epochs of two minibatches, except for `settings`."""
    usual = {"env": "Hopper-v5", "algorithm": "ppo_clip", "capacity": 2, "epochs": 2, "minibatches": 2}
    evaluation = {"evaluations": 1, "evaluation_episodes": 1, "final_episodes": 1}
    steps = phases * num_envs * num_steps
    return ControlSpec(steps=steps, num_envs=num_envs, num_steps=num_steps, **(usual | evaluation | settings))


def small_chain(steps: int, batch: int, **settings: Any) -> ChainSpec:
    """Return a run of so many gradient steps on rows of six decisions, except for `settings`."""
    usual = {"env": "bit-chain", "algorithm": "seq_is", "horizon": 6, "capacity": 3, "start": 0.4, "evaluations": 1}
    return ChainSpec.from_dict({"steps": steps, "batch": batch, **usual, **settings})
