"""Every method against every other at the same capacity: who ends higher how often, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..store.run_grid import Cell, RunGrid
from .bootstrap import improvement, percentiles, resampled_improvement, stable_seed
from .scores import Array, deviations, final_score

REPS = 2000


def pairs(found: RunGrid, score: str, reps: int = REPS) -> list[dict[str, Any]]:
    """A row {capacity, a, b, n_envs, probability, low, high, effect} for each ordered pair of methods with runs on the
    same environments at a capacity.

    probability: that a run of `a` ends higher than a run of `b`, ties half, averaged over environments; with the ends
    of a 95 % bootstrap interval over seeds within each environment, None where a side has one run only.
    effect: Hedges' g, (mean a − mean b) / pooled deviation, corrected for few runs, averaged over environments; None
    where it cannot be had: of one run each, or of runs without any spread.
    """
    rows = []
    for k in found.capacities:
        cells = {
            label: {e: _scores(found, label, k, e, score) for e in found.envs if Cell(label, k, e) in found.cells}
            for label in found.labels
        }
        for a in cells:
            for b in cells:
                both = [e for e in found.envs if e in cells[a] and e in cells[b]] if a != b else []
                if both:
                    x, y = [cells[a][e] for e in both], [cells[b][e] for e in both]
                    row = {"capacity": k, "a": a, "b": b, "n_envs": len(both)}
                    rows.append(row | _chance(x, y, (k, *sorted((a, b))), a > b, reps) | {"effect": effect(x, y)})
    return rows


def effect(x: Sequence[Array], y: Sequence[Array]) -> float | None:
    """Hedges' g of x over y, each a list of scores [runs] per environment: mean over environments."""
    found = []
    for a, b in zip(x, y, strict=True):
        freedom = len(a) + len(b) - 2
        if freedom < 1:
            return None
        pooled = np.sqrt(((deviations(a) ** 2).sum() + (deviations(b) ** 2).sum()) / freedom)
        if pooled == 0:
            return None
        found.append((a.mean() - b.mean()) / pooled * (1.0 - 3.0 / (4.0 * freedom - 1.0)))
    return float(np.mean(found))


def _scores(found: RunGrid, label: str, k: int, env: str, score: str) -> Array:
    return np.array([final_score(run, score) for run in found.cells[Cell(label, k, env)]])


def _chance(
    x: Sequence[Array], y: Sequence[Array], name: tuple[Any, ...], swapped: bool, reps: int
) -> dict[str, float | None]:
    """The same resamples for a pair and its mirror image, so that the two add up to 1."""
    probability = float(improvement(x, y))
    if min(map(len, [*x, *y])) < 2:
        return {"probability": probability, "low": None, "high": None}
    rng = np.random.default_rng(stable_seed("pairs", *name))
    chance = 1.0 - resampled_improvement(y, x, reps, rng) if swapped else resampled_improvement(x, y, reps, rng)
    low, high = percentiles(chance[..., None])
    return {"probability": probability, "low": float(low[0]), "high": float(high[0])}
