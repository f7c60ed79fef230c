"""Claims: their parts, as in the file of a figure; contrasts with intervals that are right for few seeds; verdicts.

A percentile bootstrap of two values covers the truth half of the time, of five 83 %. The interval of a contrast is
Student's, over seeds within environments; a statistic that is no mean (a share of another mean) enters as jackknife
pseudo-values, one per seed. For a difference of means this is the paired t-test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...errors import UserError
from ..scores import Array
from ..t_intervals import mean_over_groups

Outcome = Literal["yes", "no", "open"]
Statistic = Callable[[Array], float]  # of means [terms]
AGREES, PARTLY, DISAGREES, CANNOT_TELL = "agrees", "partly", "disagrees", "cannot tell"
VOCABULARY = (AGREES, PARTLY, DISAGREES, CANNOT_TELL)


@dataclass(frozen=True)
class ClaimPart:
    """A testable statement: a quantity of each of `of` at each of `k` is more or less than, or alike to, that of each
    of `over`, or that at `over_k`, or a number.

    Quantities are compared seed by seed, per environment, and averaged over environments (see `part_tests.py`).
    """

    says: str  # the statement in words
    of: tuple[str, ...] = ()  # algorithms, as the study names them
    be: Literal["more", "less", "alike"] = "more"
    what: str = "score"  # area, return, kept, seconds, warned, or a column of the metrics (`evidence.py`)
    over: tuple[str, ...] = ()  # algorithms to compare with
    k: tuple[int, ...] = ()  # capacities; empty: the study's only one
    over_k: int | None = None  # capacity to compare with
    beyond: bool = False  # compare the difference from `over` at k with that at `over_k`
    than: float | None = None  # number to compare with, or for the difference (with `ratio` the ratio)
    margin: float = 0.0  # alike: differences up to this; more and less: beyond this; negative: not worse by as much
    env: str = ""  # one environment; empty: all
    study: str = ""  # another study's runs; empty: the figure's
    phases: tuple[int, ...] = ()  # of a column of the metrics: from the first up to before the second; empty: all
    reduce: Literal["mean", "max", "geometric", "change", "jump", "turn"] = "mean"  # over those phases
    ratio: bool = False  # of positive values: their ratio is compared, by differences of logarithms
    untested: str = ""  # reason why no run can test it; then nothing else is given

    def __post_init__(self) -> None:
        if self.untested or self.what in ("warned", "warned first"):
            return
        if not self.of or (self.than is None and not self.over and self.over_k is None):
            raise UserError(f"part {self.says!r}: say of whom, and compare with over, over_k or than")
        if self.beyond and (not self.over or self.over_k is None):
            raise UserError(f"part {self.says!r}: beyond needs over and over_k")
        if len(self.phases) not in (0, 2):
            raise UserError(f"part {self.says!r}: phases are the first, and the one after the last")
        if self.be == "alike" and not self.margin > 0:
            raise UserError(f"part {self.says!r}: alike needs a margin")


def combine_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Combine the comparisons of a part: yes if all are, no if one is."""
    return "no" if "no" in outcomes else "yes" if outcomes and set(outcomes) == {"yes"} else "open"


def verdict(parts: Sequence[Outcome]) -> str:
    """Verdict of a claim from the outcomes of its parts; empty without parts."""
    if not parts:
        return ""
    if set(parts) == {"yes"}:
        return AGREES
    if "yes" in parts:
        return PARTLY
    return DISAGREES if "no" in parts else CANNOT_TELL


@dataclass(frozen=True)
class Contrast:
    """An estimate, averaged over environments."""

    value: float
    low: float | None  # None without an interval: see `contrast`
    high: float | None
    p: float | None  # two-sided, of no difference
    n: int  # pairs of runs, or runs
    envs: Mapping[str, float]  # the same of each environment

    def outcome(self, be: str, margin: float = 0.0) -> Outcome:
        """Return whether the whole interval is within the claim's range or outside of it. `more`: above the margin;
        `less`: below minus the margin; `alike`: between the two."""
        if self.low is None or self.high is None:
            return "open"
        low, high = (self.low, self.high) if be != "less" else (-self.high, -self.low)
        if be == "alike":
            inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        else:
            inside, outside = low > margin, high <= margin
        return "yes" if inside else "no" if outside else "open"


def contrast(tasks: Mapping[str, Array], statistic: Statistic) -> Contrast:
    """`statistic` of the means of values [terms, seeds] per environment, averaged over environments.

    Environments are independent, seeds are paired. An environment of one seed leaves neither interval nor p; seeds that
    all differ by the same leave p alone, and no interval where they are too few for it (`mean_over_groups`).
    """
    values = {env: statistic(v.mean(axis=1)) for env, v in tasks.items()}
    sizes = [v.shape[1] for v in tasks.values()]
    if min(sizes) < 2:
        return Contrast(float(np.mean(list(values.values()))), None, None, None, sum(sizes), values)
    variances = [_jackknife_variance(v, statistic) for v in tasks.values()]
    return Contrast(*mean_over_groups(list(values.values()), variances, sizes), sum(sizes), values)


def _jackknife_variance(values: Array, statistic: Statistic) -> float:
    """Variance of the statistic of values [terms, seeds], from its pseudo-values."""
    n = values.shape[1]
    without_one = np.array([statistic(np.delete(values, i, axis=1).mean(axis=1)) for i in range(n)])
    pseudo_values = n * statistic(values.mean(axis=1)) - (n - 1) * without_one
    return float(pseudo_values.var(ddof=1) / n)
