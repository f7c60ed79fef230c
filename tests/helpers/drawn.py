"""Figures and tables of synthetic results."""

from __future__ import annotations

from matplotlib.figure import Figure

from staleharness.figures.canvas import PAGE
from staleharness.figures.named_figures import sections
from staleharness.figures.registry import Drawing
from staleharness.statistics import aggregate
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table
from staleharness.store.stored_run import StoredRun


def all_figures(results: Results, table: Table, width: float = PAGE) -> dict[str, Figure]:
    """Every figure of a report of these results, by name."""
    return {d.name: d.draw(results, table, width) for d in sections(results) if isinstance(d, Drawing)}


def quick(runs: list[StoredRun]) -> Table:
    """Table with quick intervals."""
    return aggregate.table(runs, reps=50, engine="quick")


def second_line(figure: Figure) -> str:
    """Text below the title."""
    return " ".join(figure._suptitle.get_text().split())  # type: ignore[attr-defined]
