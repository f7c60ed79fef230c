"""Pipelines by name: the same parts, set differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UserError, nearest
from .settings import Pipeline

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Each batch is generated with the weights that it will train: nobody works while the other does.
    "sync": {"cap": 0.0, "order": "submitted"},
    # The next batch is generated while this one trains: every row is one version behind.
    "one-step-off": {"cap": 1.0, "unit": "batch", "order": "submitted"},
    # Rows begin as soon as a slot is free, and finish with the weights that they began with.
    "async": {"cap": 4.0, "blocking": False},
    # The same, and rows under way take new weights as they arrive, with their cache built anew.
    "in-flight": {"cap": 4.0, "blocking": False, "in_flight": "switch", "recompute_seconds": 2e-4},
}


def preset(name: str, values: Mapping[str, Any] | None = None) -> Pipeline:
    """The pipeline called `name` with some settings changed. Raises `UserError`."""
    if name not in PRESETS:
        raise UserError(f"no preset is called {name!r}; {nearest(name, PRESETS)}")
    return Pipeline().changed({**PRESETS[name], **(values or {})})
