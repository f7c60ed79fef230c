"""Figures of synthetic results."""

from __future__ import annotations

from matplotlib.figure import Figure

from staleharness.figures.canvas import PAGE
from staleharness.figures.named_figures import sections
from staleharness.figures.registry import Drawing
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table


def all_figures(results: Results, table: Table, width: float = PAGE) -> dict[str, Figure]:
    """Every figure of a report of these results, by name."""
    return {d.name: d.draw(results, table, width) for d in sections(results) if isinstance(d, Drawing)}
