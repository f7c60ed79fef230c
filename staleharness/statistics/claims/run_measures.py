"""Measures of single runs, by name: score, area, return, share kept, seconds, or a column of the metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import UserError, nearest
from ...store.run_grid import cell_of
from ...store.stored_run import StoredRun
from ..aggregate import area
from ..scores import Array, final_score, normaliser_of
from .early_warning import fall_of_reward
from .study_evidence import Evidence

Measure = Callable[[StoredRun], float]
MEASURES = ("score", "area", "return", "kept", "fell", "seconds")  # the others are columns of the metrics


def measure(quantity: str, evidence: Evidence, phases: Sequence[int] = (), reduce: str = "mean") -> Measure:
    """Return a measure of single runs by name.

    score, area: normalised as in the table; return: raw; kept: the return above the zero of its environment (to be
    divided by that at K = 1); fell: steps to the first fall of the reward; seconds: of collecting and learning, without
    evaluation; otherwise a column of the metrics over `phases`. Raises `UserError` for phases of a number per run.
    """
    if quantity in MEASURES and (phases or reduce != "mean"):
        raise UserError(f"{quantity} is one number per run: leave out phases and reduce")
    score, scale = evidence.table.settings["score"], normaliser_of(evidence.table)
    measures: dict[str, Measure] = {
        "score": lambda run: float(scale(cell_of(run).env, final_score(run, score))),
        "area": lambda run: area(run, scale, score),
        "return": lambda run: final_score(run, score),
        "kept": lambda run: final_score(run, score) - evidence.zero(cell_of(run).env),
        "fell": _fell,
        "seconds": _training_seconds,
    }
    return measures.get(quantity, lambda run: column_statistic(run, quantity, phases, reduce))


def _training_seconds(run: StoredRun) -> float:
    """Seconds of collecting and learning. Raises `UserError` where the record lacks them."""
    seconds = run.record.get("seconds", {})
    for name in ("collect", "learn"):
        if name not in seconds:
            raise UserError(f"run {run.id} ({run.label}) has no seconds.{name} in its record")
    return float(seconds["collect"] + seconds["learn"])


def _fell(run: StoredRun) -> float:
    """Steps to the first fall of the reward. Raises `UserError` where it never fell."""
    step = fall_of_reward(run)
    if math.isnan(step):
        raise UserError(f"the reward of {run.label}, seed {run.seed}, never fell")
    return step


def column_statistic(run: StoredRun, name: str, phases: Sequence[int] = (), reduce: str = "mean") -> float:
    """Reduce a column of a run's metrics over phases (from the first, up to before the second) that have it. Raises
    `UserError` where no phase has it, or too few."""
    if reduce not in REDUCERS:
        raise UserError(f"reduce={reduce!r} is not known; {nearest(reduce, REDUCERS)}")
    column = run.column(name)
    values = np.empty(0) if column is None else column[slice(*phases)] if phases else column
    values = values[~np.isnan(values)]
    if not len(values):
        raise UserError(f"run {run.id} ({run.label}) has no {name!r} in the phases asked for")
    if len(values) < LEAST.get(reduce, 1):
        raise UserError(f"run {run.id} ({run.label}) has too few phases for reduce={reduce!r} of {name!r}")
    return REDUCERS[reduce](values)


def _change(values: Array) -> float:
    """Difference of the last quarter from the first."""
    quarter = max(1, len(values) // 4)
    return float(values[-quarter:].mean() - values[:quarter].mean())


REDUCERS: Mapping[str, Callable[[Array], float]] = {
    "mean": lambda v: float(v.mean()),
    "max": lambda v: float(v.max()),
    "geometric": lambda v: float(np.exp(np.log(v).mean())),
    "change": _change,
    "jump": lambda v: float(np.abs(np.diff(v)).mean()),  # from phase to phase
    "turn": lambda v: float(np.corrcoef(np.diff(v)[:-1], np.diff(v)[1:])[0, 1]),  # of successive jumps
}
LEAST = {"jump": 2, "turn": 4}  # phases needed
