"""The hook on a whole gradient, and GAC on it: against the formula, in every kind of learner, and over a resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from needs import has_compiler
from small_specs import small_chain, small_control
from torch import Tensor
from whole_runs import assert_resumes

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.errors import UserError
from staleharness.spec import RunSpec
from staleharness.task import find_env
from staleharness.training.base_learner import Learner
from staleharness.training.loop import simulation_of
from staleharness.training.optimiser import SuccessiveGradients

CONTROL = small_control(3, 2, 20, env="Pendulum-v1", hidden=(4,), max_grad_norm=1e9)
CHAIN = small_chain(9, 4, minibatches=3, max_grad_norm=1e9)
kinds = pytest.mark.parametrize(
    "spec", [CONTROL, replace(CONTROL, learner="native"), CHAIN], ids=["control", "native", "chain"]
)


def gac(**options: float) -> Any:
    return ALGORITHMS["gac"](**options)  # type: ignore[arg-type]


def spec_of(spec: RunSpec, algorithm: str = "gac") -> RunSpec:
    if getattr(spec, "learner", "") == "native" and not has_compiler():
        pytest.skip("needs a C++ compiler, which is not installed here")
    spec = replace(spec, algorithm=algorithm)
    find_env(spec.env)[1].check(spec)
    return spec


def projection(previous: np.ndarray, now: np.ndarray, share: float = 1.0) -> np.ndarray:
    """g − share (g·g'/|g'|²) g' where g·g' > 0."""
    product = sum(float(a) * float(b) for a, b in zip(previous, now, strict=True))
    length = sum(float(a) ** 2 for a in previous)
    return now - share * product / length * previous if product > 0 else now


@pytest.mark.parametrize(
    ("options", "previous", "now", "wanted"),
    [
        ({}, [2.0, 0.0], [3.0, 4.0], [0.0, 4.0]),  # a cosine of 0.6
        ({"share": 0.5}, [2.0, 0.0], [3.0, 4.0], [1.5, 4.0]),
        ({"aligned": 0.7}, [2.0, 0.0], [3.0, 4.0], [3.0, 4.0]),
        ({"skip": 0.5}, [2.0, 0.0], [3.0, 4.0], [0.0, 0.0]),
        ({"skip": 0.7}, [2.0, 0.0], [3.0, 4.0], [0.0, 4.0]),
        ({}, [-2.0, 0.0], [3.0, 4.0], [3.0, 4.0]),  # against the one before: as it is
        ({"aligned": -1.0}, [-2.0, 0.0], [3.0, 4.0], [0.0, 4.0]),
        ({}, [1.0, 1.0], [2.0, 2.0], [0.0, 0.0]),
        ({}, [0.0, 0.0], [3.0, 4.0], [3.0, 4.0]),
    ],
)
def test_gac_takes_away_what_points_along_the_gradient_before(
    options: dict[str, float], previous: list[float], now: list[float], wanted: list[float]
) -> None:
    given = [torch.tensor(x, dtype=torch.float64) for x in (previous, now)]
    answer = gac(**options).gradient(*given)
    torch.testing.assert_close(answer, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert given[0].tolist() == previous and given[1].tolist() == now


@pytest.mark.parametrize("seed", range(5))
def test_gac_is_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    previous, now = rng.normal(size=(2, 300)) + seed % 2
    for share in (1.0, 0.3):
        answer = gac(share=share).gradient(torch.from_numpy(previous), torch.from_numpy(now)).numpy()
        np.testing.assert_allclose(answer, projection(previous, now, share), rtol=1e-9, atol=1e-9)


@kinds
def test_the_policys_gradient_is_changed_and_no_other(spec: RunSpec) -> None:
    """Each step of a run: what it steps along is the literal projection of what the loss gave, in the policy's part."""
    simulation: Any = simulation_of(spec_of(spec))
    learner = simulation.learner
    size = getattr(simulation.policy, "actor_size", len(learner.parameters[0]))
    raw_gradients, step_gradients = [], []
    gradient, step = learner.gradient, learner.optimizer.clip_and_step

    def all_gradients() -> Tensor:
        return torch.cat([p.grad.flatten() for p in learner.parameters]).clone()

    def record_gradient(part: Any) -> Any:
        answer = gradient(part)
        raw_gradients.append(all_gradients())
        return answer

    def record_step(limit: float, rate: float) -> Tensor:
        step_gradients.append(all_gradients())
        return step(limit, rate)

    learner.gradient, learner.optimizer.clip_and_step = record_gradient, record_step
    cosines = [record.metrics["algorithm/gradient_cosine"] for record in simulation]
    assert len(raw_gradients) == len(step_gradients) > 8
    assert all(-1 <= c <= 1 for c in cosines) and len(set(cosines)) > 1
    assert torch.equal(raw_gradients[0], step_gradients[0])
    changed = 0
    for before, now, along in zip(raw_gradients, raw_gradients[1:], step_gradients[1:], strict=False):
        wanted = projection(before[:size].double().numpy(), now[:size].double().numpy())
        np.testing.assert_allclose(along[:size].numpy(), wanted, atol=1e-6 * float(now[:size].norm()))
        assert torch.equal(along[size:], now[size:])
        changed += not torch.equal(along, now)
    assert changed > 2


@kinds
def test_a_resumed_run_knows_the_gradient_before(spec: RunSpec) -> None:
    assert_resumes(spec_of(spec), 1)


@dataclass(frozen=True)
class HalfGradient(Algorithm):
    """Half of what the loss gave."""

    broken: bool = False

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-d.advantage * d.target_logp, {})

    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        return now[:-1] if self.broken else 0.5 * now


def test_gradients_of_several_tensors_are_one_vector_to_the_method() -> None:
    successive = SuccessiveGradients(HalfGradient())
    parts = [torch.tensor([[1.0, 2.0]]), torch.tensor([4.0])]
    successive.change(parts)
    assert successive.cosine == 0.0 and parts[0].tolist() == [[1.0, 2.0]]
    successive.change(parts)
    assert successive.cosine == pytest.approx(1.0)
    assert parts[0].tolist() == [[0.5, 1.0]] and parts[1].tolist() == [2.0]
    assert successive.previous is not None and successive.previous.tolist() == [1.0, 2.0, 4.0]


def test_a_gradient_of_another_length_is_one_line() -> None:
    successive = SuccessiveGradients(replace(HalfGradient(), broken=True))
    successive.change([torch.ones(3)])
    with pytest.raises(UserError, match=r"vector that gradient returns is of shape \[2\]; give .* here \[3\]"):
        successive.change([torch.ones(3)])


@pytest.mark.parametrize("name", ["previous", "now"])
def test_a_gradient_changed_in_place_is_refused(name: str) -> None:
    """The next step would be given it as the gradient that the loss gave."""

    class InPlace(HalfGradient):
        def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
            return {"previous": previous, "now": now}[name].mul_(0.5)

    successive = SuccessiveGradients(InPlace())
    successive.change([torch.ones(3)])
    with pytest.raises(UserError, match=f"gradient changes {name} in place; make a new tensor"):
        successive.change([torch.ones(3)])


def test_a_method_without_the_hook_holds_no_gradient() -> None:
    simulation: Any = simulation_of(spec_of(CHAIN, "ppo_clip"))
    assert simulation.learner.successive is None and simulation.learner.state_dict()["gradient"] is None
    assert "algorithm/gradient_cosine" not in next(iter(simulation)).metrics


class Bare(Learner[Any, Any]):
    """Only what construction takes."""

    def begin(self, data: Any, phase: int) -> dict[str, Any]:
        return {}

    def minibatches(self, epoch: int) -> Iterator[Any]:
        return iter(())

    def gradient(self, part: Any) -> Any: ...


def test_a_methods_tensors_are_on_the_learners_device(monkeypatch: pytest.MonkeyPatch) -> None:
    method, weights = gac(), torch.zeros(2, device="meta", requires_grad=True)
    state = {"mean": torch.ones(3), "dual": torch.ones((), requires_grad=True), "count": 1.0}
    monkeypatch.setattr(type(method), "init_state", lambda _: state)
    learner = Bare(CHAIN, method, [weights], [weights])
    assert {name: str(getattr(x, "device", "")) for name, x in learner.state.items()} == {
        "mean": "meta",
        "dual": "meta",
        "count": "",
    }
    assert learner.state["dual"].requires_grad and learner.state["dual"].is_leaf
