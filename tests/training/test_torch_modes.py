"""Modes of torch that a plugin changes while it runs: put back, and one line where other numbers depend on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from staleharness.algorithm import ALGORITHMS
from staleharness.chain.spec import ChainSpec
from staleharness.errors import UserError
from staleharness.task import find_env
from staleharness.training.loop import Simulation, simulation_of


def changing(monkeypatch: pytest.MonkeyPatch, cls: type, hook: str, change: Callable[[], Any]) -> Simulation[Any]:
    """A run after two phases, a hook of which changes a mode from now on."""
    spec = {"env": "bit-chain", "algorithm": "seq_is", "horizon": 6, "batch": 8, "steps": 6, "evaluations": 6}
    simulation = simulation_of(ChainSpec.from_dict(spec))
    simulation.advance()
    simulation.advance()
    usual = getattr(cls, hook)
    monkeypatch.setattr(cls, hook, lambda *arguments: (usual(*arguments), change())[0])
    return simulation


def test_a_method_that_changes_the_default_dtype_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change = lambda: torch.set_default_dtype(torch.float64)  # noqa: E731
    simulation = changing(monkeypatch, ALGORITHMS["seq_is"], "policy_loss", change)
    with pytest.raises(UserError, match=r"^a plugin in phase 2 changes torch's default dtype from float32 to float64"):
        simulation.advance()
    assert torch.get_default_dtype() == torch.float32


def test_a_task_that_changes_a_mode_in_an_evaluation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change = lambda: torch.set_float32_matmul_precision("medium")  # noqa: E731
    simulation = changing(monkeypatch, find_env("bit-chain")[1], "success_probability", change)
    with pytest.raises(UserError, match=r"^a plugin in an evaluation changes torch's float32 matmul precision from "):
        simulation.advance()
    assert torch.get_float32_matmul_precision() == "highest"


def test_threads_of_a_plugin_last_until_the_end_of_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    change = lambda: torch.set_num_threads(threads + 1)  # noqa: E731
    changing(monkeypatch, ALGORITHMS["seq_is"], "policy_loss", change).advance()
    assert torch.get_num_threads() == threads
