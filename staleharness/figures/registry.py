"""Figures and tables of pages by name. A file of this folder holds one, or a family of them, and registers each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..base.module_registry import ModuleRegistry
from ..errors import UserError, nearest, shorten
from ..statistics.results import Results
from ..statistics.table import Table
from .palette import looks_of
from .plot_layout import PAGE, gid, short_label
from .table_markup import Sheet

Draw = Callable[..., Any]  # (results, table, width, **options) -> figure, or (results, table, **options) -> sheet
Panel = Callable[..., Any]  # (ax, results, table, **options)
Choice = TypeVar("Choice", str, int)


@dataclass(frozen=True)
class Section:
    """A figure's place in the report."""

    place: int  # sections come in this order
    title: str
    caption: str
    fits: Callable[[Results], bool] = lambda _: True  # whether these results can fill it


@dataclass(frozen=True)
class Drawing:
    """Registered function that draws a figure or writes a table."""

    name: str
    draw: Draw
    section: Section | None  # None: no report shows it
    panel: Panel | None  # one panel of it, for the user's own axes


class Drawings(ModuleRegistry[Drawing]):
    """name -> `Drawing`."""

    def register(self, name: str, section: Section | None = None, panel: Panel | None = None) -> Callable[[Draw], Draw]:
        """Return a decorator for a function of a figure (results, table, width, **options), or of a table, without
        width."""

        def add(draw: Draw) -> Draw:
            self.put(name, Drawing(name, draw, section, panel), draw)
            return draw

        return add


FIGURES = Drawings("staleharness.figures", "figure", "figures")
SHEETS = Drawings("staleharness.figures", "table", "figures")


def single_choice(option: str, choice: Choice | None, choices: Sequence[Choice]) -> Choice:
    """Return `choice`, or the only one of `choices` if it is None. Raises `UserError`."""
    if choice is None and len(choices) == 1:
        return choices[0]
    if choice is not None and choice in choices:
        return choice
    names = ", ".join(map(str, choices))
    raise UserError(f"{option}={choice!r}: one panel shows one {option}; these results have {names}")


def check_drawing(name: str, options: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` if no figure or table has this name, or if it lacks or does not take an option."""
    if name not in FIGURES and name not in SHEETS:
        raise UserError(f"{where}: no figure or table is called {name!r}; {nearest(name, [*FIGURES, *SHEETS])}")
    parameters = inspect.signature((FIGURES if name in FIGURES else SHEETS)[name].draw).parameters
    keywords = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in keywords:
            raise UserError(f"{where}: {name} has no option {key!r}; {nearest(key, keywords)}")
    for key, parameter in keywords.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{where}: {name} needs the option {key!r}")


def _check_runs(name: str, results: Results, where: str) -> None:
    if not isinstance(results, Results):
        raise UserError(
            f"{where}: {shorten(repr(results))} is not a Results object; give what sh.load or sh.sweep returns"
        )
    if not len(results):
        raise UserError(f"{where}: {name} shows runs, and these results hold none")


def draw(name: str, /, results: Results, table: Table | None = None, width: float = PAGE, **options: Any) -> Figure:
    """Draw the figure called `name`. table: of scores, by default that of the results. Raises `UserError`."""
    check_drawing(name, options, "draw")
    _check_runs(name, results, "draw")
    if name in SHEETS:
        raise UserError(f"{name} is a table, not a figure: sheet({name!r}, results)")
    figure: Figure = FIGURES[name].draw(results, results.table() if table is None else table, width, **options)
    return figure


def sheet(name: str, /, results: Results, table: Table | None = None, **options: Any) -> Sheet:
    """Write the table of a page called `name`, with `html()`, `markdown()` and `to_csv()`; a notebook displays it.
    table: of scores, by default that of the results. Raises `UserError`."""
    check_drawing(name, options, "sheet")
    _check_runs(name, results, "sheet")
    if name in FIGURES:
        raise UserError(f"{name} is a figure, not a table: draw({name!r}, results)")
    content: Sheet = SHEETS[name].draw(results, results.table() if table is None else table, **options)
    return content


def draw_panel(name: str, results: Results, ax: Axes, table: Table | None = None, **options: Any) -> Axes:
    """Draw one panel of the figure called `name` in your own axes: `env` and `k` select it if there are several.

    Its lines carry the names of the algorithms, for `ax.legend()`. Raises `UserError` if the figure has no single
    panel, or if several fit.
    """
    panels = {key: d.panel for key, d in FIGURES.items() if d.panel is not None}
    if name not in panels:
        raise UserError(f"figure {name!r} cannot be drawn into one Axes; {nearest(name, panels)}")
    _check_runs(name, results, "draw_panel")
    if not isinstance(ax, Axes):
        raise UserError(f"draw_panel: {shorten(repr(ax))} is not an Axes of matplotlib")
    table = results.table() if table is None else table
    before = len(ax.lines)
    panels[name](ax, results, table, **options)
    for label, look in looks_of(table).items():
        for line in [line for line in ax.lines[before:] if line.get_gid() == gid(look)][-1:]:
            line.set_label(short_label(look.name or label))
    return ax


def sections(results: Results) -> list[Drawing]:
    """Figures and tables that a report of these results shows, in order; none without runs."""
    fitting = [
        d
        for d in (*FIGURES.values(), *SHEETS.values())
        if d.section is not None and len(results) and d.section.fits(results)
    ]
    return sorted(fitting, key=lambda d: d.section.place if d.section else 0)
