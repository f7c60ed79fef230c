"""Normalised scores, comparable between environments: 0 and 1 stand for two returns of each environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError, nearest
from ..store.run_grid import RunGrid
from .scores import Array, final_score

if TYPE_CHECKING:
    from .table import Table

NORMALISATIONS = ("minmax", "ppo", "frozen", "raw")
BASELINE = "ppo_clip"  # whose runs at K = 1 set the scale of "ppo"
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
        """Environments where low = high."""
        return [e for e in sorted(self.low) if self.low[e] == self.high[e]]


def normaliser(kind: str, runs: RunGrid, score: str) -> Normaliser:
    """`minmax`: worst and best run of the whole table (VACO). `ppo`: worst and best PPO-clip run at K = 1
    (SPO). `frozen`: the constants of `normalisation.json`. `raw`: 0 and 1, that is the score as it is (an accuracy).
    Raises `UserError` where the constants cannot be had.
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
    """Name of a scale of returns on which runs mean the same in every table: `frozen` where all environments have
    constants, `raw` of a single one without; otherwise `minmax`."""
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
