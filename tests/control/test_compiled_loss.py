"""learner=compiled: the loss of a method as compiled code where it can be traced, and as it is written where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from control_runs import SMALL
from known_plugins import loaded_plugins
from needs import needs_compiler
from torch import Tensor

from staleharness.algorithm import ALGORITHMS, Algorithm, unmet
from staleharness.batch import Decisions, PolicyLoss
from staleharness.control.compiled_loss import CompiledLoss
from staleharness.control.task import ControlTask
from staleharness.training.loop import simulation_of

with loaded_plugins():
    METHODS = [name for name in ALGORITHMS if unmet(ALGORITHMS[name](), ControlTask.provides) is None]

EAGER = {"bapo", "m2po", "p3o", "ppo_kl", "truly_ppo"}  # `state`, a closed-form KL, or an operation that no trace holds

pytestmark = needs_compiler


def decisions(n: int = 12, **more: Any) -> Decisions:
    generator = torch.Generator().manual_seed(0)
    logp, behaviour, proximal, advantage = (torch.randn(n, 1, generator=generator) for _ in range(4))
    lag = torch.arange(float(n))[:, None]
    return Decisions(
        target_logp=0.3 * logp,
        behaviour_logp=0.3 * behaviour,
        proximal_logp=0.3 * proximal,
        advantage=advantage,
        lag=lag,
        gradient_lag=4 * lag,
        mask=torch.ones(n, 1),
        **more,
    )


def eager(method: Algorithm, d: Decisions) -> tuple[PolicyLoss, Tensor]:
    logp = d.target_logp.clone().requires_grad_()
    answer = method.policy_loss(replace(d, target_logp=logp))
    (gradient,) = torch.autograd.grad(answer.loss, logp, d.mask / d.mask.numel())
    return answer, gradient


class WeightedMethod(Algorithm):
    """Importance weights and nothing else: a trace of few operations."""

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        weight = (d.target_logp - d.behaviour_logp).exp()
        return PolicyLoss(-weight * d.advantage, {"weight": weight})


class ReadsState(WeightedMethod):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(d.state["scale"] * super().policy_loss(d).loss)


class ReadsProgress(WeightedMethod):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss((1.0 - d.progress.fraction) * super().policy_loss(d).loss)


class Branches(WeightedMethod):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        sign = 1.0 if d.advantage.sum() > 0 else -1.0
        return PolicyLoss(sign * super().policy_loss(d).loss)


class DrawsNumbers(WeightedMethod):
    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(super().policy_loss(d).loss, {"noise": torch.rand_like(d.mask)})  # the gradient agrees


@pytest.mark.parametrize("compiler", ["none", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_loss_gradient_and_diagnostics_equal_eager(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor

    if compiler == "none":  # the trace as it is: compiling it takes ten seconds
        monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs: graph)
    compiled, d = CompiledLoss(WeightedMethod(), (12,)), decisions()
    found = compiled(d)
    assert found is not None
    wanted, gradient = eager(WeightedMethod(), d)
    torch.testing.assert_close(found[1], gradient, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found[0].loss, wanted.loss.detach().requires_grad_(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found[0].diagnostics["weight"], wanted.diagnostics["weight"].detach())
    other = replace(d, target_logp=d.target_logp + 0.5, advantage=-d.advantage)  # nothing of the first call is left
    again = compiled(other)
    assert again is not None
    torch.testing.assert_close(again[1], eager(WeightedMethod(), other)[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", [ReadsState, ReadsProgress, Branches, DrawsNumbers])
def test_a_loss_that_no_trace_can_hold_stays_eager(method: type[Algorithm]) -> None:
    assert CompiledLoss(method(), (12,))(decisions(state={"scale": 2.0})) is None


def test_a_compiled_gradient_that_differs_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor

    def wrong(graph: Any, inputs: Any) -> Any:
        return lambda *tensors: [1.001 * x for x in graph(*tensors)]

    monkeypatch.setattr(torch._inductor, "compile", wrong)
    assert CompiledLoss(WeightedMethod(), (12,))(decisions()) is None


def test_code_is_compiled_for_minibatches_of_known_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor

    calls: list[int] = []

    def count(graph: Any, inputs: Any) -> Any:
        calls.append(len(inputs[0]))
        return graph

    monkeypatch.setattr(torch._inductor, "compile", count)
    compiled = CompiledLoss(WeightedMethod(), (4, 5))
    results = [compiled(decisions(n)) is not None for n in (3, 4, 5, 4, 6, 5)]
    assert calls == [4, 5] and results == [False, True, True, True, False, True]


def test_the_data_at_hand_do_not_decide_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that resumes begins with another minibatch than the one that was not interrupted."""
    import torch._inductor

    def wrong_below_zero(graph: Any, inputs: Any) -> Any:
        return lambda *tensors: [1.001 * x if float(tensors[3].max()) < 0 else x for x in graph(*tensors)]

    monkeypatch.setattr(torch._inductor, "compile", wrong_below_zero)
    d = decisions()
    for advantage in (d.advantage.abs(), -d.advantage.abs()):
        compiled = CompiledLoss(WeightedMethod(), (12,))
        assert compiled(replace(d, advantage=advantage)) is not None


@pytest.mark.slow
def test_a_compiled_run_resumes_bit_for_bit() -> None:
    lag = "queue[max_lag=1,on_stale=mask_tokens,slots=1.5,in_flight=true]"  # masks decisions of the third phase
    spec = replace(SMALL, algorithm="ppo_clip", learner="compiled", lag=lag, capacity=4)
    whole, first = simulation_of(spec), simulation_of(spec)
    records = [whole.advance().metrics for _ in range(3)]
    first.advance()
    resumed = simulation_of(spec)
    resumed.load_state_dict(first.state_dict())
    for expected in records[1:]:
        assert resumed.advance().metrics == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_with_a_compiled_loss_is_the_native_run_up_to_rounding(method: str) -> None:
    runs = []
    for learner in ("native", "compiled"):
        simulation = simulation_of(replace(SMALL, algorithm=method, learner=learner, steps=SMALL.steps_per_phase))
        runs.append(simulation.advance().metrics)
    compiled = simulation.learner.compiled_loss.functions  # type: ignore[attr-defined]
    assert any(compiled.values()) == (method not in EAGER)
    for name in ("policy_loss", "value_loss", "grad_norm"):
        assert runs[1][name] == pytest.approx(runs[0][name], rel=1e-3, abs=1e-5), name
