"""How soon runs reach a score."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..statistics.results import Results
from ..statistics.scores import Array
from ..statistics.table import Table
from .canvas import PAGE, gid
from .captions import bars, looks_of, scale, seeds
from .curves import normalised_curves
from .marks import points_against_capacity
from .over_training import score_panels, with_interval
from .registry import FIGURES


@FIGURES.register("steps_to_threshold")
def steps_to_threshold(results: Results, table: Table, width: float = PAGE, *, threshold: float = 0.5) -> Figure:
    """Share of runs whose newest policy has scored `threshold` (normalised) at least once, against the steps."""
    found, looks = results.grid, looks_of(table)
    subtitle = (
        f"share of runs that reached a normalised score of {threshold:g} in an evaluation by then, over environments "
        f"and seeds ({seeds(found)}), no interval; right: share at the end, {bars(table)}; {scale(table)}"
    )

    def first(k: int, label: str) -> list[Array]:
        """Steps at which each run of each task got there, infinite where it did not: [runs] per task."""
        tasks = normalised_curves(found, table, label, k)
        return [np.array([min(x[y >= threshold], default=math.inf) for x, y in task]) for task in tasks]

    def curve(ax: Axes, k: int) -> None:
        end = max((float(x[-1]) for r in results if (x := r.column("steps")) is not None), default=1.0)
        for label, look in looks.items():
            if tasks := first(k, label):
                x = np.sort(np.concatenate(tasks))
                steps = np.concatenate([[0.0], x[x < math.inf], [end]])
                heights = np.mean([(t[:, None] <= steps).mean(axis=0) for t in tasks], axis=0)
                ax.step(
                    steps, heights, where="post", color=look.colour, dashes=look.dashes, linewidth=1.2, gid=gid(look)
                )

    rows = []
    for label in looks:
        for k in found.capacities:
            if tasks := first(k, label):
                reached = [(t < math.inf).astype(np.float64) for t in tasks]
                rows.append(with_interval(reached, label, k, "reached", table.settings.get("fewest", 0)))

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, rows, "end", table.settings["capacities"])

    return score_panels(
        "Steps to threshold", subtitle, "share of runs", "share at the end", table, width, curve, end, one=True
    )
