"""Cells of few runs: the runs themselves in place of an interval that would be too narrow.

A percentile bootstrap of two values is the span between them, and holds the true mean half of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..store.stored_run import StoredRun
from .aggregate import area
from .bootstrap import AGGREGATES
from .normalise import normaliser_of
from .results import Results
from .scores import final_score
from .table import Table

MIN_RUNS = 5  # runs of a cell that an interval is shown of
COVERAGE = (  # simulated, of the mean of normal scores: as the report of a sweep says it
    "A percentile interval holds the true mean in about 50% of cases with 2 seeds, 75% with 3, 83% with 5. With fewer "
    "than 5 seeds the single runs are shown instead, and the tests use Student's intervals."
)


def show_single_runs(table: Table, results: Results) -> Table:
    """The table without the intervals of rows of fewer than `FEWEST` runs per environment; such rows have `dots`: {name
    of an aggregate: [values of its runs]}. `settings` say so."""
    scale, score = normaliser_of(table), table.settings["score"]

    def dots(runs: Iterable[StoredRun]) -> dict[str, list[float]]:
        runs = list(runs)
        finals = [float(scale(run.spec["env"], final_score(run, score))) for run in runs]
        same = dict.fromkeys(("iqm", "median", "mean"), finals)
        return {
            **same,
            "optimality_gap": [1 - min(x, 1.0) for x in finals],
            "auc": [area(r, scale, score) for r in runs],
        }

    rows: list[dict[str, Any]] = []
    for row in table.rows:
        if 0 < row["n_runs"] < MIN_RUNS:
            members = results.grid.members(row["algorithm"], row["capacity"])
            ends = {f"{name}_{end}": None for name in (*AGGREGATES, "auc") for end in ("low", "high")}
            row = {**row, **ends, "dots": dots(members)}
        rows.append(row)
    return replace(table, rows=rows, settings=table.settings | {"fewest": MIN_RUNS})


def has_small_samples(table: Table) -> bool:
    """Whether any row shows its runs."""
    return any("dots" in row for row in table.rows)


def has_intervals(table: Table) -> bool:
    """Whether any row with runs does not."""
    return any("dots" not in row for row in table.rows if row["n_runs"])
