"""Slowdown: steps at K divided by steps at K = 1 until both score the same, per environment, with its interval.

The target is a share of the best score of the method's own synchronous runs, counted from the zero of the environment.
Unlike retention of the final score, this does not penalise a method for a high score without lag.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import UserError
from .bootstrap import REPS, TAILS, iqm, stable_seed
from .lag_curve import LagCurve
from .scores import Array, learning_curve

LEVEL = 0.5  # of the best synchronous score


@dataclass(frozen=True)
class Factor:
    """Ratio of steps; a lower bound where the stale runs never reached the target."""

    value: float
    never: bool = False

    @property
    def words(self) -> str:
        """Text such as `2.5`, `> 3.1`."""
        return ("> " if self.never else "") + f"{self.value:.1f}"

    def to_json(self) -> dict[str, Any]:
        return {"factor": self.value, "kind": "at least" if self.never else "="}


@dataclass(frozen=True)
class Slowdown:
    """Slowdown of one method in one environment at one stale setting."""

    k: int
    lag: float
    factor: Factor
    low: Factor
    high: Factor
    target: float  # the score to reach
    steps: float  # steps in which the synchronous runs reach it

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {name: getattr(self, name).to_json() for name in ("factor", "low", "high")}


def slowdowns(curve: LagCurve, score: str, level: float = LEVEL, reps: int = REPS) -> list[Slowdown]:
    """Compute the slowdown at each stale setting of a curve. Seeds are drawn as for the budget.

    Curves are IQMs over seeds of the newest policy's evaluations, and a score counts from the first time it is reached;
    steps are linear between evaluations and not below the first, before which there is no data. Raises `UserError`
    where runs were evaluated fewer than twice, at different steps, or the synchronous ones never score above zero.
    """
    steps, evaluations = _evaluations(curve, score)
    rng = np.random.default_rng(stable_seed("slowdown", curve.algorithm, curve.env))
    places = curve.resample_seeds(reps, rng)
    curves = [_best_so_far(scores[None]) for scores in evaluations]
    resamples = [_best_so_far(scores[at]) for scores, at in zip(evaluations, places, strict=True)]
    resamples = [of_setting[resamples[0][:, -1] > 0] for of_setting in resamples]  # the others have no target
    if not curves[0][0, -1] > 0:
        raise UserError("its synchronous runs never score above zero")
    results = []
    goals, goal = level * resamples[0][:, -1], level * curves[0][:, -1]
    start, starts = steps_to_reach(curves[0], steps, goal), steps_to_reach(resamples[0], steps, goals)
    bound = float(steps[-1] / start[0])
    for i in range(1, len(evaluations)):
        factor = float((steps_to_reach(curves[i], steps, goal) / start)[0])
        factors = steps_to_reach(resamples[i], steps, goals) / starts
        # a resample that never reaches the target is slower than its steps show, by an unknown factor
        ends = np.minimum(factors, float(steps[-1]) / starts), factors
        bounds = (np.where(e > bound, np.inf, e) for e in ends)  # no more than the stored runs can show
        low, high = (np.percentile(e, tail, method="inverted_cdf") for e, tail in zip(bounds, TAILS, strict=True))
        middle, lowest, highest = (
            Factor(bound, True) if np.isinf(f) else Factor(float(f)) for f in (factor, low, high)
        )
        target, start_steps = float(goal[0]) + curve.zero, float(start[0])
        lag = float(curve.lags[i])
        results.append(Slowdown(curve.capacities[i], lag, middle, lowest, highest, target, start_steps))
    return results


def steps_to_reach(curves: Array, steps: Array, goals: Array) -> Array:
    """Steps at which non-falling curves [reps, points] first reach their goals [reps]; infinite where they never do."""
    over = curves >= goals[:, None]
    i = over.argmax(axis=1)
    out = np.where(over.any(axis=1), steps[i], np.inf)
    rows = np.flatnonzero(over.any(axis=1) & (i > 0))
    j = i[rows]
    low, high = curves[rows, j - 1], curves[rows, j]
    out[rows] = steps[j - 1] + (steps[j] - steps[j - 1]) * (goals[rows] - low) / (high - low)
    return out


def _best_so_far(evaluations: Array) -> Array:
    """Highest IQM over seeds up to each point: [reps, seeds, points] -> [reps, points]."""
    return np.asarray(np.maximum.accumulate(iqm(np.moveaxis(evaluations, 1, -1)), axis=-1))


def _evaluations(curve: LagCurve, score: str) -> tuple[Array, list[Array]]:
    """Return steps [points], and for each setting the evaluations [seeds, points] above the zero."""
    curves = [[learning_curve(run, score) for run in runs] for runs in curve.runs]
    steps = curves[0][0][0]
    if len(steps) < 2:
        raise UserError("its runs were evaluated fewer than twice")
    if any(not np.array_equal(s, steps) for setting in curves for s, _ in setting):
        raise UserError("its runs were not evaluated at the same steps")
    return steps, [np.stack([values for _, values in setting]) - curve.zero for setting in curves]
