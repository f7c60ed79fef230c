"""Figures by name: one of them, those of a report, or one panel in an axis of yours."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from ..errors import UserError, nearest
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import PAGE, gid, shown
from .captions import looks_of
from .registry import FIGURES, Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check_drawing(name: str, options: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` where no drawing function has this name, or it lacks or does not take an option."""
    if name not in FIGURES:
        raise UserError(f"{where}: draw={name!r} is unknown; {nearest(name, FIGURES)}")
    parameters = inspect.signature(FIGURES[name].draw).parameters
    known = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in known:
            raise UserError(f"{where}: {name} has no option {key!r}; {nearest(key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{where}: {name} needs the option {key!r}")


def draw(
    name: str, /, results: Results, table: Table | None = None, width: float = PAGE, **options: Any
) -> Figure:
    """The figure called `name`; without a table, of that which the results have by default. Raises `UserError`."""
    check_drawing(name, options, "draw")
    return FIGURES[name].draw(results, results.table() if table is None else table, width, **options)


def draw_panel(name: str, results: Results, ax: Axes, table: Table | None = None, **options: Any) -> Axes:
    """One panel of the figure called `name` in an axis of yours: `env` and `k` say which, where there are several.

    Its lines carry the names of the algorithms, for `ax.legend()`. Raises `UserError` where the figure has no single
    panel, or it is not said which.
    """
    panels = {key: d.panel for key, d in FIGURES.items() if d.panel is not None}
    if name not in panels:
        raise UserError(f"figure {name!r} cannot be drawn into one axis; {nearest(name, panels)}")
    table = results.table() if table is None else table
    drawn = len(ax.lines)
    panels[name](ax, results, table, **options)
    for label, look in looks_of(table).items():
        for line in [line for line in ax.lines[drawn:] if line.get_gid() == gid(look)][-1:]:
            line.set_label(shown(look.name or label))
    return ax


def sections(results: Results) -> list[Drawing]:
    """The figures that a report of these results shows, in order; none without runs."""
    there = [
        d for d in FIGURES.values() if d.section is not None and len(results) and d.section.fits(results)
    ]
    return sorted(there, key=lambda d: d.section.place if d.section else 0)


def all_figures(results: Results, table: Table, width: float = PAGE) -> dict[str, Figure]:
    """Every figure of a report of these results, by name."""
    return {drawing.name: drawing.draw(results, table, width) for drawing in sections(results)}
