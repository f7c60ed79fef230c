"""What a stored run scored: at the end, and over training; and how scores of its kind of task are read."""

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
# Of runs that are not read alike.
MIXED: dict[str, Any] = {"measures": {}, "score": "sampled", "normalise": "minmax"}


def resolve_auto(runs: Iterable[StoredRun], score: str, normalise: str) -> tuple[str, str]:
    """`auto` replaced by what the kind of task is reported by; where kinds are mixed, by sampled returns between the
    worst and the best run of the table."""
    facts = _read_as(runs)
    return facts["score"] if score == AUTO else score, facts["normalise"] if normalise == AUTO else normalise


def score_in_words(runs: Iterable[StoredRun], score: str) -> str:
    """What a score is, in words."""
    return str(_read_as(runs)["measures"].get(score, f"{score} returns"))


def _read_as(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """What the records say of their kind of task (`Task.facts`), where all say the same; runs of a kind may be scored
    in more ways than others."""
    facts = [run.record["task"] for run in runs]
    said = {(each["kind"], each["score"], each["normalise"]) for each in facts}
    if len(said) != 1:
        return MIXED
    measures = {way: words for each in facts for way, words in each["measures"].items()}
    return {**facts[0], "measures": measures}


def unit(runs: Iterable[StoredRun]) -> str:
    """What `steps` counts: the label of the axis of training."""
    return " or ".join(sorted({str(run.record["task"]["unit"]) for run in runs})) or "steps"


def axis(run: StoredRun, name: str) -> str | None:
    """The setting that an axis of its kind of task stands for (N, of rounds of N minibatches), or None."""
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
    """Of runs from their mean: exactly 0 where all score the same, whatever rounding makes of the mean."""
    return column - column.mean() if np.ptp(column) else np.zeros_like(column)


def learning_curve(run: StoredRun, score: str) -> tuple[Array, Array]:
    """(steps [points], mean return of the newest policy [points])."""
    return run.curves.get(score, (np.empty(0), np.empty(0)))


def score_before_training(found: RunGrid, env: str, score: str) -> tuple[float, float] | None:
    """(score, standard error) of the policy before training: mean over the runs of an environment that know it."""
    said = [
        (summary[f"untrained/{score}"], summary[f"untrained/{score}_error"])
        for cell, runs in found.cells.items()
        if cell.env == env
        for summary in (run.record["summary"] for run in runs)
        if f"untrained/{score}" in summary
    ]
    if not said:
        return None
    means, errors = np.array(said).T
    return float(means.mean()), float(errors.mean())
