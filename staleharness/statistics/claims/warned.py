"""Whether the effective sample size warns of a fall of the reward: hits and false alarms over all stale runs.

Runs of one seed share their noise, so intervals and p are over seeds (`contrast.py`), whatever the number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..falls import SHARE, WINDOW, after, falls, largest_lag
from ..scores import Array
from .contrast import Contrast, contrast

METRIC = "ess_sequence"
WARNINGS = ("warned", "warned first")  # hits against false alarms, and hits against a half


@dataclass(frozen=True)
class Warned:
    """Counts of runs, each [seeds] (of an environment)."""

    fell: Sequence[int]  # their reward fell
    before: Sequence[int]  # of these, the effective sample size first
    stood: Sequence[int]  # their reward never fell
    alarms: Sequence[int]  # of these, the effective sample size did

    @property
    def text(self) -> str:
        return (
            f"ESS first in {sum(self.before)} of {sum(self.fell)} runs whose reward fell; a false alarm in "
            f"{sum(self.alarms)} of {sum(self.stood)} whose reward did not"
        )

    @property
    def first(self) -> Contrast:
        """Share of hits less a half. Raises `UserError` where no run fell, or runs of one seed alone."""
        _check(self.fell, "the reward fell in no stale run", "fell in stale runs of one seed only")
        return _over_seeds([self.before, self.fell], lambda m: float(m[0] / m[1] - 0.5))

    @property
    def contrast(self) -> Contrast:
        """Share of hits less share of false alarms. Raises `UserError` where no run fell, or all did; or where that
        rests on one seed."""
        none = "no hits and false alarms: the reward fell in all stale runs, or in none"
        for counts, one in ((self.fell, "fell in stale runs"), (self.stood, "stood in stale runs")):
            _check(counts, none, f"{one} of one seed only")
        rows = [self.before, self.fell, self.alarms, self.stood]
        return _over_seeds(rows, lambda m: float(m[0] / m[1] - m[2] / m[3]))


def _check(counts: Sequence[int], none: str, one: str) -> None:
    seeds = sum(count > 0 for count in counts)
    if seeds == 0:
        raise UserError(none)
    if seeds == 1 and len(counts) > 1:
        raise UserError(f"the reward {one}")


def _over_seeds(rows: Sequence[Sequence[int]], statistic: Callable[[Array], float]) -> Contrast:
    return replace(contrast({"": np.array(rows, dtype=float)}, statistic), envs={})


def warned(runs: Iterable[StoredRun]) -> Warned:
    """Stale runs only; what is before twice the largest lag does not count, as the data are fresher there."""
    counts: dict[tuple[str, int], list[int]] = {}
    for run in runs:
        lag = largest_lag(run)
        if lag == 0:
            continue
        warning, fall = falls(run, METRIC, SHARE, after(run, 2 * lag), WINDOW)
        stood, warns = math.isnan(fall), not math.isnan(warning)
        mine = counts.setdefault((str(run.spec["env"]), run.seed), [0, 0, 0, 0])
        for i, yes in enumerate((not stood, not stood and warning < fall, stood, stood and warns)):
            mine[i] += yes
    seeds = [counts[unit] for unit in sorted(counts)]
    return Warned(*(tuple(mine[i] for mine in seeds) for i in range(4)))
