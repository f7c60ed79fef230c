"""Names that a method gives to its numbers: those that no stored run could have end it at its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from staleharness.algorithm import Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.errors import UserError
from staleharness.testing import decisions
from staleharness.training.hook_checks import loss_of, state_of


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
    with pytest.raises(UserError, match=r"^named: policy_loss names a number .*; give a text of 1 to 200 printable"):
        loss_of(method_with(name), d)
    with pytest.raises(UserError, match=r"^named: init_state names a number .*; give a text"):
        state_of(method_with("x"), "init_state", {name: 1.0})
    assert list(loss_of(method_with("τ of A−/a b"), d).diagnostics) == ["τ of A−/a b"]
