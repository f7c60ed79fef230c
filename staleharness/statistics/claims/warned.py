"""Whether the effective sample size warns of a fall of the reward: hits and false alarms over all stale runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..falls import SHARE, WINDOW, after, falls, largest_lag
from .contrast import Contrast

METRIC = "ess_sequence"
WARNINGS = ("warned", "warned first")  # hits against false alarms, and hits against a half
Z = 1.959964  # of a two-sided 95 % normal interval


@dataclass(frozen=True)
class Warned:
    """Counts of runs."""

    fell: int  # their reward fell
    before: int  # of these, the effective sample size first
    stood: int  # their reward never fell
    alarms: int  # of these, the effective sample size did

    @property
    def text(self) -> str:
        return (
            f"ESS first in {self.before} of {self.fell} runs whose reward fell; a false alarm in {self.alarms} of "
            f"{self.stood} whose reward did not"
        )

    @property
    def first(self) -> Contrast:
        """Share of hits less a half, with Wilson's interval. Raises `UserError` where no run fell."""
        if not self.fell:
            raise UserError("the reward fell in no stale run")
        low, high = wilson(self.before, self.fell)
        return Contrast(self.before / self.fell - 0.5, low - 0.5, high - 0.5, None, self.fell, {})

    @property
    def contrast(self) -> Contrast:
        """Share of hits less share of false alarms; Newcombe's interval, p by Fisher's exact test. Raises `UserError`
        where no run fell, or all did."""
        if not self.fell or not self.stood:
            raise UserError("no hits and false alarms: the reward fell in all stale runs, or in none")
        a, b = self.before / self.fell, self.alarms / self.stood
        (la, ha), (lb, hb) = wilson(self.before, self.fell), wilson(self.alarms, self.stood)
        low = a - b - math.hypot(a - la, hb - b)
        high = a - b + math.hypot(ha - a, b - lb)
        p = fisher(self.before, self.fell, self.alarms, self.stood)
        return Contrast(a - b, low, high, p, self.fell + self.stood, {})


def warned(runs: Iterable[StoredRun]) -> Warned:
    """Stale runs only; what is before twice the largest lag does not count, as the data are fresher there."""
    fell = before = stood = alarms = 0
    for run in runs:
        lag = largest_lag(run)
        if lag == 0:
            continue
        warning, fall = falls(run, METRIC, SHARE, after(run, 2 * lag), WINDOW)
        if math.isnan(fall):
            stood, alarms = stood + 1, alarms + (not math.isnan(warning))
        else:
            fell, before = fell + 1, before + (warning < fall)
    return Warned(fell, before, stood, alarms)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, z2 = hits / n, Z**2 / n
    middle = (share + z2 / 2) / (1 + z2)
    reach = Z / (1 + z2) * math.sqrt(share * (1 - share) / n + z2 / (4 * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def fisher(hits: int, n: int, others: int, m: int) -> float:
    """Two-sided p of Fisher's exact test that two shares are one: tables as likely as this one or less."""
    total = hits + others

    def chance(x: int) -> float:
        return math.comb(n, x) * math.comb(m, total - x) / math.comb(n + m, total)

    mine = chance(hits)
    possible = range(max(0, total - m), min(n, total) + 1)
    return min(1.0, sum(c for x in possible if (c := chance(x)) <= mine * (1 + 1e-9)))
