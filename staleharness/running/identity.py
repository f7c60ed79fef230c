"""Ids of runs under the plugins as they are now, and stored specs read as their runs meant them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import algorithm, lag, mismatch
from ..algorithm import ALGORITHMS, make_algorithm
from ..base.options import active_options, values_before
from ..base.plugins import source_hash
from ..spec import RunSpec
from ..task import Task, find_env
from .grid_axes import hyper_parameters


class RunIds:
    """Computes run ids; reads each plugin file once."""

    def __init__(self) -> None:
        self._source_hash: Callable[..., str] = functools.cache(source_hash)
        self._lag = functools.cache(lambda text: (lag.file_hash(text), lag.identity(text)))
        self._mismatch = functools.cache(mismatch.mismatch_hash)

    def of(self, spec: RunSpec, family: type[Task]) -> str:
        """Return the id of a run."""
        method = make_algorithm(spec)
        hashes = self._source_hash(type(method), active_options(method)), self._source_hash(family)
        identity, mismatches = algorithm.identity(method), self._mismatch(spec.mismatch)
        return spec.run_id(*hashes, *self._lag(spec.lag), identity, mismatches)


def run_id(spec: RunSpec, family: type[Task]) -> str:
    """Return the id of one run."""
    return RunIds().of(spec, family)


def read_stored(values: Mapping[str, Any], where: str = "run spec") -> tuple[RunSpec, type[Task]]:
    """Return the complete spec of a stored run and its family of environments.

    Settings and options that were added after the run was stored have the value that means what it did.
    """
    _, family = find_env(str(values["env"]))
    method = ALGORITHMS[str(values["algorithm"])]
    hyper = {**values_before(method), **values.get("hyper", {})}
    spec = family.settings.from_dict({**values_before(family.settings), **values, "hyper": hyper}, where)
    return replace(spec, hyper=hyper_parameters(make_algorithm(spec))), family
