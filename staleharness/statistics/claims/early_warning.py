"""Falls of the reward, and the effective sample size as a warning of them: hits and false alarms over all stale runs.

Runs of one seed share their noise, so intervals and p are over seeds (`t_tests_and_intervals.contrast`), whatever the
number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..scores import Array
from ..t_tests_and_intervals import Contrast, contrast

METRIC = "ess_sequence"
ESS_NAMES = {METRIC: "ESS of completions", "ess_data": "ESS of tokens"}
SHARE, WINDOW = 2 / 3, 8  # of the best so far; phases that are averaged
FEWEST = 10  # runs that a share rests on, below which it is not tested
WARNINGS = ("warned", "warned first")  # hits against false alarms, and hits against a half


@dataclass(frozen=True)
class WarningCounts:
    """Counts of runs, each [seeds] (per environment)."""

    fell: Sequence[int]  # with a fall of the reward
    before: Sequence[int]  # with a fall of the effective sample size before it
    stable: Sequence[int]  # without a fall of the reward
    alarms: Sequence[int]  # with a fall of the effective sample size alone
    metric: str = METRIC  # the effective sample size: of completions or of tokens

    @property
    def text(self) -> str:
        name = ESS_NAMES.get(self.metric, self.metric)
        return (
            f"{name} first in {sum(self.before)} of {sum(self.fell)} runs whose reward fell; a false alarm in "
            f"{sum(self.alarms)} of {sum(self.stable)} whose reward did not"
        )

    def shortage(self, comparison: str) -> str:
        """Return why a comparison of `WARNINGS` is not tested, as too few runs fell or did not; empty if it is."""
        numbers = [sum(self.fell)] + ([sum(self.stable)] if comparison == "warned" else [])
        return f"{min(numbers)} runs, of {FEWEST} that a test takes" if min(numbers) < FEWEST else ""

    @property
    def hits_over_half(self) -> Contrast:
        """Share of hits less a half. Raises `UserError` where no run fell, or runs of one seed alone."""
        _check(self.fell, "the reward fell in no stale run", "fell in stale runs of one seed only")
        return _over_seeds([self.before, self.fell], lambda m: float(m[0] / m[1] - 0.5))

    @property
    def hits_over_alarms(self) -> Contrast:
        """Share of hits less share of false alarms. Raises `UserError` where no run fell, or all did; or where that
        rests on one seed."""
        no_seed = "no hits and false alarms: the reward fell in all stale runs, or in none"
        for counts, event in ((self.fell, "fell in stale runs"), (self.stable, "held up in stale runs")):
            _check(counts, no_seed, f"{event} of one seed only")
        rows = [self.before, self.fell, self.alarms, self.stable]
        return _over_seeds(rows, lambda m: float(m[0] / m[1] - m[2] / m[3]))


def _check(counts: Sequence[int], no_seed: str, one_seed: str) -> None:
    seeds = sum(count > 0 for count in counts)
    if seeds == 0:
        raise UserError(no_seed)
    if seeds == 1 and len(counts) > 1:
        raise UserError(f"the reward {one_seed}")


def _over_seeds(rows: Sequence[Sequence[int]], statistic: Callable[[Array], float]) -> Contrast:
    return replace(contrast({"": [np.array(row, dtype=float) for row in rows]}, statistic, by_seed=True), envs={})


def count_warnings(runs: Iterable[StoredRun], metric: str = METRIC) -> WarningCounts:
    """Count hits and alarms over stale runs, from twice the largest lag on: before, the data are fresher.

    Runs in which nothing can fall are left out: without the metric or the reward, or with fewer than two means of
    `WINDOW` phases. Raises `UserError` where none is left.
    """
    counts: dict[tuple[str, int], NDArray[np.int64]] = {}
    for run in runs:
        if (lag := largest_lag(run)) and _can_fall(run, metric, start := steps_after(run, 2 * lag)):
            warning, fall = falls(run, metric, SHARE, start, WINDOW)
            stable, warns = math.isnan(fall), not math.isnan(warning)
            tally = counts.setdefault((str(run.spec["env"]), run.seed), np.zeros(4, np.int64))
            tally += (not stable, warning < fall, stable, stable and warns)
    if not counts:
        raise UserError(f"no stale run has {WINDOW + 1} phases of {metric} and reward after twice its largest lag")
    tallies = [counts[key].tolist() for key in sorted(counts)]
    fell, before, calm, alarms = (tuple(tally[i] for tally in tallies) for i in range(4))
    return WarningCounts(fell, before, calm, alarms, metric)


def _can_fall(run: StoredRun, metric: str, start: float) -> bool:
    """Return whether a metric and the reward have two means of `WINDOW` phases after step `start`."""
    end, *columns = (run.column(name) for name in ("steps", metric, "reward"))
    if end is None or any(x is None or not np.isfinite(x).any() for x in columns):
        return False
    return int((end > start).sum()) > WINDOW


def largest_lag(run: StoredRun) -> int:
    """The largest lag of any of its decisions, in phases."""
    return max((int(lag) for lag, count in run.record["lag_histogram"].items() if count), default=0)


def steps_after(run: StoredRun, phases: int) -> float:
    """Steps of a run at the end of that many phases; infinite if it has fewer."""
    at = run.column("steps")
    return math.inf if at is None or len(at) < phases else float(at[phases - 1])


def falls(run: StoredRun, metric: str, share: float, start: float, window: int) -> tuple[float, float]:
    """Steps at which a column and the reward of a run first fell below a share of their best so far; NaN for never.

    Both are means of `window` phases, of those after step `start`. Values never above zero cannot fall.
    """
    end, column, reward = (run.column(name) for name in ("steps", metric, "reward"))
    if end is None or column is None or reward is None:
        return math.nan, math.nan
    after = end > start
    steps = end[after][window - 1 :]

    def first_fall(values: Array) -> float:
        y = trailing_mean(values[after], window)
        best = np.fmax.accumulate(y)
        at = np.flatnonzero((best > 0) & (y < share * best))
        return float(steps[at[0]]) if len(at) else math.nan

    return first_fall(column), first_fall(reward)


def fall_of_reward(run: StoredRun) -> float:
    """Steps at which the reward of a run first fell; NaN for never."""
    return falls(run, "reward", SHARE, 0, WINDOW)[1]


def trailing_mean(y: Array, window: int) -> Array:
    """Means of `window` successive values, NaN where one of them is: [phases] -> [phases − window + 1]."""
    if len(y) < window:
        return np.empty(0)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(y, window).mean(axis=-1))
