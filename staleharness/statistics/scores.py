"""Scores of a stored run: final, over training, before training; and the facts of its kind of task about them.

Normalised scores are comparable between environments: 0 and 1 stand for two returns of each environment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, nearest
from ..store.run_grid import RunGrid, cell_of, describe_cell
from ..store.stored_run import StoredRun

if TYPE_CHECKING:
    from .table import Table


Array = NDArray[np.float64]
SCORES = ("sampled", "deterministic")
AUTO = "auto"  # the kind of task decides: see `resolve_auto`
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
    distinct = {(entry["kind"], entry["score"], entry["normalise"]) for entry in facts}
    if len(distinct) != 1:
        return MIXED
    measures = {name: text for entry in facts for name, text in entry["measures"].items()}
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


NORMALISATIONS = ("minmax", "ppo", "frozen", "raw")
BASELINE = "ppo_clip"  # method whose runs at K = 1 set the scale "ppo"
CONSTANTS = Path(__file__).with_name("normalisation.json")


@dataclass(frozen=True)
class Normaliser:
    """score -> (score - low) / (high - low), the two constants per environment."""

    kind: str
    low: dict[str, float]
    high: dict[str, float]
    note: str  # description of the constants

    def __call__(self, env: str, values: Array | float) -> Array:
        values = np.asarray(values, dtype=np.float64)
        span = self.high[env] - self.low[env]
        # Where every run scored the same, none is better: all are 0.5, and the table has a note.
        return (values - self.low[env]) / span if span > 0 else np.full_like(values, 0.5)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a table for this scale, which `normaliser_of` reads back."""
        ends = {env: [self.low[env], self.high[env]] for env in sorted(self.low)}
        return {"normalise": self.kind, "constants": ends, "constants_note": self.note}

    @property
    def degenerate(self) -> list[str]:
        """Environments where low = high: all runs score the same."""
        return [e for e in sorted(self.low) if self.low[e] == self.high[e]]


def normaliser(kind: str, runs: RunGrid, score: str) -> Normaliser:
    """`minmax`: worst and best run of the whole table (VACO). `ppo`: worst and best PPO-clip run at K = 1
    (SPO). `frozen`: the constants of `normalisation.json`. `raw`: 0 and 1, that is the score as it is (an accuracy).
    Raises `UserError` where the constants are unavailable.
    """
    if kind == "minmax":
        return _from_runs(kind, runs, score, "worst and best run of this table per environment")
    if kind == "ppo":
        base = RunGrid({c: r for c, r in runs.cells.items() if c.label == BASELINE and c.capacity == 1})
        if absent := sorted(set(runs.envs) - set(base.envs)):
            raise UserError(
                f"normalise=ppo needs runs of {BASELINE} at K=1 on {', '.join(absent)} in the table; "
                "add them or use minmax"
            )
        scale = _from_runs(kind, base, score, f"worst and best run of {BASELINE} at K=1 per environment")
        if scale.degenerate:
            raise UserError(
                f"normalise=ppo: all runs of {BASELINE} at K=1 on {', '.join(scale.degenerate)} have the same "
                "score; it needs at least two different ones"
            )
        return scale
    if kind == "frozen":
        return _frozen(runs.envs, score)
    if kind == "raw":
        return Normaliser(kind, dict.fromkeys(runs.envs, 0.0), dict.fromkeys(runs.envs, 1.0), "the scores as they are")
    raise UserError(f"normalise={kind!r} is not known; {nearest(kind, NORMALISATIONS)}")


def normaliser_of(table: Table) -> Normaliser:
    """Return the scale of a table."""
    s = table.settings
    low, high = ({env: ends[i] for env, ends in s["constants"].items()} for i in (0, 1))
    return Normaliser(s["normalise"], low, high, s["constants_note"])


def fixed_scale(runs: RunGrid, score: str) -> str:
    """Name of the scale on which scores of different tables compare best: `frozen` where all environments have
    constants, `raw` for a single one without; otherwise `minmax`, whose scores are relative to the table."""
    try:
        _frozen(runs.envs, score)
    except UserError:
        return "raw" if len(runs.envs) == 1 else "minmax"
    return "frozen"


def check_scale(kind: str, score: str, envs: Sequence[str], labels: Sequence[str], capacities: Sequence[int]) -> None:
    """Raise `UserError` before a sweep whose cells cannot be normalised in this way."""
    if kind == "ppo" and (BASELINE not in labels or 1 not in capacities):
        raise UserError(
            f"NORMALISE=ppo measures against {BASELINE} at K=1, which this sweep does not run; "
            f"add {BASELINE} to ALGO and 1 to K, or use minmax"
        )
    if kind == "frozen":
        _frozen(envs, score)


def _from_runs(kind: str, runs: RunGrid, score: str, note: str) -> Normaliser:
    values: dict[str, list[float]] = {}
    for cell, members in runs.cells.items():
        values.setdefault(cell.env, []).extend(final_score(r, score) for r in members)
    return Normaliser(kind, {e: min(v) for e, v in values.items()}, {e: max(v) for e, v in values.items()}, note)


def constants() -> dict[str, Any]:
    """Read the frozen constants, {version, about, envs: {name: {random, reference}}}."""
    return dict(json.loads(CONSTANTS.read_text(encoding="utf-8")))


def _frozen(envs: Sequence[str], score: str) -> Normaliser:
    frozen = constants()
    usable = {
        name: (float(entry["random"][score]["return"]), float(entry["reference"]["return"]))
        for name, entry in frozen["envs"].items()
        if entry.get("reference") and entry.get("random", {}).get(score)
    }
    for env in envs:
        if env not in usable:
            raise UserError(
                f"normalise=frozen has no constants for {env} ({score}), version {frozen['version']}; "
                f"it has them for: {', '.join(sorted(usable))}"
            )
    note = f"random policy = 0, reference = 1, constants version {frozen['version']}"
    return Normaliser("frozen", {e: usable[e][0] for e in envs}, {e: usable[e][1] for e in envs}, note)


def random_returns(envs: Sequence[str], score: str) -> dict[str, float]:
    """Returns of a random policy, for the environments listed in `normalisation.json`."""
    frozen = constants()["envs"]
    entries = {env: frozen.get(env, {}).get("random", {}).get(score) for env in envs}
    return {env: float(entry["return"]) for env, entry in entries.items() if entry}


def reference_gain(env: str, score: str) -> float:
    """Reference return of an environment above a random policy's; 0 where there is none."""
    try:
        scale = _frozen([env], score)
    except UserError:
        return 0.0
    return scale.high[env] - scale.low[env]


def untrained_return(run_grid: RunGrid, table: Table, env: str) -> float:
    """Return of the untrained policy on an environment, NaN if its runs did not measure it."""
    score = score_before_training(run_grid, env, table.settings["score"])
    return math.nan if score is None else score[0]


def untrained_score(run_grid: RunGrid, table: Table) -> float:
    """Score of the untrained policy on the table's scale, mean over environments; NaN if one is unknown, or if it lies
    so far below all rows that a line there would flatten them."""
    normalise, envs = normaliser_of(table), run_grid.envs
    scores = [float(normalise(env, untrained_return(run_grid, table, env))) for env in envs]
    rows = [row["iqm"] for row in table.rows if row["iqm"] is not None]
    if not rows or not scores:
        return math.nan
    mean, span = sum(scores) / len(scores), max(rows) - min(rows)
    return mean if not span or mean > min(rows) - span else math.nan
