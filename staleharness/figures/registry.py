"""Figures and tables of pages by name. A file of this folder holds one, or a family of them, and registers each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.package_registry import PackageRegistry
from ..errors import UserError
from ..statistics.results import Results
from .result_tables import Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[..., "Figure"]  # (results, table, width, **options)
Write = Callable[..., Sheet]  # (results, table, **options)
Panel = Callable[..., Any]  # (ax, results, table, **options)
Choice = TypeVar("Choice", str, int)


def always(_: Results) -> bool:
    return True


@dataclass(frozen=True)
class Section:
    """A figure's place in the report."""

    place: int  # sections come in this order
    title: str
    caption: str
    fits: Callable[[Results], bool] = always  # whether these results can fill it


@dataclass(frozen=True)
class Drawing:
    """Registered function that draws a figure."""

    name: str
    draw: Draw
    section: Section | None  # None: no report shows it
    panel: Panel | None  # one panel of it, for an axis of the user's


@dataclass(frozen=True)
class Tabulation:
    """Registered function that writes a table."""

    name: str
    write: Write
    section: Section | None  # None: no report shows it


class Figures(PackageRegistry[Drawing]):
    """name -> `Drawing`."""

    def register(self, name: str, section: Section | None = None, panel: Panel | None = None) -> Callable[[Draw], Draw]:
        """Decorator of a drawing function (results, table, width, **options) -> figure."""

        def add(draw: Draw) -> Draw:
            self.put(name, Drawing(name, draw, section, panel), draw)
            return draw

        return add


class Sheets(PackageRegistry[Tabulation]):
    """name -> `Tabulation`."""

    def register(self, name: str, section: Section | None = None) -> Callable[[Write], Write]:
        """Decorator of a function (results, table, **options) -> sheet."""

        def add(write: Write) -> Write:
            self.put(name, Tabulation(name, write, section), write)
            return write

        return add


def single_choice(what: str, choice: Choice | None, choices: Sequence[Choice]) -> Choice:
    """Return `choice`, or the only one of `choices` if it is None. Raises `UserError`."""
    if choice is None and len(choices) == 1:
        return choices[0]
    if choice is not None and choice in choices:
        return choice
    names = ", ".join(map(str, choices))
    raise UserError(f"{what}={choice!r}: one panel shows one {what} of these results, which have {names}")


FIGURES = Figures("staleharness.figures", "figure", "figures")
SHEETS = Sheets("staleharness.figures", "table", "figures")
