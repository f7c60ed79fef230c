"""Plugin files that this process and its workers know for a while, among them a kind of task whose runs take
milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import HELPERS

from staleharness.algorithm import ALGORITHMS
from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.lag import LAGS
from staleharness.mismatch import MISMATCHES
from staleharness.task import ENVS

TABULAR = HELPERS / "tabular_kind.py"


@contextmanager
def loaded_plugins(*files: Path) -> Iterator[None]:
    """The built-in plugins and these, and whatever is loaded meanwhile; forgotten at the end."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in (ALGORITHMS, ENVS, LAGS, MISMATCHES):
            list(registry)
            patch.setattr(registry, "_classes", dict(registry._classes))
            patch.setattr(registry, "_loaded_files", dict(registry._loaded_files))
            patch.setattr(registry, "_complete", None)
        patch.setenv(PATH_VARIABLE, os.pathsep.join(map(str, files)))
        yield


@pytest.fixture
def tabular() -> Iterator[Path]:
    """The plugin file of `random-mdp-0`."""
    with loaded_plugins(TABULAR):
        yield TABULAR
