"""From stored runs to normalised scores: one column per environment, one entry per seed, in sorted order."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.parsing import canonical_json
from ..errors import UserError, nearest
from ..store.cells import Grid, cell_of, where
from ..store.store import StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from .table import Table

Array = NDArray[np.float64]
SCORES = ("sampled", "deterministic")
NORMALISATIONS = ("minmax", "ppo", "frozen", "raw")
AUTO = "auto"  # the kind of task decides: see `usual`
MIXED: dict[str, Any] = {
    "measures": {},
    "score": "sampled",
    "normalise": "minmax",
}  # runs that are not read alike
BASELINE = "ppo_clip"  # whose runs at K = 1 set the scale of "ppo"
CONSTANTS = Path(__file__).with_name("normalisation.json")


def usual(runs: Iterable[StoredRun], score: str, normalise: str) -> tuple[str, str]:
    """`auto` replaced by what the kind of task is reported by; where kinds are mixed, by sampled returns between the
    worst and the best run of the table."""
    facts = _read_as(runs)
    return facts["score"] if score == AUTO else score, facts["normalise"] if normalise == AUTO else normalise


def measure(runs: Iterable[StoredRun], score: str) -> str:
    """What a score is, in words."""
    return str(_read_as(runs)["measures"].get(score, f"{score} returns"))


def _read_as(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """What the records say of their kind of task (`Task.facts`), where all say the same."""
    said = {canonical_json({key: run.record["task"][key] for key in ("kind", *MIXED)}) for run in runs}
    return dict(json.loads(said.pop())) if len(said) == 1 else MIXED


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
        raise UserError(f"run {run.id} ({where(cell_of(run))}) has no {score} score")
    return float(value["mean"])


@functools.lru_cache(maxsize=1024)
def _frame(path: Path, seal: str) -> pd.DataFrame:
    return StoredRun(path, {"id": path.name}, seal).metrics()  # what has this seal never changes


def metrics(run: StoredRun) -> pd.DataFrame:
    """One row per phase, read once; not to be written to."""
    return _frame(run.path, run.seal)


def learning_curve(run: StoredRun, score: str) -> tuple[Array, Array]:
    """(steps [points], mean return of the newest policy [points])."""
    rows = metrics(run)[["steps", f"eval_{score}"]].dropna()
    return rows["steps"].to_numpy(np.float64), rows[f"eval_{score}"].to_numpy(np.float64)


@dataclass(frozen=True)
class Normaliser:
    """score -> (score - low) / (high - low), the two constants per environment."""

    kind: str
    low: dict[str, float]
    high: dict[str, float]
    note: str  # which constants these are, in words

    def __call__(self, env: str, values: Array | float) -> Array:
        values = np.asarray(values, dtype=np.float64)
        span = self.high[env] - self.low[env]
        # Where every run scored the same, none is better: all sit in the middle, and the table says so.
        return (values - self.low[env]) / span if span > 0 else np.full_like(values, 0.5)

    @property
    def degenerate(self) -> list[str]:
        """Environments where low = high."""
        return [e for e in sorted(self.low) if self.low[e] == self.high[e]]


def normaliser(kind: str, runs: Grid, score: str) -> Normaliser:
    """`minmax`: worst and best run of the whole table (VACO). `ppo`: worst and best PPO-clip run at K = 1
    (SPO). `frozen`: the constants of `normalisation.json`. `raw`: 0 and 1, that is the score
    as it is (an accuracy). Raises `UserError` where the constants cannot be
    had.
    """
    if kind == "minmax":
        return _from_runs(kind, runs, score, "worst and best run of this table per environment")
    if kind == "ppo":
        base = Grid({c: r for c, r in runs.cells.items() if c.label == BASELINE and c.capacity == 1})
        if absent := sorted(set(runs.envs) - set(base.envs)):
            raise UserError(
                f"normalise=ppo needs runs of {BASELINE} at K=1 on {', '.join(absent)} in the table; "
                "add them or use minmax"
            )
        made = _from_runs(kind, base, score, f"worst and best run of {BASELINE} at K=1 per environment")
        if made.degenerate:
            raise UserError(
                f"normalise=ppo: all runs of {BASELINE} at K=1 on {', '.join(made.degenerate)} have the same "
                "score; it needs at least two different ones"
            )
        return made
    if kind == "frozen":
        return _frozen(runs.envs, score)
    if kind == "raw":
        return Normaliser(
            kind, dict.fromkeys(runs.envs, 0.0), dict.fromkeys(runs.envs, 1.0), "the scores as they are"
        )
    raise UserError(f"normalise={kind!r} is not known; {nearest(kind, NORMALISATIONS)}")


def normaliser_of(table: Table) -> Normaliser:
    """The scale that a table was made with."""
    s = table.settings
    low, high = ({env: ends[i] for env, ends in s["constants"].items()} for i in (0, 1))
    return Normaliser(s["normalise"], low, high, s["constants_note"])


def check_scale(
    kind: str, score: str, envs: Sequence[str], labels: Sequence[str], capacities: Sequence[int]
) -> None:
    """Raise `UserError` where a sweep of these cells could not be normalised as asked, before it is run."""
    if kind == "ppo" and (BASELINE not in labels or 1 not in capacities):
        raise UserError(
            f"NORMALISE=ppo measures against {BASELINE} at K=1, which this sweep does not run; "
            f"add {BASELINE} to ALGO and 1 to K, or use minmax"
        )
    if kind == "frozen":
        _frozen(envs, score)


def _from_runs(kind: str, runs: Grid, score: str, note: str) -> Normaliser:
    values: dict[str, list[float]] = {}
    for cell, members in runs.cells.items():
        values.setdefault(cell.env, []).extend(final_score(r, score) for r in members)
    return Normaliser(
        kind, {e: min(v) for e, v in values.items()}, {e: max(v) for e, v in values.items()}, note
    )


def constants() -> dict[str, Any]:
    """The frozen constants, {version, about, envs: {name: {random, reference}}}; the file explains itself."""
    return dict(json.loads(CONSTANTS.read_text()))


def _frozen(envs: Sequence[str], score: str) -> Normaliser:
    held = constants()
    usable = {
        name: (float(entry["random"][score]["return"]), float(entry["reference"]["return"]))
        for name, entry in held["envs"].items()
        if entry.get("reference") and entry.get("random", {}).get(score)
    }
    for env in envs:
        if env not in usable:
            raise UserError(
                f"normalise=frozen has no constants for {env} ({score}), version {held['version']}; "
                f"it has them for: {', '.join(sorted(usable))}"
            )
    note = f"random policy = 0, reference = 1, constants version {held['version']}"
    return Normaliser("frozen", {e: usable[e][0] for e in envs}, {e: usable[e][1] for e in envs}, note)
