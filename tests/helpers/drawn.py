"""Figures and tables of synthetic results."""

from __future__ import annotations

from matplotlib.figure import Figure

from staleharness.figures.plot_layout import PAGE, plot_settings
from staleharness.figures.registry import Drawing, sections
from staleharness.statistics import aggregate
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table
from staleharness.store.stored_run import StoredRun


def all_figures(results: Results, table: Table, width: float = PAGE) -> dict[str, Figure]:
    """Every figure of a report of these results, by name."""
    return {d.name: d.draw(results, table, width) for d in sections(results) if isinstance(d, Drawing)}


def texts_outside(figure: Figure, ticks: bool = False) -> list[str]:
    """Texts that hang over the left or right edge of the page; `ticks`: labels of the y axes included."""
    with plot_settings():
        figure.draw_without_rendering()
    texts = [figure._suptitle, *figure.texts, *(t for box in figure.legends for t in box.get_texts())]  # type: ignore[attr-defined]
    for ax in figure.axes:
        low, high = sorted(ax.get_ylim())
        texts += [ax._left_title, ax.xaxis.label, *ax.texts]
        if ticks:
            major = ax.yaxis.get_major_ticks()
            texts += [ax.yaxis.label, *(t.label1 for t in major if low <= t.get_loc() <= high)]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text().strip()]
    return [text for text, box in boxes if box.x0 < -1 or box.x1 > figure.bbox.x1 + 1]


def quick(runs: list[StoredRun]) -> Table:
    """Table with quick intervals."""
    return aggregate.table(runs, reps=50, engine="quick")


def second_line(figure: Figure) -> str:
    """Text below the title."""
    return " ".join(figure._suptitle.get_text().split())  # type: ignore[attr-defined]
