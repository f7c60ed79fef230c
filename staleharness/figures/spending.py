"""Where the time of language runs goes, and what the proximal policy takes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .canvas import FAINT, INK, PAGE, panels, shown
from .captions import labels, seeds
from .registry import FIGURES, Section

PARTS = {  # columns of timing.parquet in the order of a phase, and their colours
    "generate": "#3B6FA0",
    "score": "#8FB4D6",
    "proximal": "#B3261E",
    "loss": "#E6A23C",
    "train": "#4E8F5B",
    "evaluate": "#B9B9B9",
}


def timed(results: Results) -> bool:
    """Whether the time of every run is known by these parts: that of language runs is."""
    return len(results) > 0 and all(set(PARTS) <= set(run.record["seconds"]) for run in results)


@FIGURES.register(
    "where_the_time_goes",
    Section(
        70,
        "Where the time goes",
        "Recomputing a proximal policy takes a forward pass; interpolating it takes part of the loss.",
        timed,
    ),
)
def where_the_time_goes(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Mean seconds of a phase by what they were spent on: a bar per algorithm, over all its runs.

    At the end of a bar: the proximal step, and the whole loss, which is an upper bound for a method that
    interpolates its proximal policy inside it (A-3PO's claim, arXiv 2512.06547).
    """
    found, names = results.grid, labels(table)
    spent = {
        label: _mean_seconds([r for c, rs in found.cells.items() if c.label == label for r in rs]) for label in names
    }
    subtitle = (
        f"mean seconds per generation round over buffer capacities, environments and runs ({seeds(found)}); right: the "
        "proximal step alone and the whole loss, which bounds it for methods that interpolate inside the loss"
    )
    height = 0.55 + 0.24 * len(names)
    with panels("Where the time goes", subtitle, [0], table=table, columns=1, height=height, width=width) as (
        figure,
        (ax,),
    ):
        longest = max(sum(s.values()) for s in spent.values())
        for at, label in enumerate(names):
            left = 0.0
            for part, colour in PARTS.items():
                ax.barh(at, spent[label][part], left=left, height=0.7, color=colour)
                left += spent[label][part]
            words = "{}, {}" if width < 5 else "proximal {}, loss {}"
            text = words.format(_short(spent[label]["proximal"]), _short(spent[label]["loss"]))
            ax.text(left + 0.01 * longest, at, text, va="center", fontsize=6.5, color=INK)
        ax.set_yticks(range(len(names)), labels=[shown(label) for label in names])
        ax.set_ylim(len(names) - 0.4, -0.6)
        bars = width - 1.4  # inches of the panel, about; the words take 1 or 1.8 of them
        ax.set_xlim(0, longest * bars / (bars - (1.0 if width < 5 else 1.8)))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("seconds per generation round")
        handles = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
        figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=6 if width > 5 else 3,
            frameon=False,
            handlelength=1.0,
            columnspacing=1.2,
            labelcolor=FAINT,
        )
    return figure


def _mean_seconds(runs: Sequence[StoredRun]) -> dict[str, float]:
    def mean(part: str) -> float:
        columns = [run.column(SECONDS + part) for run in runs]
        return float(np.mean([0.0 if c is None else np.nanmean(c) for c in columns] or [0.0]))

    return {part: mean(part) for part in PARTS}


def _short(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms" if ms >= 0.1 else "< 0.1 ms"
