"""Values by the learner's critic, or by each version's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from control_runs import ENVS, PHASES, SMALL, STEPS, run
from torch import Tensor
from whole_runs import assert_resumes
from witness import MethodCalls

from staleharness.batch import Rollout
from staleharness.control.functional_mlp import layer_shapes, network, views_of
from staleharness.control.learner import ControlData, ControlLearner
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer, Version

Past = tuple[dict[int, Version], list[Rollout]]


@pytest.fixture
def stale_run(monkeypatch: pytest.MonkeyPatch) -> Past:
    """Every version that a run stores, by its number, and what each phase trains on."""
    versions: dict[int, Version] = {}
    rollouts: list[Rollout] = []
    push, begin = PolicyBuffer.push, ControlLearner.begin

    def store(self: PolicyBuffer, version: Version) -> None:
        versions[version.phase] = version
        push(self, version)

    def train(self: ControlLearner, data: ControlData, phase: int) -> dict[str, Any]:
        rollouts.append(data.rollout)
        return begin(self, data, phase)

    monkeypatch.setattr(PolicyBuffer, "push", store)
    monkeypatch.setattr(ControlLearner, "begin", train)
    return versions, rollouts


def by_its_own(version: Version, obs: Tensor) -> float:
    """V of one observation [D], by the critic and the statistics that a version was stored with."""
    kept = version.tensors
    x = ((obs - kept["mean"]) * kept["inverse_std"]).clamp(-10.0, 10.0)
    return float(network(views_of(kept["critic"], layer_shapes((len(obs), 64, 64, 1))), x[None]))


@pytest.mark.parametrize(
    "settings",
    [
        {"lag": "oldest"},
        {"assignment": "episode", "env": "Pendulum-v1", "num_steps": 220, "bootstrap_truncation": False},
        {"lag": "fixed:2", "mechanism": "replay"},
        {"lag": "queue[max_lag=2]", "minibatches": 1},
        {"lag": "oldest", "hyper": {"realign": "epoch"}},
    ],
    ids=str,
)
@pytest.mark.long
def test_a_method_is_shown_the_values_of_the_versions_that_acted(
    witness: MethodCalls, stale_run: Past, settings: dict[str, Any]
) -> None:
    """Decision by decision, and where an episode or a row ended; also when it realigns, for the learner's own go by."""
    versions, rollouts = stale_run
    steps = PHASES * ENVS * settings.get("num_steps", STEPS)
    run(witness, value_function="behaviour", steps=steps, **settings)
    each = len(witness.shown) // PHASES
    stale = 0
    for phase, rollout in enumerate(rollouts):
        rows, length = rollout.version.shape
        ends = {
            (int(b), int(t)): obs
            for b, t, obs in zip(rollout.final_row, rollout.final_step, rollout.final_obs, strict=True)
        }
        for b, t in [(b, t) for b in range(rows) for t in range(0, length, 7)] + list(ends):
            version = versions[int(rollout.version[b, t])]
            stale += version.phase < phase
            own = by_its_own(version, rollout.obs[b, t])
            if (b, t) in ends:
                after = by_its_own(version, ends[b, t])
            else:
                after = by_its_own(versions[int(rollout.version[b, t + 1])], rollout.obs[b, t + 1])
            for shown in witness.shown[phase * each : (phase + 1) * each]:
                assert float(shown.value[b, t]) == pytest.approx(own, abs=1e-5)
                assert float(shown.next_value[b, t]) == pytest.approx(after, abs=1e-5)
    assert stale > 0


def test_without_lag_the_two_are_one(witness: MethodCalls) -> None:
    shown = []
    for value_function in ("learner", "behaviour"):
        run(witness, capacity=1, value_function=value_function, steps=ENVS * STEPS)
        shown.append(witness.shown[0])
    for name in ("value", "next_value"):
        torch.testing.assert_close(getattr(shown[0], name), getattr(shown[1], name), rtol=0, atol=1e-5)


def test_stored_critics_resume_bit_for_bit_and_are_optional() -> None:
    spec = replace(SMALL, algorithm="vaco", value_function="behaviour", mechanism="replay")
    assert_resumes(spec, PHASES - 2)
    for value_function in ("behaviour", "learner"):
        simulation = simulation_of(replace(spec, value_function=value_function))
        assert ("critic" in simulation.policy.snapshot(0, 0).tensors) == (value_function == "behaviour")
        simulation.close()
