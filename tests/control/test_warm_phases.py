"""Runs that begin with the same on-policy phases, whatever comes after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from control_runs import EPOCHS, PARTS, PHASES, SMALL, N, run
from witness import MethodCalls

from staleharness.errors import UserError
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

WARM = {"warm_phases": 2, "warm_epochs": 4}


def after(phases: int, **settings: Any) -> torch.Tensor:
    """The parameters after so many phases."""
    simulation = simulation_of(replace(SMALL, **WARM, **settings))
    for _ in range(phases):
        simulation.advance()
    simulation.close()
    return torch.as_tensor(simulation.policy.flat.detach().clone())


@pytest.mark.parametrize(
    "other",
    [{"capacity": 1, "lag": "uniform"}, {"epochs": 1}, {"lag": "geometric:0.5"}, {"assignment": "episode"}],
    ids=str,
)
@pytest.mark.long
def test_all_go_on_from_the_same_policy_and_not_further(witness: MethodCalls, other: dict[str, Any]) -> None:
    common = {"lag": "oldest"}
    assert torch.equal(after(2, **common), after(2, **{**common, **other}))
    if other != {"assignment": "episode"}:
        assert not torch.equal(after(3, **common), after(3, **{**common, **other}))


@pytest.mark.parametrize("mechanism", ["reexecute", "replay"])
def test_lag_begins_at_full_size_when_the_warm_start_is_over(witness: MethodCalls, mechanism: str) -> None:
    said = run(witness, lag="oldest", mechanism=mechanism, **WARM)
    assert [m["lag_histogram"] for m in said] == [[N], [N], [0, 0, N], [0, 0, N]]
    assert [m["lags/assigned"] for m in said] == [0, 0, 2, 2]
    steps = [4 * PARTS, 8 * PARTS, (8 + EPOCHS) * PARTS, (8 + 2 * EPOCHS) * PARTS]
    assert [m["gradient_steps"] for m in said] == steps


def test_without_a_warm_start_nothing_is_as_before(witness: MethodCalls) -> None:
    plain = run(witness)
    assert run(witness, warm_epochs=7) == plain  # of no warm phase


@pytest.mark.parametrize("settings", [{"warm_phases": PHASES}, {"warm_phases": -1}, {"warm_epochs": 0}], ids=str)
def test_a_warm_start_that_leaves_nothing_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"warm_(phases|epochs)=-?\d+ must"):
        replace(SMALL, **settings)


def test_a_short_probe_of_such_a_run_can_be_made() -> None:
    assert replace(SMALL, warm_phases=3).probe().phases == 3


def test_a_warm_start_of_lag_that_is_planned_is_refused() -> None:
    spec = replace(SMALL, lag="areal[eta=1]", **WARM)
    with pytest.raises(UserError, match="plans whole runs, and warm_phases is for lag that is drawn"):
        find_env(spec.env)[1].check(spec)
