"""Methods that use more than log-probabilities: the policies' distributions, trained duals, a state of each step."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from control_runs import EPOCHS, PARTS, PHASES, SMALL
from known_plugins import loaded_plugins
from torch import Tensor
from torch.distributions import Categorical, Normal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss, Values
from staleharness.errors import UserError
from staleharness.objectives import importance_ratio
from staleharness.testing.algorithm_contract import check_algorithm
from staleharness.training.loop import simulation_of

STEPS = PHASES * EPOCHS * PARTS


@dataclass(frozen=True)
class OfLogp(Algorithm):
    """w·A."""

    name = "of_logp"
    paper = "unpublished"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        return PolicyLoss(-importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage)


@dataclass(frozen=True)
class OfDistribution(OfLogp):
    """The same, from the parameters of the two policies alone."""

    name = "of_distribution"
    needs = frozenset({"distribution"})
    seen: ClassVar[list[Decisions]] = []

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        self.seen.append(d)
        assert d.action is not None and d.mean is not None and d.std is not None
        assert d.behaviour_mean is not None and d.behaviour_std is not None
        if d.std.shape[-1]:
            now, then = Normal(d.mean, d.std), Normal(d.behaviour_mean, d.behaviour_std)
            logp, behaviour = now.log_prob(d.action).sum(-1), then.log_prob(d.action).sum(-1)
        else:
            choice = d.action.squeeze(-1)
            logp = Categorical(logits=d.mean).log_prob(choice)
            behaviour = Categorical(logits=d.behaviour_mean).log_prob(choice)
        return PolicyLoss(-importance_ratio(logp, behaviour) * d.advantage)


@dataclass(frozen=True)
class DualMethod(OfLogp):
    """A dual η with the loss (η − (number of steps))², beside the ratio's, and a state that counts steps."""

    name = "learned"
    rate: float = 0.05
    seen: ClassVar[list[dict[str, Any]]] = []

    @property
    def state_learning_rate(self) -> float:
        return self.rate

    def init_state(self) -> dict[str, Any]:
        return {"eta": torch.tensor(1.0, requires_grad=True), "steps": 0.0, "told": 0.0}

    def step_state(self, state: Mapping[str, Any], diagnostics: Mapping[str, float]) -> dict[str, Any]:
        return {**state, "steps": state["steps"] + 1.0, "told": diagnostics["advantage"]}

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        eta = d.state["eta"]
        self.seen.append({**d.state, "eta": float(eta.detach()), "advantage": float(d.advantage.mean())})
        dual = (eta - d.state["steps"]).square()
        return PolicyLoss(super().policy_loss(d).loss + dual, {"advantage": d.advantage})


@dataclass(frozen=True)
class WeightedCritic(OfLogp):
    """½ (V − target)² e^−2σ + σ with a trained σ."""

    name = "weighted_critic"
    state_learning_rate = 0.05
    detached: bool = False
    seen: ClassVar[list[tuple[float, float]]] = []

    def init_state(self) -> dict[str, Any]:
        return {"sigma": torch.tensor(0.3, requires_grad=True)}

    def value_loss(self, values: Values) -> Tensor:
        value = values.value.detach() if self.detached else values.value
        error, sigma = (value - values.target).square(), values.state["sigma"]
        self.seen.append((float(sigma.detach()), float(error.detach().mean())))
        return 0.5 * error * (-2.0 * sigma).exp() + sigma


@dataclass(frozen=True)
class StepNumber(OfLogp):
    """Reports the number of the gradient step under two names."""

    name = "step_number"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        number = torch.full_like(d.advantage, float(d.progress.step))
        return PolicyLoss(super().policy_loss(d).loss, {"step": number, "step_max": number})


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with loaded_plugins():
        for cls in (OfLogp, OfDistribution, DualMethod, WeightedCritic, StepNumber):
            ALGORITHMS.register(cls.name)(cls)
        OfDistribution.seen.clear()
        DualMethod.seen.clear()
        WeightedCritic.seen.clear()
        yield


def trained(name: str, **settings: Any) -> torch.Tensor:
    """Parameters at the end of a small run."""
    simulation: Any = simulation_of(replace(SMALL, algorithm=name, **settings))
    for _ in simulation:
        pass
    simulation.close()
    parameters: torch.Tensor = simulation.policy.flat
    return parameters.detach().clone()


@pytest.mark.parametrize(
    ("env", "learner"),
    [("Hopper-v5", "torch"), ("Hopper-v5", "native"), ("Hopper-v5", "compiled"), ("CartPole-v1", "torch")],
)
@pytest.mark.long
def test_a_loss_of_means_and_deviations_trains_as_of_logp(env: str, learner: str) -> None:
    wanted, start = trained("of_logp", env=env), trained("of_logp", env=env, learning_rate=1e-12)
    torch.testing.assert_close(trained("of_distribution", env=env, learner=learner), wanted, atol=2e-4, rtol=1e-3)
    assert float((wanted - start).abs().max()) > 0.01
    assert len(OfDistribution.seen) >= STEPS
    d = OfDistribution.seen[-1]
    assert d.observation is not None and d.observation.shape == (*d.mask.shape, 11 if env == "Hopper-v5" else 4)
    assert d.value is not None and d.value.shape == d.mask.shape and not d.value.requires_grad


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_pull_on_means_alone_is_not_clipped(env: str) -> None:
    simulation = simulation_of(replace(SMALL, algorithm="of_distribution", env=env))
    assert simulation.advance().metrics["clipped"] == 0.0


def test_a_dual_follows_adam_and_state_moves_each_step() -> None:
    trained("learned")
    eta = torch.tensor(1.0, requires_grad=True)
    adam = torch.optim.Adam([eta], lr=0.05, eps=SMALL.adam_epsilon)
    assert len(DualMethod.seen) == STEPS
    for step, seen in enumerate(DualMethod.seen):
        assert seen["steps"] == step and seen["eta"] == pytest.approx(eta.item(), abs=1e-5)
        if step:
            assert seen["told"] == pytest.approx(DualMethod.seen[step - 1]["advantage"], abs=1e-6)
        adam.zero_grad()
        (eta - step).square().backward()
        adam.step()


def test_a_state_in_the_critics_loss_is_trained_on_it() -> None:
    trained("weighted_critic")
    sigma = torch.tensor(0.3, requires_grad=True)
    adam = torch.optim.Adam([sigma], lr=0.05, eps=SMALL.adam_epsilon)
    assert len(WeightedCritic.seen) == STEPS
    for seen, error in WeightedCritic.seen:
        assert seen == pytest.approx(sigma.item(), abs=1e-5)
        adam.zero_grad()
        (SMALL.value_coef * (0.5 * error * (-2.0 * sigma).exp() + sigma)).backward()
        adam.step()


def test_a_state_does_not_hide_a_detached_value() -> None:
    with pytest.raises(UserError, match=r"^weighted_critic: value_loss does not depend on values\.value, so no critic"):
        trained("weighted_critic", hyper={"detached": True})


def test_a_resumed_run_trains_its_dual_to_the_same_bits() -> None:
    spec = replace(SMALL, algorithm="learned")
    whole: Any = simulation_of(spec)
    phases = iter(whole)
    next(phases), next(phases)
    held = io.BytesIO()
    torch.save(whole.state_dict(), held)
    for _ in phases:
        pass
    resumed: Any = simulation_of(spec)
    resumed.load_state_dict(torch.load(io.BytesIO(held.getvalue()), weights_only=False))
    for _ in resumed:
        pass
    assert torch.equal(whole.policy.flat, resumed.policy.flat)
    assert torch.equal(whole.learner.state["eta"], resumed.learner.state["eta"])
    assert whole.learner.state["steps"] == resumed.learner.state["steps"] == STEPS


@pytest.mark.parametrize("cls", [OfDistribution, DualMethod])
def test_such_methods_keep_the_contract(cls: type[Algorithm]) -> None:
    check_algorithm(cls)


def test_a_mixture_of_versions_has_no_mean_and_deviation() -> None:
    spec = replace(SMALL, algorithm="of_distribution", density="mixture")
    next(iter(simulation_of(replace(spec, capacity=1))))
    with pytest.raises(AssertionError):  # of the method, which does not go on without
        list(simulation_of(spec))
    assert OfDistribution.seen[-1].mean is not None and OfDistribution.seen[-1].behaviour_mean is None


def test_diagnostics_are_means_whatever_their_name() -> None:
    for record in simulation_of(replace(SMALL, algorithm="step_number")):
        assert record.metrics["algorithm/step_max"] == record.metrics["algorithm/step"] == (PARTS - 1) / 2
