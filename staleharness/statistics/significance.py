"""Which methods runs tell apart: differences seed by seed, and the spread of methods against that of seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from ..store.run_grid import Cell, RunGrid
from .bootstrap import improvement, percentiles, resampled_improvement, stable_seed
from .power import ALPHA
from .scores import Array, deviations, final_score
from .t_intervals import mean_over_groups

REPS = 2000  # bootstrap resamples
Scores = Mapping[str, Mapping[int, float]]  # label -> seed -> final score


@dataclass(frozen=True)
class PairedDifference:
    """`a` − `b`, over the seeds that both have. The ends are None where all seeds differ by the same and are too few
    for that to be clear."""

    a: str
    b: str
    n: int  # seeds
    mean: float
    low: float | None  # ends of Student's interval, of this difference alone
    high: float | None
    p: float  # of the two-sided paired t-test; of the sign test where all seeds differ by the same
    holm: float  # the same, corrected for all comparisons that were made beside it

    @property
    def significant(self) -> bool:
        return self.holm < ALPHA

    @property
    def significant_alone(self) -> bool:
        """Whether it would be told were it the only comparison."""
        return self.p < ALPHA


def scores_by_seed(found: RunGrid, k: int, env: str, score: str) -> dict[str, dict[int, float]]:
    """What each method's runs end at, by seed."""
    return {
        c.label: {run.seed: final_score(run, score) for run in found.cells[c]}
        for c in (Cell(label, k, env) for label in found.labels)
        if c in found.cells
    }


def compare_with_baseline(scores: Scores, baseline: str) -> list[PairedDifference]:
    """Every other method against one, corrected together. A pair with fewer than two seeds in common is left out."""
    return _compared(scores, ((label, baseline) for label in scores if label != baseline))


def compare_all_pairs(scores: Scores) -> list[PairedDifference]:
    """Every method against every other, once, corrected together."""
    return _compared(scores, combinations(scores, 2))


def _compared(scores: Scores, pairs: Iterable[tuple[str, str]]) -> list[PairedDifference]:
    differences = []
    for a, b in pairs:
        seeds = sorted(scores[a].keys() & scores[b].keys())
        if (n := len(seeds)) > 1:
            gaps = np.array([scores[a][s] - scores[b][s] for s in seeds])
            mean, low, high, p = mean_over_groups([gaps.mean()], [gaps.var(ddof=1) / n], [n])
            differences.append(PairedDifference(a, b, n, mean, low, high, p, 1.0))
    corrected = holm([d.p for d in differences])
    return [replace(d, holm=float(p)) for d, p in zip(differences, corrected, strict=True)]


def holm(p: Sequence[float]) -> Array:
    """P values corrected so that the chance of any false one among them is what each says (Holm, 1979)."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=float)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected


def f_ratio(columns: Sequence[Array]) -> float:
    """Mean square between methods over that between the seeds of a method, [runs_i] each: 1 where methods differ by no
    more than seeds do. Infinite where seeds do not differ at all, NaN of one method, of one run each or where all
    runs score the same."""
    everything, groups = np.concatenate(columns), len(columns)
    if groups < 2 or len(everything) == groups or not np.ptp(everything):
        return float("nan")
    between = sum(len(c) * (c.mean() - everything.mean()) ** 2 for c in columns) / (groups - 1)
    within = sum((deviations(c) ** 2).sum() for c in columns) / (len(everything) - groups)
    return float(between / within) if within else float("inf")


def method_pairs(found: RunGrid, score: str, reps: int = REPS) -> list[dict[str, Any]]:
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
                    rows.append(row | _chance(x, y, (k, *sorted((a, b))), a > b, reps) | {"effect": hedges_g(x, y)})
    return rows


def hedges_g(x: Sequence[Array], y: Sequence[Array]) -> float | None:
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
