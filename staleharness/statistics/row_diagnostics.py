"""Diagnostics of the runs of a row: distance of their data from the target policy over training, decisions affected by
each mechanism of the method, and their lags and ledgers. Columns are freed after each row, as there may be thousands of
runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..store.stored_run import StoredRun
from .scores import Array

LagCounts = dict[int, int]  # lag in phases -> number of decisions or rows
BINS = 100  # of a diagnostic over training
STALENESS = {
    "tv_data": "TV of the data",
    "ess_data": "ESS of the data",
    "kl_k3_data": "KL (k3) of the data",
    "clipped": "clipped share",
}
# Columns of the metrics that are shares: heading, and what the mechanism does to such a decision.
MECHANISMS = {
    "clipped": ("no gradient", "had an advantage and got no gradient from the method, as measured"),
    "clipped_positive": ("… at A > 0", "of these, those with a positive advantage"),
    "clipped_negative": ("… at A < 0", "of these, those with a negative advantage"),
    "algorithm/clipped": ("clipped", "the trust region took the gradient away"),
    "algorithm/masked": ("masked", "rejected by a rule on importance ratios"),
    "algorithm/vetoed": ("vetoed", "in a completion with an impossible decision"),
    "algorithm/truncated": ("truncated", "weight cut to its cap; the gradient stays"),
    "algorithm/rho_truncated": ("truncated", "weight cut to its cap; the gradient stays"),
    "algorithm/filter_active": ("filter active", "in a minibatch in which the filter acts"),
}


class Share(NamedTuple):
    """Share of decisions, mean over runs: over all phases, and in the last phase."""

    mean: float
    last: float


class Diagnostics(NamedTuple):
    """Diagnostics of the runs of a row."""

    staleness: dict[str, tuple[Array, Array]]  # by column: see `in_bins`
    mechanisms: dict[str, Share]  # by column, of mechanisms that any run measured


def diagnostics(runs: Iterable[StoredRun]) -> Diagnostics:
    """Compute the diagnostics of a row's runs."""
    names = list(dict.fromkeys(("steps", *STALENESS, *MECHANISMS)))
    runs = list(runs)
    columns = [budget_columns(run, names) for run in runs]
    envs = [str(run.record["spec"]["env"]) for run in runs]
    staleness = {}
    for name in STALENESS:
        measurements = [(env, c) for env, c in zip(envs, columns, strict=True) if {"steps", name} <= c.keys()]
        staleness[name] = in_bins([(c["steps"], c[name]) for _, c in measurements], [env for env, _ in measurements])
    mechanisms = {name: [c[name] for c in columns if name in c] for name in MECHANISMS}
    return Diagnostics(staleness, {name: _share(of_runs) for name, of_runs in mechanisms.items() if of_runs})


def budget_columns(run: StoredRun, names: Sequence[str]) -> dict[str, Array]:
    """Read columns of the metrics as `StoredRun.columns` does, without the phases that fill the buffer."""
    return {name: in_budget(run, column) for name, column in run.columns(names).items()}


def in_budget(run: StoredRun, column: Array) -> Array:
    """Return the values of a column [phases] in the phases of the budget."""
    return column[int(run.spec.get("fill_phases", 0)) :]


def budget_phases(run: StoredRun) -> int:
    """Return the number of a run's phases without those that fill the buffer."""
    return int(run.record["phases"]) - int(run.spec.get("fill_phases", 0))


def in_bins(curves: Sequence[tuple[Array, Array]], envs: Sequence[str], max_bins: int = BINS) -> tuple[Array, Array]:
    """Mean of curves (steps [phases], values [phases]) over runs and within bins of equally many phases: ([bins],
    [bins]).

    `envs`: the environment of each curve; environments have equal weight, however many runs they have.
    """
    x = np.concatenate([np.empty(0), *(steps for steps, _ in curves)])
    y = np.concatenate([np.empty(0), *(values for _, values in curves)])
    sizes = Counter(envs)
    share = [min(sizes.values()) / sizes[env] for env in envs]
    weight = np.repeat(share, [len(steps) for steps, _ in curves]) if curves else np.empty(0)
    x, y, weight = (values[np.isfinite(y)] for values in (x, y, weight))
    phases = np.unique(x)
    bins = min(len(phases), max_bins)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    total = np.bincount(index, weight, bins)
    return np.bincount(index, weight * x, bins) / total, np.bincount(index, weight * y, bins) / total


def _share(columns: Sequence[Array]) -> Share:
    values = [c[~np.isnan(c)] for c in columns]
    return Share(float(np.mean([v.mean() for v in values])), float(np.mean([v[-1] for v in values])))


EMPTY = diagnostics([])


def lags_of(runs: Sequence[StoredRun], kind: str) -> LagCounts:
    """Count decisions (rows, where `assigned`) by lag, over the runs that recorded them, without counts of 0."""
    total: Counter[int] = Counter()
    for run in runs:
        for lag, count in run.record.get("lags", {}).get(kind, {}).items():
            total[int(lag)] += int(count)
    return {lag: count for lag, count in sorted(total.items()) if count}


def ledger_of(runs: Sequence[StoredRun], unit: str) -> Counter[str]:
    """Add up the ledgers of runs; `unit`: sequences or decisions."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.record.get("ledger", {}).get(unit, {}))
    return total


def mean_lag(lags: LagCounts) -> float:
    """Mean of the lags, weighted by their counts; 0 for none."""
    return sum(lag * count for lag, count in lags.items()) / max(1, sum(lags.values()))
