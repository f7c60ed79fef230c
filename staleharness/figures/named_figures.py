"""Figures and tables by name: one of them, those of a report, or one panel in an axis of the user."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import UserError, nearest, shorten
from ..statistics.results import Results
from ..statistics.table import Table
from .captions import looks_of
from .plot_layout import PAGE, gid, short_label
from .registry import FIGURES, SHEETS, Drawing, Tabulation
from .result_tables import Sheet


def check_drawing(name: str, options: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` if no figure or table has this name, or if it lacks or does not take an option."""
    if name not in FIGURES and name not in SHEETS:
        raise UserError(f"{where}: no figure or table is called {name!r}; {nearest(name, [*FIGURES, *SHEETS])}")
    parameters = inspect.signature(FIGURES[name].draw if name in FIGURES else SHEETS[name].write).parameters
    keywords = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in keywords:
            raise UserError(f"{where}: {name} has no option {key!r}; {nearest(key, keywords)}")
    for key, parameter in keywords.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{where}: {name} needs the option {key!r}")


def _check_runs(name: str, results: Results, where: str) -> None:
    if not isinstance(results, Results):
        raise UserError(f"{where}: {shorten(repr(results))} are no results; give what sh.load or sh.sweep returns")
    if not len(results):
        raise UserError(f"{where}: {name} shows runs, and these results hold none")


def draw(name: str, /, results: Results, table: Table | None = None, width: float = PAGE, **options: Any) -> Figure:
    """Draw the figure called `name`. table: of scores, by default that of the results. Raises `UserError`."""
    check_drawing(name, options, "draw")
    _check_runs(name, results, "draw")
    if name in SHEETS:
        raise UserError(f"{name} is a table, not a figure: sheet({name!r}, results)")
    return FIGURES[name].draw(results, results.table() if table is None else table, width, **options)


def sheet(name: str, /, results: Results, table: Table | None = None, **options: Any) -> Sheet:
    """Write the table of a page called `name`, with `html()`, `markdown()` and `to_csv()`; a notebook displays it.
    table: of scores, by default that of the results. Raises `UserError`."""
    check_drawing(name, options, "sheet")
    _check_runs(name, results, "sheet")
    if name in FIGURES:
        raise UserError(f"{name} is a figure, not a table: draw({name!r}, results)")
    return SHEETS[name].write(results, results.table() if table is None else table, **options)


def draw_panel(name: str, results: Results, ax: Axes, table: Table | None = None, **options: Any) -> Axes:
    """Draw one panel of the figure called `name` in an axis of yours: `env` and `k` select it if there are several.

    Its lines carry the names of the algorithms, for `ax.legend()`. Raises `UserError` if the figure has no single
    panel, or if several fit.
    """
    panels = {key: d.panel for key, d in FIGURES.items() if d.panel is not None}
    if name not in panels:
        raise UserError(f"figure {name!r} cannot be drawn into one axis; {nearest(name, panels)}")
    _check_runs(name, results, "draw_panel")
    if not isinstance(ax, Axes):
        raise UserError(f"draw_panel: {shorten(repr(ax))} is no axis; give an Axes of matplotlib")
    table = results.table() if table is None else table
    before = len(ax.lines)
    panels[name](ax, results, table, **options)
    for label, look in looks_of(table).items():
        for line in [line for line in ax.lines[before:] if line.get_gid() == gid(look)][-1:]:
            line.set_label(short_label(look.name or label))
    return ax


def sections(results: Results) -> list[Drawing | Tabulation]:
    """Figures and tables that a report of these results shows, in order; none without runs."""
    every: list[Drawing | Tabulation] = [*FIGURES.values(), *SHEETS.values()]
    fitting = [d for d in every if d.section is not None and len(results) and d.section.fits(results)]
    return sorted(fitting, key=lambda d: d.section.place if d.section else 0)
