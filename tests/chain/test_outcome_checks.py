"""Answers of chain tasks that no run can use: one line that says what would be right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staleharness.chain.spec import ChainSpec
from staleharness.errors import UserError
from staleharness.task import find_env
from staleharness.training.loop import Simulation, simulation_of


def advance(monkeypatch: pytest.MonkeyPatch, method: str, answer: Any, phases: int) -> Simulation[Any]:
    """A run whose task gives another answer from the phase after these on."""
    spec = {"env": "bit-chain", "algorithm": "seq_is", "horizon": 6, "batch": 8, "steps": 6, "evaluations": 6}
    simulation = simulation_of(ChainSpec.from_dict(spec))
    for _ in range(phases):
        simulation.advance()
    monkeypatch.setattr(find_env("bit-chain")[1], method, lambda *_: answer)
    return simulation


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, "a NoneType"),
        ([True] * 8, "a list"),
        (np.ones(7, np.bool_), r"an array of bool of shape \[7\]"),
        (np.ones((8, 1), np.bool_), r"an array of bool of shape \[8, 1\]"),
        (np.full(8, np.nan), r"an array of float64 of shape \[8\]"),
        (np.full(8, 7), r"an array of int64 of shape \[8\]"),
    ],
)
def test_an_outcome_that_is_no_array_of_bool_is_refused(monkeypatch: Any, answer: Any, kind: str) -> None:
    simulation = advance(monkeypatch, "outcome", answer, 2)
    with pytest.raises(UserError, match=rf"^ENV=bit-chain: outcome returns {kind}; give an array of bool, here \[8\]$"):
        simulation.advance()


@pytest.mark.parametrize("answer", [None, float("nan"), -0.1, 1.1, np.ones(6), "0.5", True])
def test_a_success_probability_that_is_none_is_refused(monkeypatch: Any, answer: Any) -> None:
    simulation = advance(monkeypatch, "success_probability", answer, 1)
    with pytest.raises(UserError, match=r"^ENV=bit-chain: success_probability returns .*; give a number from 0 to 1$"):
        simulation.advance()


@pytest.mark.parametrize("answer", [None, float("nan"), 0.0, 1.0, 2.0])
def test_a_start_that_has_no_logit_is_refused(monkeypatch: Any, answer: Any) -> None:
    monkeypatch.setattr(find_env("bit-chain")[1], "start", lambda *_: answer)
    with pytest.raises(UserError, match=r"^ENV=bit-chain: start returns .*; give a number above 0 and below 1$"):
        advance(monkeypatch, "outcome", None, 0)
