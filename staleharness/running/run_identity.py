"""Run ids under the current plugins, and stored specs read with the meaning that they had for their runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import algorithm, mismatch
from ..algorithm import ALGORITHMS, make_algorithm
from ..base.options import active_options, values_before
from ..base.plugins import source_hash
from ..lag import LagModel, read_lag
from ..spec import RunSpec
from ..task import Task, find_env
from .methods_and_environments import hyper_parameters

LAGS_WITHOUT_HASH = frozenset("uniform oldest fixed geometric sync inflight".split())
"""Lag models that predate the files of lag models: changes to them raise `MATHS_VERSION`."""


class RunIds:
    """Computes run ids; reads each plugin file once."""

    def __init__(self) -> None:
        self._source_hash: Callable[..., str] = functools.cache(source_hash)
        self._lag = functools.cache(lambda text: (lag_hash(text), lag_identity(text)))
        self._mismatch = functools.cache(lambda text: (mismatch.mismatch_hash(text), mismatch.mismatch_identity(text)))

    def of(self, spec: RunSpec, family: type[Task]) -> str:
        """Return the id of a run."""
        method = make_algorithm(spec)
        hashes = self._source_hash(type(method), active_options(method)), self._source_hash(family)
        return spec.run_id(*hashes, *self._lag(spec.lag), algorithm.identity(method), *self._mismatch(spec.mismatch))


def run_id(spec: RunSpec, family: type[Task]) -> str:
    """Return the id of one run."""
    return RunIds().of(spec, family)


def lags_in_hash(text: str) -> list[LagModel]:
    """Return those models within a lag model whose files are part of a run's id."""
    return [model for model in read_lag(text).parts() if model.name not in LAGS_WITHOUT_HASH]


def lag_hash(text: str) -> str:
    """Return the hash of the files that define a lag model; editing them invalidates its runs. Empty if none counts."""
    return "+".join(source_hash(type(model), active_options(model)) for model in lags_in_hash(text))


def lag_identity(text: str) -> str:
    """Return the text of a lag model in run ids; empty where it is the model's usual text."""
    model = read_lag(text)
    return "" if model.identity == model.text else model.identity


def read_stored(values: Mapping[str, Any], where: str = "run spec") -> tuple[RunSpec, type[Task]]:
    """Return the complete spec of a stored run and its family of environments.

    Settings and options added after the run was stored get the value that matches what it did.
    """
    _, family = find_env(str(values["env"]))
    method = ALGORITHMS[str(values["algorithm"])]
    hyper = {**values_before(method), **values.get("hyper", {})}
    spec = family.settings.from_dict({**values_before(family.settings), **values, "hyper": hyper}, where)
    return replace(spec, hyper=hyper_parameters(make_algorithm(spec))), family
