"""learner=native computes what the torch learner computes, and says in one line where it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from control_runs import SMALL
from known_plugins import loaded_plugins
from needs import needs_compiler
from torch import Tensor
from whole_runs import assert_resumes

from staleharness.algorithm import ALGORITHMS, Algorithm, unmet
from staleharness.base.cpp_library import compiler_version
from staleharness.batch import Decisions, PolicyLoss, Values
from staleharness.control import native_actor_critic
from staleharness.control.action_distributions import Categorical, Distribution, Gaussian
from staleharness.control.policy import MLPPolicy, OutputGradient
from staleharness.control.task import ControlTask
from staleharness.errors import Diverged, UserError
from staleharness.running.run_record import fingerprint
from staleharness.training import loop
from staleharness.training.loop import simulation_of
from staleharness.training.optimiser import AdamW

with loaded_plugins():
    METHODS = [name for name in ALGORITHMS if unmet(ALGORITHMS[name](), ControlTask.provides) is None]

pytestmark = needs_compiler

SHAPES = [
    (11, 3, (64, 64), 64),
    (17, 6, (32,), 5),
    (5, 1, (7,), 33),
    (27, 8, (48, 33, 16), 700),
    (376, 17, (256, 128), 9),
]


def pair(
    obs_dim: int, actions: Distribution, hidden: tuple[int, ...]
) -> tuple[MLPPolicy, native_actor_critic.NativePolicy, torch.Generator]:
    """The same parameters and statistics in both arithmetics."""
    generator = torch.Generator().manual_seed(0)
    reference, policy = (
        MLPPolicy(obs_dim, actions, hidden, 1),
        native_actor_critic.NativePolicy(obs_dim, actions, hidden, 1),
    )
    reference.flat += 0.05 * torch.randn(reference.flat.shape, generator=generator)
    reference.mean.copy_(0.3 * torch.randn(obs_dim, generator=generator))
    reference.inverse_std.copy_(0.5 + torch.rand(obs_dim, generator=generator))
    for own, other in ((policy.flat, reference.flat), (policy.mean, reference.mean)):
        own.copy_(other)
    policy.inverse_std.copy_(reference.inverse_std)
    return reference, policy, generator


@torch.no_grad()
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("obs_dim", "act_dim", "hidden", "rows"), SHAPES)
def test_outputs_and_gradients_equal_those_of_torch(
    obs_dim: int, act_dim: int, hidden: tuple[int, ...], rows: int, discrete: bool
) -> None:
    actions = Categorical(act_dim + 1) if discrete else Gaussian(act_dim)
    reference, policy, generator = pair(obs_dim, actions, hidden)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    for n in (rows, rows + 1, rows):
        obs, index = 3.0 * draw(2 * n, obs_dim), torch.randperm(2 * n, generator=generator)[:n]
        action = draw(2 * n, act_dim)
        if discrete:
            action = torch.randint(act_dim + 1, (2 * n, 1), generator=generator).float()
        outputs, deviations = policy.act_dim, policy.distribution.deviations
        of_outputs = OutputGradient(draw(n) / n, draw(n) / n, draw(1)[0], draw(n, outputs) / n, draw(deviations))
        evaluations = [one.forward(obs, action, index) for one in (reference, policy)]
        for one in (reference, policy):
            one.backward(of_outputs)
        for name in ("logp", "value", "mean", "entropy"):
            wanted, found = (getattr(evaluation, name) for evaluation in evaluations)
            torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)
        largest = float(reference.flat_gradient.abs().max())
        assert float((policy.flat_gradient - reference.flat_gradient).abs().max()) < 2e-6 * max(1.0, largest)
        torch.testing.assert_close(policy.values(obs), reference.values(obs), rtol=2e-6, atol=2e-6)
        evaluation = policy.evaluate(obs, action)
        assert torch.equal(evaluation.logp[index], policy.forward(obs, action, index).logp)


@torch.no_grad()
@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_the_value_loss_and_its_gradient_equal_torch(clip: float) -> None:
    reference, policy, generator = pair(3, Gaussian(1), (8,))
    value, target, start = (torch.randn(77, generator=generator).round(decimals=1) for _ in range(3))
    start[:9] = value[:9]  # both errors are equal: half of the gradient each
    for wanted, found in zip(
        reference.value_loss(value, target, start, clip, 0.7),
        policy.value_loss(value, target, start, clip, 0.7),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


@torch.no_grad()
@pytest.mark.parametrize("limit", [0.5, float("inf")])
def test_steps_of_adamw_equal_those_of_torch(limit: float) -> None:
    reference, policy, generator = pair(11, Gaussian(3), (64, 64))
    settings = 1e-3, 1e-5, 0.1  # step size, epsilon, weight decay
    optimisers = [AdamW([reference.flat], *settings), native_actor_critic.NativeAdamW([policy.flat], *settings)]
    for step in range(4):
        gradient = torch.randn(reference.flat.shape, generator=generator)
        norms = []
        for one, optimiser in zip((reference, policy), optimisers, strict=True):
            one.flat_gradient.copy_(gradient)
            norms.append(optimiser.clip_and_step(limit, 3e-4 * (1 + step)))
        torch.testing.assert_close(norms[1], norms[0], rtol=1e-6, atol=0.0)
        torch.testing.assert_close(policy.flat, reference.flat, rtol=0.0, atol=1e-6)
    assert [float(optimiser.state_dict()["steps"][0]) for optimiser in optimisers] == [4.0, 4.0]


@torch.no_grad()
@pytest.mark.parametrize("act_dim", [1, 3])
def test_versions_act_with_the_bits_of_the_learner(act_dim: int) -> None:
    _, policy, generator = pair(11, Gaussian(act_dim), (64, 64))
    versions = []
    for phase in range(3):
        policy.flat += 0.01 * torch.randn(policy.flat.shape, generator=generator)
        policy.mean += 0.1
        versions.append(policy.snapshot(phase, phase))
    assignment = np.array([2, 0, 1, 2, 2, 0, 2])
    obs = torch.randn(len(assignment), 11, generator=generator)
    actors = policy.acting(versions, assignment)
    noise = torch.randn(len(assignment), act_dim, generator=generator)
    action, mean = actors.act(obs, noise)
    torch.testing.assert_close(action, mean + actors.std * noise, rtol=1e-6, atol=1e-7)
    assert torch.equal(actors.means(obs), mean) and torch.equal(actors.act(obs, 0.0 * noise)[0], mean)
    logp = policy.distribution.logp(action, mean, actors.log_std)
    now = policy.evaluate(obs, action)
    newest = torch.from_numpy(assignment == 2)
    assert torch.equal(mean[newest], now.mean[newest]) and torch.equal(logp[newest], now.logp[newest])
    for row, version in enumerate(assignment):
        alone = policy.acting([versions[version]], np.zeros(1, dtype=np.int64)).means(obs[row : row + 1])
        assert torch.equal(alone[0], mean[row])


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_and_step_of_every_method_equal_those_of_torch(method: str) -> None:
    """On the same data, from the same parameters, in the last minibatch of the first epoch of a stale phase."""
    spec = replace(SMALL, algorithm=method)
    reference, policy = (simulation_of(replace(spec, learner=name)) for name in ("torch", "native"))
    reference.advance()
    policy.load_state_dict(reference.state_dict())
    recorded: list[Any] = []

    def record(data: Any, phase: int) -> Any:
        recorded.extend((data, phase))
        raise InterruptedError

    reference.learner.train = record  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        reference.advance()
    gradients, stepped, before = [], [], reference.policy.flat.clone()
    for simulation in (reference, policy):
        learner = simulation.learner
        with torch.no_grad():
            learner.begin(*recorded)
        part = list(learner.minibatches(0))[-1]
        learner.gradient(part)
        gradients.append(learner.policy.flat_gradient.clone())
        learner.optimise(spec.learning_rate)
        stepped.append(learner.policy.flat.clone())
    largest = max(1.0, float(gradients[0].abs().max()))
    assert float(gradients[0].abs().max()) > 0.0
    assert float((gradients[1] - gradients[0]).abs().max()) < 1e-6 * largest
    assert float((stepped[1] - stepped[0]).abs().max()) < 1e-6
    assert float((stepped[0] - before).abs().max()) > 1e-5


class _Expanding(Algorithm):
    """A method whose losses have gradients that torch gives as one number for all decisions."""

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(1e-3 * (d.target_logp - d.behaviour_logp).sum().square().expand_as(d.mask))

    def value_loss(self, v: Values) -> Tensor:
        return ((v.value - v.target).sum() / v.mask.sum()).square().expand_as(v.mask)


def test_gradients_without_memory_of_their_own_are_read_right(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SMALL, algorithm="spo", epochs=1)
    norms = []
    for learner in ("torch", "native"):
        monkeypatch.setattr(loop, "make_algorithm", lambda spec: _Expanding())
        norms.append([record.metrics["grad_norm"] for record in simulation_of(replace(spec, learner=learner))])
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_run_resumes_with_the_same_bits(env: str) -> None:
    assert_resumes(replace(SMALL, env=env, learner="native", algorithm="ppo_clip"), 2)


def test_on_policy_ratios_are_exactly_one() -> None:
    simulation = simulation_of(replace(SMALL, learner="native", algorithm="ppo_clip", capacity=1))
    for record in simulation:
        assert record.metrics["tv_data"] == 0.0


@torch.no_grad()
def test_a_value_that_is_not_finite_stays_so() -> None:
    _, policy, _ = pair(3, Gaussian(1), (8,))
    obs = torch.tensor([[0.0, float("nan"), 0.0]])
    assert not policy.evaluate(obs, torch.zeros(1, 1)).logp.isfinite().all()
    simulation = simulation_of(replace(SMALL, learner="native", algorithm="ppo_clip"))
    simulation.learner.policy.flat[3] = float("nan")
    with pytest.raises(Diverged, match="not finite"):
        simulation.advance()


@pytest.fixture
def empty_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path))
    native_actor_critic.library.cache_clear()
    yield tmp_path
    native_actor_critic.library.cache_clear()


def test_a_machine_without_a_compiler_is_told_in_one_line(empty_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler.*learner=torch") as caught:
        native_actor_critic.library()
    assert "\n" not in str(caught.value)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(empty_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = empty_cache / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'no such flag' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(UserError, match=r"broken-c.* cannot build actor_critic_kernels.cpp: no such flag"):
        native_actor_critic.library()
    assert not list((empty_cache / "native").glob("*/native.so"))


def test_a_gpu_and_a_missing_compiler_are_refused_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="learner=compiled computes on the CPU"):
        replace(SMALL, learner="compiled", device="cuda")
    monkeypatch.setenv("CXX", "no-such-compiler")
    ControlTask.check_here(SMALL)
    with pytest.raises(UserError, match=r"CXX=no-such-compiler is not on the path"):
        ControlTask.check_here(replace(SMALL, learner="native"))


def test_the_fingerprint_names_the_compiler_of_a_native_run_alone() -> None:
    assert "compiler" not in fingerprint(SMALL)
    assert fingerprint(replace(SMALL, learner="native"))["compiler"] == compiler_version() != ""
