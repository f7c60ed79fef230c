"""The kind of task of `tabular_kind.py`, for tests of what is done with runs: each takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import HELPERS

from staleharness.task import ENVS

TABULAR = HELPERS / "tabular_kind.py"


@contextmanager
def tabular_known(plugins: str = str(TABULAR)) -> Iterator[Path]:
    """`random-mdp-0` is known to this process and its workers until the end; by `plugins`, or whoever loads it."""
    list(ENVS)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_classes", "_loaded"):
            patch.setattr(ENVS, name, getattr(ENVS, name).copy())
        patch.setattr(ENVS, "_complete", None)
        patch.setenv("STALEHARNESS_PLUGINS", plugins)
        yield TABULAR


@pytest.fixture
def tabular() -> Iterator[Path]:
    with tabular_known() as path:
        yield path
