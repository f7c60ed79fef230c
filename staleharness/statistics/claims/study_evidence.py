"""Evidence for claims: the runs of a study, measures of single runs by name, and methods that are one computation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...base.parsing import canonical_json
from ...errors import UserError, nearest
from ...store.run_grid import Cell, cell_of
from ...store.stored_run import StoredRun
from ...study import plain_env
from ..aggregate import area
from ..results import Results
from ..retained_share import has_learned
from ..row_diagnostics import in_budget
from ..scores import Array, final_score, normaliser_of, random_returns
from ..table import Table
from .early_warning import fall_of_reward


@dataclass(frozen=True)
class Evidence:
    """The runs of a study, and the table that gives them a scale."""

    results: Results
    table: Table

    def envs(self, env: str = "") -> list[str]:
        """Return all environments, or the named one, with or without its version. Raises `UserError`."""
        known_envs = self.results.grid.envs
        envs = [env] if env in known_envs else [e for e in known_envs if not env or plain_env(env) == plain_env(e)]
        if not envs:
            raise UserError(f"env={env!r}: these results have {', '.join(self.results.grid.envs)}")
        return envs

    def check(self, labels: Iterable[str]) -> None:
        """Raise `UserError` where one of these algorithms has no run."""
        labels_here = {run.label for run in self.results}
        for label in labels:
            if label not in labels_here:
                raise UserError(f"no run here is of {label!r}; {nearest(label, labels_here)}")

    def runs(self, label: str, k: int, env: str) -> dict[int, StoredRun]:
        """The runs of a cell by seed."""
        return {run.seed: run for run in self.results.grid.cells.get(Cell(label, k, env), [])}

    @functools.cached_property
    def _same_without_lag(self) -> dict[str, str]:
        return same_without_lag(self.results)

    def computation(self, label: str, k: int) -> str:
        """Return one name for all methods that are the same computation at this capacity."""
        return self._same_without_lag.get(label, label) if k == 1 else label

    def pool(self, label: str, k: int, env: str) -> list[StoredRun]:
        """Runs of a cell; at K = 1 with those of the methods that are the same computation there, each result once."""
        if k != 1:
            return list(self.runs(label, k, env).values())
        name = self.computation(label, 1)
        labels = [name, *(other for other, twin in self._same_without_lag.items() if twin == name and other != name)]
        runs = [run for member in labels for run in self.runs(member, 1, env).values()]
        return list({(run.seed, training_digest(run)): run for run in reversed(runs)}.values())[::-1]

    def capacity(self, k: int | None) -> int:
        """Return the capacity if runs have it; without one, the only capacity. Raises `UserError`."""
        capacities = self.results.grid.capacities
        if k is None and len(capacities) == 1:
            return capacities[0]
        if k is None or k not in capacities:
            raise UserError(f"K={k}: these results have {', '.join(map(str, capacities))}")
        return k

    def zero(self, env: str) -> float:
        """Score that counts as 0: a random policy's, or 0 of an accuracy. Raises `UserError`."""
        if self.table.accuracy:
            return 0.0
        returns = random_returns([env], self.table.settings["score"])
        if env not in returns:
            raise UserError(f"{env}: what a random policy returns is not known")
        return returns[env]

    def has_learned(self, label: str, env: str) -> bool:
        """Return whether a method gained at K = 1 at least a tenth of the best one's gain; otherwise shares are
        meaningless."""
        return has_learned(self.results.grid, label, env, self.table.settings["score"], self.zero(env))


def training_digest(run: StoredRun) -> bytes:
    """Norms of a run's gradients and its final scores as bytes; its id where it has none, so as to equal no other."""
    column = run.column("grad_norm")
    if column is None or not len(column):
        return run.id.encode()
    return column.tobytes() + canonical_json(run.record["scores"]).encode()


def same_without_lag(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Map each label with runs at K = 1 to the first label, by name, that is the same computation there."""
    first: dict[str, str] = {}  # a forest, in which every label leads to the first of its group

    def root(label: str) -> str:
        while first[label] != label:
            label = first[label]
        return label

    holders: dict[tuple[str, int, bytes], str] = {}
    for run in runs:
        cell = cell_of(run)
        if cell.capacity != 1:
            continue
        first.setdefault(cell.label, cell.label)
        other = holders.setdefault((cell.env, run.seed, training_digest(run)), cell.label)
        low, high = sorted((root(other), root(cell.label)))
        first[high] = low
    return {label: root(label) for label in first}


Measure = Callable[[StoredRun], float]
MEASURES = ("score", "area", "return", "kept", "fell", "seconds")  # the others are columns of the metrics


def measure(quantity: str, evidence: Evidence, phases: Sequence[int] = (), reduce: str = "mean") -> Measure:
    """Return a measure of single runs by name.

    score, area: normalised as in the table; return: raw; kept: the return above the zero of its environment (to be
    divided by that at K = 1); fell: steps to the first fall of the reward; seconds: of collecting and learning, without
    evaluation; otherwise a column of the metrics over `phases`. Raises `UserError` for `phases` of any other measure.
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
    """Reduce a column of a run's metrics over phases of its budget (from the first, up to before the second) that have
    it. Raises `UserError` where no phase has it, or too few."""
    if reduce not in REDUCERS:
        raise UserError(f"reduce={reduce!r} is not known; {nearest(reduce, REDUCERS)}")
    column = run.column(name)
    values = np.empty(0) if column is None else in_budget(run, column)
    values = values[slice(*phases)] if phases else values
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
