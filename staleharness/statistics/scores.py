"""Scores of a stored run: final, over training, before training; and the facts of its kind of task about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, nearest
from ..store.run_grid import RunGrid, cell_of, describe_cell
from ..store.stored_run import StoredRun

Array = NDArray[np.float64]
SCORES = ("sampled", "deterministic")
AUTO = "auto"  # the kind of task decides: see `usual`
# Facts for runs of several kinds of task.
MIXED: dict[str, Any] = {"measures": {}, "score": "sampled", "normalise": "minmax"}


def resolve_auto(runs: Iterable[StoredRun], score: str, normalise: str) -> tuple[str, str]:
    """Replace `auto` by the usual score and normalisation of the kind of task; for several kinds, by sampled returns
    between the worst and the best run of the table."""
    facts = _task_facts(runs)
    return facts["score"] if score == AUTO else score, facts["normalise"] if normalise == AUTO else normalise


def score_in_words(runs: Iterable[StoredRun], score: str) -> str:
    """Describe a score in words."""
    return str(_task_facts(runs)["measures"].get(score, f"{score} returns"))


def _task_facts(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """Facts of the kind of task (`Task.facts`) in the records, if all agree; runs of a kind may have more scores than
    others."""
    facts = [run.record["task"] for run in runs]
    distinct = {(each["kind"], each["score"], each["normalise"]) for each in facts}
    if len(distinct) != 1:
        return MIXED
    measures = {way: words for each in facts for way, words in each["measures"].items()}
    return {**facts[0], "measures": measures}


def unit(runs: Iterable[StoredRun]) -> str:
    """Unit of `steps`: the label of the training axis."""
    return " or ".join(sorted({str(run.record["task"]["unit"]) for run in runs})) or "steps"


def axis(run: StoredRun, name: str) -> str | None:
    """Name of the setting behind an axis of the kind of task (N: rounds of N minibatches), or None."""
    return dict(run.record["task"]["axes"]).get(name)


def final_score(run: StoredRun, score: str) -> float:
    """Mean return of the final policy over its evaluation episodes."""
    if score not in SCORES:
        raise UserError(f"score={score!r} is not known; {nearest(score, SCORES)}")
    value = run.record["scores"].get(score)
    if value is None:
        raise UserError(f"run {run.id} ({describe_cell(cell_of(run))}) has no {score} score")
    return float(value["mean"])


def deviations(column: Array) -> Array:
    """Deviations of runs from their mean: exactly 0 where all score the same, despite rounding of the mean."""
    return column - column.mean() if np.ptp(column) else np.zeros_like(column)


def learning_curve(run: StoredRun, score: str) -> tuple[Array, Array]:
    """(steps [points], mean return of the newest policy [points])."""
    return run.curves.get(score, (np.empty(0), np.empty(0)))


def score_before_training(run_grid: RunGrid, env: str, score: str) -> tuple[float, float] | None:
    """Return (score, standard error) of the policy before training: mean over the runs of an environment that have
    it."""
    pairs = [
        (summary[f"untrained/{score}"], summary[f"untrained/{score}_error"])
        for cell, runs in run_grid.cells.items()
        if cell.env == env
        for summary in (run.record["summary"] for run in runs)
        if f"untrained/{score}" in summary
    ]
    if not pairs:
        return None
    means, errors = np.array(pairs).T
    return float(means.mean()), float(errors.mean())
