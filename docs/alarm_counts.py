"""Metrics that change before the reward falls, over all published stale runs: hits, false alarms, phases before.

What follows was written before any of it was computed.

Fall: the reward (control: the return) of the data, a mean over 8 phases, is below two thirds of its best so far. Means
that were never above zero cannot fall. Only phases after twice the largest lag count: before, data are fresher.
Alarm: the mean of a metric over the same 8 phases has moved from its own best so far by more than a level. `ratio`: it
is below level × its largest, or above level × its smallest; `change`: it differs from that by more than the level;
`size`: it is itself beyond the level, on either side.
Hit: a run with a fall whose alarm comes in an earlier phase. False alarm: a run without a fall that has an alarm.
Level: of those listed, the one with the largest share of hits less share of false alarms on the choosing half. The
other half reports. The halves are studies: of those that were there, of each kind of task, in alphabetical order, the
first, third, fifth ... choose (`CHOSE_FIRST`, `REPORTED_FIRST`); a later one chooses where the first byte of the
SHA-256 of its name is even, so that it moves no other. A run that two studies hold counts in the first. Where either
half has no fall, nothing is reported.
Interval: 95 %, percentiles of 2,000 resamples of (study, environment, seed), for runs of one seed share their noise.
The reward itself is among the metrics, with milder levels: what a warning has to beat.

Written later, before the runs that have them: the cosine of successive gradients, and the KL by age.

Written on 29 November 2026, after the rest was computed: a mean of returns is over those of the 8 phases in which an
episode ended, and missing where none did. Before, a run with a phase without an episode was left out, and so all of
HalfCheetah. A metric with fewer than `FEWEST` falls has no interval.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from staleharness.statistics.claims.early_warning import SHARE, WINDOW, largest_lag, trailing_mean
from staleharness.statistics.results import load
from staleharness.store.bundle_reader import is_packed
from staleharness.store.results_folder_checks import folders_of_results
from staleharness.store.stored_run import StoredRun

Floats = NDArray[np.float64]
Cluster = tuple[str, str, int]  # study, environment, seed
RESAMPLES = 2_000
DOWN = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
UP = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
NATS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
MILD = (0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
FELL = "reward"
CHOSE_FIRST = frozenset(
    "a3po_language async_rl_opob backward_forward corrections_hopper lesson_tokens real_lag stalebench_v1_tokens "
    "vaco_ratio vaco_value_function vcpo_whole".split()
)
REPORTED_FIRST = frozenset(
    "async_rl backward_forward_hopper corrections_word_problems lr_lag_tokens quick_hopper smollm2_lag stress_lags "
    "vaco_control vaco_ratio_hopper".split()
)


class Metric(NamedTuple):
    """A column and the rule of its alarm."""

    name: str
    column: str
    rule: Literal["ratio", "change", "size"]
    levels: Sequence[float]
    rises: bool = True


METRICS = (
    Metric("ESS of decisions", "ess_data", "ratio", DOWN, rises=False),
    Metric("ESS of completions", "ess_sequence", "ratio", DOWN, rises=False),
    Metric("KL of the data (k3)", "kl_k3_data", "ratio", UP),
    Metric("KL of newer decisions", "mismatch/kl_k3_newer", "ratio", UP),
    Metric("KL of older decisions", "mismatch/kl_k3_older", "ratio", UP),
    Metric("TV of the data", "tv_data", "ratio", UP),
    Metric("largest weight", "weight_max", "ratio", UP),
    Metric("clipped, A > 0", "clipped_positive", "change", SHARES),
    Metric("clipped, A < 0", "clipped_negative", "change", SHARES),
    Metric("tails, A > 0", "mismatch/tails_positive", "change", SHARES),
    Metric("tails, A < 0", "mismatch/tails_negative", "change", SHARES),
    Metric("tails of the older half", "mismatch/tails_older", "change", SHARES),
    Metric("entropy", "entropy", "change", NATS, rises=False),
    Metric("gradient norm", "grad_norm", "ratio", UP),
    Metric("gradient cosine", "algorithm/gradient_cosine", "change", SHARES),
    Metric("surprisal gap", "mismatch/surprisal_gap", "size", (2.0, 3.0, 5.0, 10.0)),
    Metric("the reward itself", FELL, "ratio", MILD, rises=False),
)
ON_CONTROL = {FELL: "rollout_return", "weight_max": "weight_max_data"}  # where the column has another name


@dataclass(frozen=True)
class Run:
    """Curves and settings of a stale run, as far as the page needs them."""

    kind: str
    study: str
    cluster: Cluster
    fall: float  # phase, counted from the first that counts; infinite for none
    means: dict[str, Floats]  # column -> means [phases]


class Counts(NamedTuple):
    """One entry per cluster [n]: falls, hits, runs without a fall, false alarms, and phases from alarm to fall."""

    fell: Floats
    hits: Floats
    stood: Floats
    alarms: Floats
    leads: list[list[float]]

    @property
    def hit_rate(self) -> float:
        return _share(self.hits, self.fell)

    @property
    def alarm_rate(self) -> float:
        return _share(self.alarms, self.stood)

    @property
    def gain(self) -> float:
        return self.hit_rate - self.alarm_rate

    @property
    def lead(self) -> float:
        """Median phases from alarm to fall, NaN without a hit."""
        return _median(self.leads)


def _share(part: Floats, whole: Floats) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


def _median(leads: Iterable[list[float]]) -> float:
    """Return the median of all numbers in some lists, NaN where there is none."""
    numbers = list(itertools.chain.from_iterable(leads))
    return statistics.median(numbers) if numbers else float("nan")


def mean_return(returns: Floats) -> Floats:
    """Return means over the phases of a window in which an episode ended, NaN where none did: [phases] -> [phases − 7].

    returns: [phases] mean return of the episodes that ended in a phase, NaN where none did.
    """
    known = np.isfinite(returns)
    shares = trailing_mean(known.astype(np.float64), WINDOW)
    sums = trailing_mean(np.where(known, returns, 0.0), WINDOW)
    return np.divide(sums, shares, out=np.full_like(sums, np.nan), where=shares > 0)


def first(condition: NDArray[np.bool_]) -> float:
    """Index at which a condition [n] first holds; infinite where it never does."""
    at = np.flatnonzero(condition)
    return float(at[0]) if len(at) else float("inf")


def fall_of(reward: Floats) -> float:
    """Phase at which means of the reward have fallen below `SHARE` of their best so far; infinite for none."""
    best = np.fmax.accumulate(reward)
    return first((best > 0) & (reward < SHARE * best))


def alarm_of(means: Floats, metric: Metric, level: float) -> float:
    """Phase of a metric's first alarm, infinite for none."""
    if metric.rule == "size":
        return first(np.abs(means) > level)
    best = (np.fmin if metric.rises else np.fmax).accumulate(means)
    if metric.rule == "change":
        return first((means - best > level) if metric.rises else (best - means > level))
    return first((best > 0) & ((means > level * best) if metric.rises else (means < level * best)))


def run_of(stored: StoredRun, study: str) -> Run | None:
    """Return what the page needs of a run; None for one without stale data, or too short to have a fall."""
    kind, lag = str(stored.record["task"]["kind"]), largest_lag(stored)
    columns = {
        m.column: stored.column(ON_CONTROL.get(m.column, m.column) if kind == "control" else m.column) for m in METRICS
    }
    first = max(2 * lag, int(stored.spec.get("fill_phases", 0)))  # with stale data, trained on
    late = {name: x[first:] for name, x in columns.items() if x is not None}
    means = {name: trailing_mean(x, WINDOW) for name, x in late.items() if name != FELL}
    means = {name: x for name, x in means.items() if len(x) > 1 and np.isfinite(x).all()}
    if lag == 0 or FELL not in late or np.isfinite(reward := mean_return(late[FELL])).sum() < 2:
        return None
    means[FELL] = reward
    cluster = study, str(stored.spec["env"]), stored.seed
    return Run(kind, study, cluster, fall_of(means[FELL]), means)


@cache
def stale_runs(bundles: Path) -> tuple[Run, ...]:
    """Return all stale runs of the published studies, each once."""
    seen, runs = set[str](), []
    for bundle in folders_of_results(bundles):
        if not is_packed(bundle):
            continue
        for stored in load(bundle):
            if stored.id in seen:
                continue
            seen.add(stored.id)
            if (run := run_of(stored, bundle.name)) is not None:
                runs.append(run)
    return tuple(runs)


def halves(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of the studies that choose, and of those that report."""
    return [r for r in runs if chooses(r.study)], [r for r in runs if not chooses(r.study)]


def chooses(study: str) -> bool:
    """Return whether a study is of the half that chooses levels."""
    if study in CHOSE_FIRST | REPORTED_FIRST:
        return study in CHOSE_FIRST
    return hashlib.sha256(study.encode()).digest()[0] % 2 == 0


def count(runs: Iterable[Run], metric: Metric, level: float) -> Counts:
    """Return the counts over the runs that have the metric."""
    rows: dict[Cluster, list[int]] = {}
    leads: dict[Cluster, list[float]] = {}
    for run in runs:
        if metric.column not in run.means:
            continue
        alarm = alarm_of(run.means[metric.column], metric, level)
        fell, hit = np.isfinite(run.fall), alarm < run.fall
        row = rows.setdefault(run.cluster, [0, 0, 0, 0])
        for i, yes in enumerate((fell, fell and hit, not fell, not fell and np.isfinite(alarm))):
            row[i] += bool(yes)
        leads.setdefault(run.cluster, []).extend([run.fall - alarm] if fell and hit else [])
    table = np.array([rows[key] for key in sorted(rows)], dtype=float).reshape(-1, 4)
    fell, hits, stood, alarms = table.T
    return Counts(fell, hits, stood, alarms, [leads[key] for key in sorted(rows)])


def best_level(runs: Sequence[Run], metric: Metric) -> float | None:
    """Return the level with the largest gain on these runs, the first of equals; None where no run fell, or all did."""
    gains = {level: count(runs, metric, level).gain for level in metric.levels}
    if not all(np.isfinite(gain) for gain in gains.values()):
        return None
    return max(gains, key=gains.__getitem__)


def intervals(counts: Counts, tests: int = 1) -> dict[str, tuple[float, float]]:
    """Return the 95 % intervals of the four statistics over resampled clusters.

    tests: intervals that shall all hold at once in 95 % of cases (Bonferroni).
    """
    rng, n = np.random.default_rng(0), len(counts.fell)
    drawn = np.array([rng.integers(n, size=n) for _ in range(RESAMPLES)])
    fell, hits, stood, alarms = (x[drawn].sum(axis=1) for x in counts[:4])
    with np.errstate(invalid="ignore"):  # 0 of 0
        hit_rate, alarm_rate = hits / fell, alarms / stood
    lead = np.array([_median(counts.leads[i] for i in places) for places in drawn])
    found = {}
    resamples = {"hit_rate": hit_rate, "alarm_rate": alarm_rate, "gain": hit_rate - alarm_rate, "lead": lead}
    for name, values in resamples.items():
        values = values[np.isfinite(values)]
        low, high = np.percentile(values, [2.5 / tests, 100 - 2.5 / tests]) if len(values) else (np.nan, np.nan)
        found[name] = float(low), float(high)
    return found
