"""Ledger of all generated data: trained, masked, dropped, queued or lost."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..statistics.results import Results
from ..statistics.row_diagnostics import ledger_of
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import seeds
from .plot_layout import INK, PAGE, panels, percent_axis
from .registry import FIGURES, Section

# Okabe and Ito's colours, from dark to light in this order, and black: also told apart in grey.
FATES = {"trained": "#0072B2", "masked": "#009E73", "dropped": "#E69F00", "queued": "#D9D9D9", "lost": "#000000"}


def _has_losses(results: Results) -> bool:
    total = ledger_of(list(results), "decisions")
    return total["generated"] != total["trained"]


@FIGURES.register(
    "ledger",
    Section(
        55,
        "Ledger",
        "Dropped: turned away, or left a buffer unseen. Masked: handed to the learner, and taught nothing. Queued: not "
        "trained on when the run ended. Lost: with a killed actor, or with the actors of a run that was resumed.",
        _has_losses,
    ),
)
def ledger(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Shares of the generated data that were trained on, dropped, masked, still queued or, in a run with real actors,
    lost: a bar of decisions and one of sequences per capacity."""
    ks = results.grid.capacities
    lines = [(k, unit) for k in ks for unit in ("decisions", "sequences")]
    has_losses = ledger_of(list(results), "sequences")["lost"] > 0
    fates = {fate: colour for fate, colour in FATES.items() if fate != "lost" or has_losses}
    lost = " + lost" if has_losses else ""
    subtitle = (
        f"all runs together ({seeds(results.grid)}); generated = trained + dropped + masked + queued{lost}, exactly; a "
        "sequence is a row: what an actor does in a phase, or a completion"
    )
    with panels("Ledger", subtitle, [0], table, width, 0.45 + 0.3 * len(lines)) as (figure, (ax,)):
        for at, (k, unit) in enumerate(lines):
            _bar(ax, at, [r for r in results if int(r.spec["capacity"]) == k], unit, fates)
        names = [f"K = {k}, {unit}" for k, unit in lines]
        ax.set_yticks(range(len(lines)), labels=names)
        ax.set_ylim(len(lines) - 0.5, -0.5)
        ax.set_xlim(0, 1)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        percent_axis(ax, across=True)
        ax.set_xlabel("share of what was generated")
        handles = [Patch(color=colour) for colour in fates.values()]
        columns = 3 if has_losses and width < PAGE else len(fates)  # five do not fit a column's width
        figure.legend(handles, list(fates), loc="outside lower left", ncols=columns, frameon=False, handlelength=1.2)
    return figure


def _bar(ax: Axes, at: int, runs: list[StoredRun], unit: str, fates: Mapping[str, str]) -> None:
    total, left = ledger_of(runs, unit), 0.0
    for fate, colour in fates.items():
        share = total[fate] / max(1, total["generated"])
        ax.barh(at, share, left=left, height=0.62, color=colour)
        if share > 0.12:
            ink = "white" if fate in ("trained", "masked", "lost") else INK
            ax.text(left + share / 2, at, f"{total[fate]:,}", ha="center", va="center", fontsize=7, color=ink)
        left += share
