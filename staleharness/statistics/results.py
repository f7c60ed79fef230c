"""Results as one object: the runs of a folder with their scores, curves, metrics and table as pandas."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.reference_results import results_path
from ..base.text_formatting import plural
from ..store import run_grid
from ..store.run_grid import RunGrid, cell_of
from ..store.run_selection import Filter, Settings, cell_filter, filter_runs
from ..store.store import Store
from ..store.stored_run import StoredRun, with_newer_settings
from . import aggregate
from .row_diagnostics import Diagnostics, diagnostics
from .scores import AUTO, axis, final_score, learning_curve, normaliser, resolve_auto
from .table import Table

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("run", "algorithm", "env", "K", "seed")  # first columns of every frame


def load(
    folder: str | Path, *, env: Filter = None, k: Filter = None, algo: Filter = None, where: Settings = None
) -> Results:
    """Load the finished runs of a results folder or of a published bundle, all of them or a selection (`select`).
    Raises `UserError` where the folder holds no results."""
    store = Store(results_path(str(folder)) if folder else folder)
    store.check_readable()
    return Results.of(store.read_all()).select(env=env, k=k, algo=algo, where=where)


@dataclass(frozen=True, repr=False)
class Results:
    """Runs of a study, with their tables and frames, which are computed once and cached; do not write to the frames.

    Every frame begins with the columns of `PLACE`: run (its id), algorithm (as tables name it), env, K, seed; and N
    where the kind of task has a forward lag.
    """

    stored_runs: tuple[StoredRun, ...]
    _tables: dict[str, Table] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, runs: Iterable[StoredRun]) -> Results:
        """Wrap runs, filling in settings that were introduced after some of them (`with_newer_settings`)."""
        return runs if isinstance(runs, Results) else cls(tuple(with_newer_settings(list(runs))))

    def __repr__(self) -> str:
        return f"<Results: {plural(len(self), 'run')}>"

    def __iter__(self) -> Iterator[StoredRun]:
        return iter(self.stored_runs)

    def __len__(self) -> int:
        return len(self.stored_runs)

    def only(self, labels: Iterable[str]) -> Results:
        """Select runs by the label of their algorithm."""
        names = set(labels)
        return Results(tuple(run for run in self.stored_runs if run.label in names))

    def select(self, *, env: Filter = None, k: Filter = None, algo: Filter = None, where: Settings = None) -> Results:
        """Select runs by environment, capacity, algorithm and settings: `env="Hopper", k=[1, 8],
        where={"lag": "oldest"}`. An omitted criterion selects all. Raises `UserError` for an environment, a capacity,
        an algorithm or a setting that no run has."""
        is_selected = cell_filter(env, k, algo)
        is_selected.check(map(cell_of, self.stored_runs))
        return Results(tuple(filter_runs(self.stored_runs, is_selected, where)))

    def without_doubtful(self) -> Results:
        """Leave out runs that claim one place and that no setting tells apart, with a line in the log for each place
        (`run_grid.drop_doubtful`)."""
        return Results(tuple(run_grid.drop_doubtful(self.stored_runs)))

    @functools.cached_property
    def grid(self) -> RunGrid:
        """The runs by cell. Raises `UserError` where two runs claim the same seed of the same cell."""
        return run_grid.grid(self.stored_runs)

    @functools.cached_property
    def diagnostics(self) -> dict[tuple[str, int], Diagnostics]:
        """Staleness over training and effects of the method's mechanisms, by algorithm and capacity."""
        return {row: diagnostics(self.grid.members(*row)) for row in self.grid.rows}

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run: final scores, steps, seconds, and means over its phases (`lag_mean`, `tv_data`, ...);
        `code` is the digest of the method's file, which tells versions of a plugin apart."""
        rows = [
            {
                **_place(run),
                **{kind: float(score["mean"]) for kind, score in run.record["scores"].items()},
                "steps": run.record["steps"],
                "phases": run.record["phases"],
                "seconds": run.record["seconds"]["total"],
                "date": run.record["date"],
                "code": run.code,
                **run.record["summary"],
            }
            for run in self.stored_runs
        ]
        return _frame(rows, PLACE)

    def curves(self) -> pd.DataFrame:
        """One row per run, score (`sampled`, `deterministic`) and evaluation of its newest policy: steps and value."""
        return self._curves

    @functools.cached_property
    def _curves(self) -> pd.DataFrame:
        import pandas as pd

        curves = [
            (run, score, *learning_curve(run, score)) for run in self.stored_runs for score in run.record["scores"]
        ]
        curves = [curve for curve in curves if len(curve[2])]
        if not curves:
            return _frame([], (*PLACE, "score", "steps", "value"))
        places = pd.DataFrame([{**_place(run), "score": score} for run, score, *_ in curves])
        rows = places.iloc[np.repeat(np.arange(len(curves)), [len(steps) for *_, steps, _ in curves])]
        steps, values = (np.concatenate([curve[i] for curve in curves]) for i in (2, 3))
        return rows.reset_index(drop=True).assign(steps=steps.astype(np.int64), value=values)

    def metrics(self) -> pd.DataFrame:
        """One row per run and phase, with its metrics. A column that no phase of a run has is empty for it."""
        return self._metrics

    @functools.cached_property
    def _metrics(self) -> pd.DataFrame:
        import pandas as pd

        frames = [run.metrics().dropna(axis=1, how="all") for run in self.stored_runs]
        places = [_frame([_place(run)] * len(f)) for run, f in zip(self.stored_runs, frames, strict=True)]
        tables = [pd.concat([place, f.reset_index(drop=True)], axis=1) for place, f in zip(places, frames, strict=True)]
        return pd.concat(tables, ignore_index=True) if tables else _frame([], (*PLACE, "phase", "steps"))

    def scores(self, *, score: str = AUTO, normalise: str = AUTO) -> pd.DataFrame:
        """One row per run: its final score, raw (`value`) and on the common scale (`normalised`). The options are those
        of `table`. Raises `UserError`."""
        score, normalise = resolve_auto(self.stored_runs, score, normalise)
        scale = normaliser(normalise, self.grid, score)
        rows = []
        for run in self.grid.runs:
            value = final_score(run, score)
            values = {"value": value, "normalised": float(scale(cell_of(run).env, value))}
            rows.append({**_place(run), "score": score, **values})
        return _frame(rows, (*PLACE, "score", "value", "normalised"))

    def table(self, expected: Sequence[Mapping[str, Any]] = (), **options: Any) -> Table:
        """Aggregate scores with intervals, per algorithm and capacity, with the options of `aggregate.table`. Its
        `.frame()` is a data frame."""
        key = json.dumps([[dict(e) for e in expected], options], sort_keys=True)
        if key not in self._tables:
            self._tables[key] = aggregate.table(self.grid, expected, **options)
        return self._tables[key]


def _place(run: StoredRun) -> dict[str, Any]:
    cell, n = cell_of(run), axis(run, "N")
    place: dict[str, Any] = dict(zip(PLACE, (run.id, cell.label, cell.env, cell.capacity, run.seed), strict=True))
    return place if n is None else {**place, "N": run.spec[n]}


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> pd.DataFrame:
    """Make a data frame, with its columns even if it has no row."""
    import pandas as pd

    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(columns))
