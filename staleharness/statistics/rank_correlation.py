"""Rank correlation of methods: would other seeds give the same order, and does another track agree?

Kendall's τ (1938) between two orders: pairs of methods in the same order less pairs in opposite orders, as a share of
all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

NODES = 31  # of the quadrature: more change no digit that is shown


class Agreement(NamedTuple):
    """Agreement of two orders of the same methods."""

    tau: float
    """Kendall's τ-b, which takes ties into account."""
    p: float
    """Two-sided, of unrelated orders."""
    methods: int


def replication_tau(scores: Mapping[str, Sequence[Sequence[float]]]) -> float | None:
    """Expected Kendall τ between the orders of two further replications with as many seeds, from one set of runs.

    scores: method -> task -> score of each run; a method's score is the mean over tasks of the means over runs, whose
    sampling error is taken as normal, with the variance of the runs. The spread of the measured scores overstates that
    of the true ones, so the latter are taken as normal about their mean, with the variance that the errors leave
    (empirical Bayes: Efron and Morris, 1973). A pair is in the same order in both replications with probability
    q² + (1 − q)², q = Φ(δ / σ): its τ is E (2 q − 1)² over the posterior of its true difference δ, by Gauss-Hermite
    quadrature, where σ² is the variance of a measured difference. None with fewer than two methods, or a task with one
    run.
    """
    columns = [[np.asarray(task, np.float64) for task in tasks] for tasks in scores.values()]
    if len(columns) < 2 or any(len(runs) < 2 for tasks in columns for runs in tasks):
        return None
    means = np.array([np.mean([runs.mean() for runs in tasks]) for tasks in columns])
    errors = np.array([sum(runs.var(ddof=1) / len(runs) for runs in tasks) / len(tasks) ** 2 for tasks in columns])
    true_variance = max(0.0, float(means.var(ddof=1) - errors.mean()))
    shrinkage = np.where(errors + true_variance > 0, true_variance / np.maximum(errors + true_variance, 1e-300), 1.0)
    centres, variances = means.mean() + shrinkage * (means - means.mean()), shrinkage * errors
    pairs = [
        _pair_tau(centres[i] - centres[j], variances[i] + variances[j], errors[i] + errors[j])
        for i, j in combinations(range(len(means)), 2)
    ]
    return float(np.mean(pairs))


def _pair_tau(centre: float, variance: float, error: float) -> float:
    """E (2 Φ(δ / σ) − 1)² over δ ~ N(centre, variance), with σ² = error; 1 or 0 without error."""
    from scipy.special import ndtr

    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    differences = centre + math.sqrt(variance) * nodes
    if error <= 0:
        return float(centre != 0)
    return float(weights @ (2 * ndtr(differences / math.sqrt(error)) - 1) ** 2 / weights.sum())


def order_agreement(a: Mapping[str, float], b: Mapping[str, float]) -> Agreement | None:
    """Kendall's τ-b between the scores of the methods that both have; None with fewer than three, or where all of one
    side tie."""
    labels = sorted(a.keys() & b.keys())
    if len(labels) < 3:
        return None
    from scipy.stats import kendalltau

    tau, p = kendalltau([a[label] for label in labels], [b[label] for label in labels])
    return None if math.isnan(tau) else Agreement(float(tau), float(p), len(labels))
