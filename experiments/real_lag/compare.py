"""Tests of whether two ways of making lag come to the same for a method: differences, and equivalence within a margin.

Methods are never averaged, for lag may raise one and lower another. Ways whose runs have the same seeds are compared
seed by seed (Student), others are independent (Welch). Two ways *differ* where the two-sided test says so; they are
*equivalent* within ± margin where both one-sided tests do (Schuirmann 1987). All tests at 5 %, each kind with Holm's
correction for all of it on the page. Either may hold, both, or neither: then there are too few runs. Equivalence is
about something only where lag changes the score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest

import numpy as np
import pandas as pd
from design import ON_POLICY
from scipy import stats

from staleharness.statistics.significance_and_power import ALPHA, holm
from staleharness.statistics.t_tests_and_intervals import contrast, t_reach

MARGIN = 0.1  # of what learning gains without lag
PAIRS = (  # what is compared, the first less the second, and what the difference is the effect of
    ("recorded", ON_POLICY, "lag"),
    ("fresh seed", "recorded", "the replay, with other seeds"),
    ("pipeline", "recorded", "the fitted pipeline in place of the real one"),
    ("uniform", "recorded", "a uniform lag of equal mean in place of the real one"),
    ("uniform", "fresh seed", "a uniform lag of equal mean in place of the replay, with the same seeds"),
)
FRESH_SEEDS = {ON_POLICY, "fresh seed", "pipeline", "uniform"}  # ways that share their seeds


@dataclass(frozen=True)
class Difference:
    """Difference of two ways, in shares of the gain of learning without lag."""

    mean: float
    wide: tuple[float, float]  # 95 %
    margin: float  # the smallest one of which an uncorrected test of equivalence at 5 % would say so
    runs: tuple[int, int]  # on both sides
    p: float  # two-sided, of no difference
    p_equivalence: float  # the larger of the two one-sided ones of a difference of `MARGIN`
    holm: float = 1.0  # p with Holm's correction
    holm_equivalence: float = 1.0

    @property
    def equivalent(self) -> bool:
        return self.holm_equivalence < ALPHA

    @property
    def different(self) -> bool:
        return self.holm < ALPHA

    @property
    def different_alone(self) -> bool:
        """Return whether it is different without the correction, as a single comparison."""
        return self.p < ALPHA

    @property
    def words(self) -> str:
        if self.different:
            side = "higher" if self.mean > 0 else "lower"
            return f"{side}, by less than the margin" if self.equivalent else side
        return "the same within the margin" if self.equivalent else "cannot tell"


@dataclass(frozen=True)
class Comparison:
    """Difference of a method's scores between two ways, under a load on a task."""

    task: str
    load: str
    method: str
    first: str
    second: str
    difference: Difference


def difference(a: Sequence[float], b: Sequence[float], by_seed: bool = False) -> Difference | None:
    """Tests of a less b; None where a side has fewer than two runs, or where nothing varies.

    by_seed: run i of both sides has the same seed.
    """
    sides = [np.asarray(a, dtype=float), np.asarray(b, dtype=float)]
    found = contrast({"": sides}, lambda m: float(m[0] - m[1]), by_seed)
    if found.low is None or found.high is None or found.p is None or not found.error:
        return None
    distance = (MARGIN - abs(found.value)) / found.error
    margin = abs(found.value) + found.error * stats.t.ppf(1 - ALPHA, found.freedom)
    p_equivalence = float(stats.t.sf(distance, found.freedom))
    return Difference(found.value, (found.low, found.high), float(margin), (len(a), len(b)), found.p, p_equivalence)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of a mean; the value itself where there is one."""
    x = np.asarray(values, dtype=float)
    reach = float(t_reach(np.array([x.var(ddof=1) / len(x)]), [len(x)])) if len(x) > 1 else 0.0
    return float(x.mean() - reach), float(x.mean() + reach)


def gain(frame: pd.DataFrame, outcome: str = "score") -> float:
    """Gain of learning without lag: on-policy less untrained, over all methods and seeds of a task."""
    plain = frame[frame["way"] == ON_POLICY]
    return float((plain[outcome] - plain["untrained"]).mean())


def comparisons(frame: pd.DataFrame, outcome: str = "score") -> list[Comparison]:
    """Every comparison of two ways that have runs, by task, method and load."""
    found = []
    for task, part in frame.groupby("task", sort=False):
        scale = gain(part, outcome)
        for method, mine in part.groupby("method", sort=False):
            for load in (load for load in dict.fromkeys(mine["load"]) if load):
                there = mine[mine["load"].isin([load, ""])].set_index("seed").groupby("way")[outcome]
                scores = {str(way): values / scale for way, values in there}
                for first, second, _ in PAIRS:
                    if (d := _of_ways(scores, first, second)) is not None:
                        found.append(Comparison(str(task), load, str(method), first, second, d))
    return _corrected(found)


def _of_ways(scores: Mapping[str, pd.Series], first: str, second: str) -> Difference | None:
    """Difference of two ways, scores by seed of each; None where there are too few."""
    if not {first, second} <= scores.keys():
        return None
    a, b = scores[first], scores[second]
    by_seed = {first, second} <= FRESH_SEEDS
    if by_seed:
        seeds = a.index.intersection(b.index)
        a, b = a[seeds], b[seeds]
    return difference(a.tolist(), b.tolist(), by_seed)


def _corrected(found: Sequence[Comparison]) -> list[Comparison]:
    """Set p values with Holm's correction: for all differences, and for all equivalences."""
    differences = [c.difference for c in found]
    p = holm([d.p for d in differences]).tolist()
    p_equivalence = holm([d.p_equivalence for d in differences]).tolist()
    return [
        replace(c, difference=replace(c.difference, holm=a, holm_equivalence=b))
        for c, a, b in zip(found, p, p_equivalence, strict=True)
    ]


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Of two histograms over 0, 1, 2 ...: how far, in phases, lag has to be moved in the mean to make one of the other
    (Wasserstein's): Σ |F − G|."""
    return float(sum(abs(x) for x in accumulate(p - q for p, q in zip_longest(a, b, fillvalue=0.0))))


def lags(frame: pd.DataFrame) -> pd.DataFrame:
    """By task, load and way: the mean lag and its spread over runs, the mean distance from the recorded histogram of
    the same cell, and the histogram of all runs together."""
    rows = []
    for (task, load), part in frame[frame["load"] != ""].groupby(["task", "load"], sort=False):
        cells = part.set_index(["method", "seed"])
        real = cells[cells["way"] == "recorded"]["lags"]
        for way, some in cells.groupby("way", sort=False):
            present = [cell for cell in some.index if cell in real.index]
            distances = [distance(some["lags"][cell], real[cell]) for cell in present]
            rows.append(
                {
                    "task": task,
                    "load": load,
                    "way": way,
                    "n": len(some),
                    "mean": some["mean_lag"].mean(),
                    "spread": some["mean_lag"].std(),
                    "distance": float(np.mean(distances)) if distances else np.nan,
                    "histogram": together(some["lags"].tolist()),
                }
            )
    return pd.DataFrame(rows)


def together(histograms: Sequence[Sequence[float]]) -> list[float]:
    """The mean of histograms of whatever lengths."""
    return [float(np.mean(shares)) for shares in zip_longest(*histograms, fillvalue=0.0)]
