"""Retention: the share of its on-policy score that a method retains with stale data, mean over environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..store.run_grid import Cell, RunGrid
from .bootstrap import percentiles, resample, stable_seed
from .normalise import constants
from .scores import Array, final_score

REPS = 2000
MIN_GAIN = 0.1  # share of the best method's gain over random that counts as having learned


class Retention(NamedTuple):
    """Share of the K = 1 score above random that remains at a capacity, with its interval."""

    share: float
    low: float | None
    high: float | None


def random_returns(envs: Sequence[str], score: str) -> dict[str, float]:
    """Returns of a random policy, for the environments listed in `normalisation.json`."""
    constants_of = constants()["envs"]
    entries = {env: constants_of.get(env, {}).get("random", {}).get(score) for env in envs}
    return {env: float(entry["return"]) for env, entry in entries.items() if entry}


def retention(
    run_grid: RunGrid, label: str, k: int, score: str, *, base: tuple[str, int] | None = None, accuracy: bool = False
) -> Retention | None:
    """Mean over environments of (score at K − random) / (score at 1 − random), each score a mean over seeds.

    `base`: the (algorithm, K) without lag, if it is not this one at K = 1. An `accuracy` is counted from 0.

    None where a method has no runs at K or at 1, no environment has a known random return, or the method did not learn
    at K = 1 in one of them (it gained less than a tenth of the best method's gain), so that a share is meaningless. The
    interval resamples the seeds of both capacities independently.
    """
    zero = dict.fromkeys(run_grid.envs, 0.0) if accuracy else random_returns(run_grid.envs, score)
    reference, fresh = base or (label, 1)
    top, bottom, zeros = [], [], []
    for env in run_grid.envs:
        at_k, at_1 = (run_grid.cells.get(Cell(who, c, env), []) for who, c in ((label, k), (reference, fresh)))
        if at_k and at_1 and env in zero:
            top.append(np.array([final_score(r, score) for r in at_k]))
            bottom.append(np.array([final_score(r, score) for r in at_1]))
            zeros.append(zero[env])
            best = max(
                np.mean([final_score(r, score) for r in rs])
                for c, rs in run_grid.cells.items()
                if (c.capacity, c.env) == (fresh, env) and (base is None or c.label == reference)
            )
            if bottom[-1].mean() - zero[env] < MIN_GAIN * (best - zero[env]) or best <= zero[env]:
                return None
    if not top:
        return None
    share = float(_share(top, bottom, zeros))
    if (label, k) == (reference, fresh) or min(map(len, [*top, *bottom])) < 2:
        return Retention(share, None, None)
    rng = np.random.default_rng(stable_seed("retained", label, k))
    low, high = percentiles(_share(resample(top, REPS, rng), resample(bottom, REPS, rng), zeros)[..., None])
    return Retention(share, float(low[0]), float(high[0]))


def _share(top: Sequence[Array], base: Sequence[Array], zeros: Sequence[float]) -> Array:
    shares = [(t.mean(axis=-1) - z) / (b.mean(axis=-1) - z) for t, b, z in zip(top, base, zeros, strict=True)]
    return np.asarray(np.mean(shares, axis=0))
