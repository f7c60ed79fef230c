"""The local pool: what its processes have loaded."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from staleharness.running.runners import local
from staleharness.task import all_families


def test_what_is_loaded_before_workers_fork_can_be_loaded() -> None:
    named = {module for family in all_families() for module in family.preload}
    assert named and importlib.util.find_spec(local.WORKER) is not None
    for module in named:
        if module.startswith("staleharness.language"):
            pytest.importorskip("transformers")
        importlib.import_module(module)
