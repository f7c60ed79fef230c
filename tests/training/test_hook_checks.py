"""Names that a method gives to its numbers: those that no stored run could have end it at its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from staleharness.algorithm import Algorithm
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.errors import UserError
from staleharness.testing import decisions, example_trajectories
from staleharness.training.hook_checks import check_diagnostics, loss_of, state_of, targets_of


def method_with(diagnostic: Any) -> Algorithm:
    @dataclass(frozen=True)
    class Example(Algorithm):
        name = "named"

        def policy_loss(self, d: Decisions) -> PolicyLoss:
            return PolicyLoss(-d.target_logp, {diagnostic: d.lag})

    return Example()


@pytest.mark.parametrize(
    "name", ["a\nb", "\ud800", 3, "", "x" * 201], ids=["line break", "half a letter", "number", "nothing", "long"]
)
def test_a_name_that_no_run_could_store_is_refused(name: Any) -> None:
    d = decisions(ratio=[[1.0, 1.5]], advantage=[[2.0, 2.0]])
    with pytest.raises(UserError, match=r"^named: policy_loss names a number .*; give a string of 1 to 200 printable"):
        loss_of(method_with(name), d)
    with pytest.raises(UserError, match=r"^named: init_state names a number .*; give a string"):
        state_of(method_with("x"), "init_state", {name: 1.0})
    assert list(loss_of(method_with("τ of A−/a b"), d).diagnostics) == ["τ of A−/a b"]


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_a_loss_of_whole_numbers_is_refused_at_any_step(kind: torch.dtype) -> None:
    @dataclass(frozen=True)
    class Rounding(Algorithm):
        name = "rounding"

        def policy_loss(self, d: Decisions) -> PolicyLoss:
            return PolicyLoss(d.target_logp.to(kind), {})

        def targets(self, trajectories: Trajectories) -> Targets:
            return Targets(trajectories.reward.to(kind), trajectories.reward)

    words = f"is of {str(kind).removeprefix('torch.')}; give real numbers, as float32"
    d = decisions(ratio=[[1.0, 1.5]], advantage=[[2.0, 2.0]])
    with pytest.raises(UserError, match=f"^rounding: the loss that policy_loss returns {words}$"):
        loss_of(Rounding(), d)
    with pytest.raises(UserError, match=f"^rounding: the advantage that targets returns {words}$"):
        targets_of(Rounding(), example_trajectories())


def test_targets_of_another_precision_are_refused() -> None:
    @dataclass(frozen=True)
    class Precise(Algorithm):
        name = "precise"

        def policy_loss(self, d: Decisions) -> PolicyLoss:
            return PolicyLoss(-d.target_logp)

        def targets(self, trajectories: Trajectories) -> Targets:
            return Targets(trajectories.reward.double(), trajectories.reward)

    with pytest.raises(UserError, match=r"advantage that targets returns is of float64; give .* float32$"):
        targets_of(Precise(), example_trajectories())


def test_a_diagnostic_of_some_steps_only_is_refused() -> None:
    one, two = {"algorithm/kl": 1.0, "tv": 0.0}, {"algorithm/kl": 1.0, "algorithm/clipped": 0.5}
    check_diagnostics(method_with("kl"), [one, one], 3)
    words = "^named: policy_loss returns the diagnostic clipped at some gradient steps of phase 3 and not at others"
    for steps in ([one, two], [two, two, one]):
        with pytest.raises(UserError, match=words):
            check_diagnostics(method_with("kl"), steps, 3)
