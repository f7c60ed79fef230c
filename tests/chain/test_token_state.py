"""A state that is trained and one that moves at every step, with the learner of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from chain_runs import PHASES, STEPS, chains
from known_plugins import loaded_plugins

from staleharness.algorithm import ALGORITHMS, Algorithm, check
from staleharness.batch import Decisions, PolicyLoss
from staleharness.errors import UserError
from staleharness.objectives import importance_ratio


@dataclass(frozen=True)
class TokenDual(Algorithm):
    """w·A beside (η − number of steps)²."""

    name = "token_dual"
    paper = "unpublished"
    seen: ClassVar[list[dict[str, float]]] = []

    def init_state(self) -> dict[str, Any]:
        return {"eta": torch.tensor(0.5, requires_grad=True), "steps": 0.0}

    def step_state(self, state: Mapping[str, Any], diagnostics: Mapping[str, float]) -> dict[str, Any]:
        return {**state, "steps": state["steps"] + 1.0}

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        eta = d.state["eta"]
        self.seen.append({"steps": d.state["steps"], "eta": eta.item()})
        weight = importance_ratio(d.target_logp, d.behaviour_logp) * d.advantage
        return PolicyLoss((eta - d.state["steps"]).square() - weight)


@pytest.fixture(autouse=True)
def method() -> Iterator[None]:
    with loaded_plugins():
        ALGORITHMS.register("token_dual")(TokenDual)
        TokenDual.seen.clear()
        yield


def test_a_dual_of_tokens_follows_adam_at_the_rate_of_the_run() -> None:
    simulation = chains(algorithm="token_dual")
    rates = [record.metrics["learning_rate"] for record in simulation]
    assert len(TokenDual.seen) == PHASES * STEPS
    eta = torch.tensor(0.5, requires_grad=True)
    adam = torch.optim.Adam([eta], lr=1.0, eps=simulation.spec.adam_epsilon)
    for step, seen in enumerate(TokenDual.seen):
        assert seen == {"steps": step, "eta": pytest.approx(eta.item(), abs=1e-5)}
        adam.param_groups[0]["lr"] = rates[step // STEPS]
        adam.zero_grad()
        (eta - step).square().backward()
        adam.step()
    assert abs(eta.item() - 0.5) > 1e-3


def test_a_need_of_distributions_is_refused_on_tokens() -> None:
    needy = type("Needy", (TokenDual,), {"name": "needy", "needs": frozenset({"distribution"})})()
    with pytest.raises(UserError, match="needy needs observations, actions and the parameters of a distribution"):
        check(needy, chains(algorithm="token_dual").spec, frozenset({"groups", "logit_norm", "reference"}))
