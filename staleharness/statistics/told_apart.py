"""Which methods runs tell apart: differences seed by seed, and the spread of methods against that of seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ..store.run_grid import Cell, RunGrid
from .bootstrap import LEVEL
from .claims.contrast import no_spread, of_signs
from .power import ALPHA
from .scores import Array, deviations, final_score

Scores = Mapping[str, Mapping[int, float]]  # label -> seed -> final score


@dataclass(frozen=True)
class Difference:
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
    def told(self) -> bool:
        return self.holm < ALPHA

    @property
    def alone(self) -> bool:
        """Whether it would be told were it the only comparison."""
        return self.p < ALPHA


def scores_at(found: RunGrid, k: int, env: str, score: str) -> dict[str, dict[int, float]]:
    """What each method's runs end at, by seed."""
    return {
        c.label: {run.seed: final_score(run, score) for run in found.cells[c]}
        for c in (Cell(label, k, env) for label in found.labels)
        if c in found.cells
    }


def against(scores: Scores, baseline: str) -> list[Difference]:
    """Every other method against one, corrected together. A pair with fewer than two seeds in common is left out."""
    return _compared(scores, ((label, baseline) for label in scores if label != baseline))


def every_pair(scores: Scores) -> list[Difference]:
    """Every method against every other, once, corrected together."""
    return _compared(scores, combinations(scores, 2))


def _compared(scores: Scores, pairs: Iterable[tuple[str, str]]) -> list[Difference]:
    shared = ((a, b, sorted(scores[a].keys() & scores[b].keys())) for a, b in pairs)
    made = [
        _difference(a, b, np.array([scores[a][s] - scores[b][s] for s in seeds]))
        for a, b, seeds in shared
        if len(seeds) > 1
    ]
    corrected = holm([d.p for d in made])
    return [replace(d, holm=float(p)) for d, p in zip(made, corrected, strict=True)]


def _difference(a: str, b: str, gaps: Array) -> Difference:
    from scipy.special import stdtr, stdtrit

    n, mean = len(gaps), float(gaps.mean())
    error = float(gaps.std(ddof=1) / np.sqrt(n))
    if no_spread(error, mean):  # equal in every seed, or apart by the same in every seed
        p = of_signs([(mean, n)])
        known = mean if p < ALPHA or p == 1 else None
        return Difference(a, b, n, mean, known, known, p, 1.0)
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    p = float(2 * stdtr(n - 1, -abs(mean) / error))
    return Difference(a, b, n, mean, mean - reach, mean + reach, p, 1.0)


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
