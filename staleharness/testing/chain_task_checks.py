"""The contract every chain plugin keeps, in one call."""

from __future__ import annotations

import itertools

import numpy as np

from ..chain.spec import ChainSpec
from ..chain.task import ChainTask
from .task_checks import is_listed_and_explained

HORIZONS = (1, 2, 5, 10)


def check_chain_task(family: type[ChainTask], env: str) -> None:
    """Listed and explained; an outcome per episode; the success probability is that of all 2^H episodes, added up; and
    the first policy succeeds as often as the run says."""
    is_listed_and_explained(family, env)
    for horizon in HORIZONS:
        spec = ChainSpec.from_dict({"env": env, "algorithm": "seq_is", "horizon": horizon})
        bits = np.array(list(itertools.product((False, True), repeat=horizon)))
        outcome = family().outcome(spec, bits)
        assert outcome.shape == (2**horizon,) and outcome.dtype == bool
        p = np.random.default_rng(horizon).uniform(0.05, 0.95, horizon)
        total = float((np.where(bits, p, 1.0 - p).prod(1) * outcome).sum())
        assert abs(family().success_probability(spec, p) - total) < 1e-12
        start = np.full(horizon, family().start(spec))
        assert abs(family().success_probability(spec, start) - spec.start) < 1e-9
