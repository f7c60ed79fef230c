"""The four aggregates of scores with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import INK, PAGE, gid, label_edges, panels, shown
from .captions import axis, bars, looks_of, scale, size
from .marks import dots, highest_first
from .palette import Style
from .registry import FIGURES, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NAMES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap ↓"}


@FIGURES.register("aggregate_scores", Section(40, "Aggregate scores", "Black: the estimate. Coloured: its interval."))
def aggregate_scores(results: Results, table: Table, width: float = PAGE) -> Figure:
    """IQM, median, mean and optimality gap with intervals: one line per algorithm, grouped by capacity."""
    looks = looks_of(table)
    place, lines = _lines(table, looks, width)
    owner = {at: label for (label, _), at in place.items()}
    columns, height = 4 if width > 5 else 2, 0.5 + 0.155 * len(lines)
    title = "Aggregate scores"
    subtitle = f"{size(table)}, {bars(table)}; {scale(table)}; of the gap (↓), less is better"
    with panels(title, subtitle, [0] * 4, table=table, columns=columns, height=height, width=width) as (figure, axes):
        for ax, (name, heading) in zip(axes, NAMES.items(), strict=True):
            for r in table.rows:
                look, at = looks[r["algorithm"]], place[r["algorithm"], r["capacity"]]
                if r[f"{name}_low"] is not None:
                    low, span = r[f"{name}_low"], r[f"{name}_high"] - r[f"{name}_low"]
                    ax.barh(at, span, left=low, height=0.66, color=look.colour, alpha=0.55, gid=gid(look))
                elif "dots" in r:
                    dots(ax, at, r["dots"][name], look, across=True)
                if r[name] is not None:
                    ax.plot([r[name]] * 2, [at - 0.42, at + 0.42], color=INK, linewidth=1.4, gid=gid(look))
            ax.set_title(heading, loc="left")
            ax.set_ylim(len(lines) - 0.4, -0.6)
            ax.grid(axis="y", visible=False)
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", length=0)
            ax.xaxis.set_major_locator(MaxNLocator(4 if width > 5 else 2))
            _room(ax, table)
            ax.set_yticks(range(len(lines)), labels=lines)
            for at, text in enumerate(ax.get_yticklabels()):
                if (label := owner.get(at)) is None:
                    text.set_fontweight("bold")
                else:
                    text.set_gid(gid(looks[label]))
        label_edges(axes, columns, axis(table), "")
    return figure


def _room(ax: Axes, table: Table) -> None:
    """One span for all four panels, so that they can be compared, and room beside the marks at its ends."""
    keys = [f"{n}{end}" for n in NAMES for end in ("", "_low", "_high")]
    there = [row[key] for row in table.rows for key in keys if row[key] is not None]
    there += [x for row in table.rows for n in NAMES for x in row.get("dots", {}).get(n, ())]
    if there:
        margin = 0.04 * (max(there) - min(there)) + 1e-9
        ax.set_xlim(min(there) - margin, max(there) + margin)


def _lines(table: Table, looks: Mapping[str, Style], width: float) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Where each (algorithm, capacity) stands among the lines of a chart with a heading per capacity, the highest IQM
    first; values of an option in their order."""
    place: dict[tuple[str, int], int] = {}
    lines: list[str] = []
    for k in table.settings["capacities"]:
        lines.append(f"K = {k}")
        rows = {row["algorithm"]: row["iqm"] for row in table.rows if row["capacity"] == k}
        mine = {label: look for label, look in looks.items() if label in rows}
        scored = {label: x for label, x in rows.items() if x is not None}
        for label, look in (mine if table.settings.get("values") else highest_first(mine, scored)).items():
            place[label, k] = len(lines)
            lines.append(shown(look.name or label, width))
    return place, lines
