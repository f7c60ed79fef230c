"""Cells of few runs: single runs in place of an interval that would be too narrow.

A percentile bootstrap of two values is the span between them, and covers the true mean half of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..store.stored_run import StoredRun
from .aggregate import area
from .results import Results
from .scores import final_score, normaliser_of
from .table import AGGREGATES, Table

MIN_RUNS = 5  # of a cell with an interval
COVERAGE = (  # simulated, of the mean of normal scores
    "A percentile interval holds the true mean in about 50% of cases with 2 seeds, 75% with 3, 83% with 5. With fewer "
    "than 5 seeds the single runs are shown instead, and the tests use Student's intervals."
)
# Seeds: shares of percentile intervals that hold the true mean, and the true IQM, of normal scores (simulated).
SHARE_COVERED = {5: (0.83, 0.90), 8: (0.90, 0.93), 12: (0.91, 0.94)}


def coverage_text(seeds: int) -> str:
    """Real coverage of nominal 95 % intervals of so many seeds, in words; empty where it is not known."""
    if seeds not in SHARE_COVERED:
        return ""
    mean, iqm = SHARE_COVERED[seeds]
    sample = f"{seeds} seeds on one environment"
    return f", which of {sample} hold the true mean in {mean:.0%} and the true IQM in {iqm:.0%} of cases"


def show_single_runs(table: Table, results: Results) -> Table:
    """Remove the intervals of rows of fewer than `MIN_RUNS` runs per environment, and give such rows `dots`: {name of
    an aggregate: [values of its runs]}. The settings of the table get `fewest`."""
    scale, score = normaliser_of(table), table.settings["score"]

    def dots(runs: Sequence[StoredRun]) -> dict[str, list[float]]:
        finals = [float(scale(run.spec["env"], final_score(run, score))) for run in runs]
        gaps, areas = [1 - min(x, 1.0) for x in finals], [area(run, scale, score) for run in runs]
        return dict.fromkeys(AGGREGATES, finals) | {"optimality_gap": gaps, "auc": areas}

    rows: list[dict[str, Any]] = []
    for row in table.rows:
        if 0 < row["n_runs"] < MIN_RUNS:
            members = results.grid.members(row["algorithm"], row["capacity"])
            ends = {f"{name}_{end}": None for name in (*AGGREGATES, "auc") for end in ("low", "high")}
            row = {**row, **ends, "dots": dots(members)}
        rows.append(row)
    return replace(table, rows=rows, settings=table.settings | {"fewest": MIN_RUNS})


def has_small_samples(table: Table) -> bool:
    """Return whether any row shows its runs."""
    return any("dots" in row for row in table.rows)


def has_intervals(table: Table) -> bool:
    """Return whether any row with runs shows an interval."""
    return any("dots" not in row for row in table.rows if row["n_runs"])
