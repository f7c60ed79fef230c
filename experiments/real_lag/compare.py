"""Tests of whether two ways of making lag come to the same: paired differences, and equivalence within a margin.

A pair is a seed: the mean over methods (and loads) of what two ways differ by. Runs of one seed begin with the same
weights whatever the method and load, so they count as one. Intervals of the mean difference are Student's. Two ways
are *equivalent* where the 90 % interval lies within ± margin, which is the two one-sided tests at 5 % (Schuirmann
1987); they *differ* where the 95 % interval leaves zero out. Either may hold, both, or neither: then there are too few
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

import numpy as np
import pandas as pd
from design import ON_POLICY
from scipy import stats

MARGIN = 0.1  # of what learning gains without lag
PAIRS = (  # what is compared, the first less the second, and what the difference is the effect of
    ("recorded", ON_POLICY, "lag"),
    ("fresh seed", "recorded", "the replay, with other seeds"),
    ("pipeline", "recorded", "the fitted pipeline in place of the real one"),
    ("uniform", "recorded", "a uniform lag of equal mean in place of the real one"),
    ("uniform", "fresh seed", "a uniform lag of equal mean in place of the replay, with the same seeds"),
)


@dataclass(frozen=True)
class Difference:
    """Difference of two variants over `n` seeds, in shares of the gain of learning without lag."""

    mean: float
    wide: tuple[float, float]  # 95 %
    narrow: tuple[float, float]  # 90 %
    n: int

    @property
    def margin(self) -> float:
        """The smallest one within which they would be called equivalent."""
        return max(abs(self.narrow[0]), abs(self.narrow[1]))

    @property
    def equivalent(self) -> bool:
        return self.margin < MARGIN

    @property
    def different(self) -> bool:
        return self.wide[0] > 0 or self.wide[1] < 0

    @property
    def words(self) -> str:
        if self.different:
            side = "higher" if self.mean > 0 else "lower"
            return f"{side}, by less than the margin" if self.equivalent else side
        return "the same within the margin" if self.equivalent else "cannot tell"


def difference(values: Sequence[float]) -> Difference | None:
    """Student's intervals of the mean of paired differences; None of fewer than two."""
    x = np.asarray(values, dtype=float)
    if len(x) < 2:
        return None
    error = x.std(ddof=1) / len(x) ** 0.5
    wide, narrow = (_around(x.mean(), error * stats.t.ppf(p, len(x) - 1)) for p in (0.975, 0.95))
    return Difference(float(x.mean()), wide, narrow, len(x))


def _around(mean: float, half: float) -> tuple[float, float]:
    return float(mean - half), float(mean + half)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of a mean; the value itself where there is one."""
    rows = difference(values)
    return rows.wide if rows else (float(values[0]), float(values[0]))


def gain(frame: pd.DataFrame, outcome: str = "score") -> float:
    """Gain of learning without lag: on-policy less untrained, over all methods and seeds of a task."""
    plain = frame[frame["way"] == ON_POLICY]
    return float((plain[outcome] - plain["untrained"]).mean())


def pairs(frame: pd.DataFrame, first: str, second: str, outcome: str = "score") -> pd.DataFrame:
    """Differences on one task: load, method, seed and difference in shares of the gain, for each complete pair."""
    keys = ["method", "seed"] if second == ON_POLICY else ["load", "method", "seed"]
    one, other = (frame[frame["way"] == way] for way in (first, second))
    other = other[[*keys, outcome]].rename(columns={outcome: "other"})
    both = one[["load", "method", "seed", outcome]].merge(other, on=keys)
    return both.assign(difference=(both[outcome] - both["other"]) / gain(frame, outcome))


def comparisons(frame: pd.DataFrame, outcome: str = "score") -> Iterator[tuple[str, str, str, str, Difference]]:
    """(task, load, first, second, difference); load "all": over loads, too."""
    for task, part in frame.groupby("task", sort=False):
        for first, second, _ in PAIRS:
            rows = pairs(part, first, second, outcome)
            loads = [*dict.fromkeys(rows["load"]), "all"]
            for load in loads:
                some = rows if load == "all" else rows[rows["load"] == load]
                if (d := difference(by_seed(some))) is not None:
                    yield str(task), load, first, second, d


def by_seed(rows: pd.DataFrame) -> list[float]:
    """The mean difference of each seed that has all its pairs."""
    seeds = rows.groupby("seed")["difference"]
    return [float(mean) for mean in seeds.mean()[seeds.size() == seeds.size().max()]]


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
