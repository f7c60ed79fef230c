"""What the metrics of a row's runs come to: how far their data were from the policy that learns, over training, and
how many decisions each mechanism of the method touched. Columns are let go with their row: there may be thousands of
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..store.stored_run import StoredRun
from .scores import Array

BINS = 100  # of a diagnostic over training
STALENESS = {
    "tv_data": "TV of the data",
    "ess_data": "ESS of the data",
    "kl_k3_data": "KL (k3) of the data",
    "clipped": "clipped share",
}
# Columns of the metrics that are shares: what they are called, and what was done to such a decision.
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
    """Share of decisions, mean over runs: over all phases, and in the last one."""

    mean: float
    last: float


class Diagnostics(NamedTuple):
    """Of the runs of a row."""

    staleness: dict[str, tuple[Array, Array]]  # by column: see `in_bins`
    touched: dict[str, Share]  # by column of the mechanisms that any run measured


def diagnostics(runs: Iterable[StoredRun]) -> Diagnostics:
    names = list(dict.fromkeys(("steps", *STALENESS, *MECHANISMS)))
    columns = [run.columns(names) for run in runs]
    over = {
        name: in_bins([(c["steps"], c[name]) for c in columns if {"steps", name} <= c.keys()])
        for name in STALENESS
    }
    held = {name: [c[name] for c in columns if name in c] for name in MECHANISMS}
    return Diagnostics(over, {name: _share(of_runs) for name, of_runs in held.items() if of_runs})


def in_bins(curves: Sequence[tuple[Array, Array]], most: int = BINS) -> tuple[Array, Array]:
    """Mean of curves (steps [phases], values [phases]) over runs and within bins of equally many phases:
    ([bins], [bins])."""
    x = np.concatenate([np.empty(0), *(steps for steps, _ in curves)])
    y = np.concatenate([np.empty(0), *(values for _, values in curves)])
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    phases = np.unique(x)
    bins = min(len(phases), most)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    weight = np.bincount(index, minlength=bins)
    return np.bincount(index, x, bins) / weight, np.bincount(index, y, bins) / weight


def _share(columns: Sequence[Array]) -> Share:
    there = [c[~np.isnan(c)] for c in columns]
    return Share(float(np.mean([x.mean() for x in there])), float(np.mean([x[-1] for x in there])))


NOTHING = diagnostics([])
