"""The pass that scores a round which the learner sampled is the one that its gradient goes through: the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from language_fixtures import Specs

from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.spec import LanguageSpec
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import Version

pytestmark = pytest.mark.usefixtures("grades_by_length")


def run(spec: LanguageSpec, caches: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any], int]:
    """(parameters, metrics, passes)."""
    simulation: Any = simulation_of(spec)
    simulation.policy.caches_score &= caches
    seen: list[int] = []
    call = FusedForward.__call__

    def count(self: FusedForward, ids: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        seen.append(len(ids))
        return call(self, ids, *rest, **named)

    with monkeypatch.context() as context:
        context.setattr(FusedForward, "__call__", count)
        metrics = [record.metrics for record in simulation]
    return list(simulation.policy.parameters.values()), metrics, len(seen)


@pytest.mark.parametrize(
    ("settings", "fewer"),
    [
        ({}, True),
        ({"algorithm": "vaco", "hyper": {"advantage": "vtrace", "realign_every": "step"}}, True),
        ({"epochs": 2, "steps": 4}, True),
        ({"mask_truncated": True}, True),
        ({"capacity": 3}, True),  # in the first round there is one version
        ({"capacity": 3, "lag": "oldest"}, True),
        ({"minibatches": 2}, False),
        ({"micro_batch": 5}, False),
        ({"entropy_coef": 0.1}, False),
        ({"dynamic_sampling": True}, False),
        ({"algorithm": "vcpo"}, False),
    ],
)
@pytest.mark.long
def test_cached_scores_change_no_bit_and_save_a_pass(
    spec: Specs, settings: dict[str, Any], fewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spec(**settings)
    (a, said, passes), (b, wanted, all_passes) = (run(asked, caches, monkeypatch) for caches in (True, False))
    assert said == wanted
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert (passes < all_passes) is fewer


def test_a_cached_score_is_used_once_and_only_while_valid(spec: Specs) -> None:
    simulation: Any = simulation_of(spec())
    simulation.buffer.push(simulation.policy.snapshot(0, 0))
    made = simulation.generator.collect(simulation.buffer, 0).completions
    policy, given = simulation.policy, (made.prompt, made.prompt_mask, made.token, made.mask)

    def is_cached(*asked: torch.Tensor) -> bool:
        kept = policy.cache_score(*given)
        return policy.score(*asked) is kept

    assert is_cached(*given)
    assert policy.score(*given) is not policy.score(*given)
    assert not is_cached(made.prompt, made.prompt_mask, made.token.clone(), made.mask)
    kept = policy.cache_score(*given)
    with torch.no_grad():
        assert policy.score(*given) is not kept  # without gradient the model is asked
        next(iter(policy.parameters.values())).mul_(1.0)
    assert policy.score(*given) is not kept  # weights were written to


@pytest.mark.parametrize("settings", [{}, {"versions": "lora", "lora_rank": 2}], ids=["full", "lora"])
def test_a_version_is_the_learner_until_it_learns(spec: Specs, settings: dict[str, Any]) -> None:
    """A fused optimiser writes to parameters without autograd's counting it."""
    simulation: Any = simulation_of(spec(**settings, mask_truncated=True))
    policy = simulation.policy
    first = policy.snapshot(0, 0)
    assert policy.has_weights_of(first)
    assert not policy.has_weights_of(Version(0, 0, first.tensors))
    simulation.buffer.push(first)
    simulation.learner.train(simulation.collect(0).data, 0)
    assert not policy.has_weights_of(first) and policy.cached_score is None
    moved = policy.snapshot(1, 1)
    again = policy.snapshot(2, 1)  # of an evaluation's weights: no second copy
    assert again.phase == 2 and all(again.tensors[name] is x for name, x in moved.tensors.items())
    assert moved.tensors.keys() == first.tensors.keys()
    assert not any(moved.tensors[name] is x for name, x in first.tensors.items())
    moved = again
    assert policy.has_weights_of(moved) and not policy.has_weights_of(first)
    with torch.no_grad():
        next(iter(policy.parameters.values())).copy_(torch.zeros(()))
    assert not policy.has_weights_of(moved)
