"""Something over training, a panel per capacity, and in the last panel what it comes to against the capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.text import plural
from ..statistics.bootstrap import fast_interval, mean_of_tasks
from ..statistics.results import Results
from ..statistics.scores import Array
from ..statistics.table import Table
from ..store.cells import Grid
from .bins import binned
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .captions import band, bars, iqm_axis, looks_of, scale, seeds
from .curves import draw_curve, normalised_curves
from .marks import level, points_against_capacity
from .registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPS = 2000


@FIGURES.register("score_and_area")
def score_and_area(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training (IQM over environments and seeds), and the area under it against K."""
    found, looks = results.grid, looks_of(table)
    over = plural(len(found.envs), "environment")
    subtitle = (
        f"IQM over {over} and seeds ({seeds(found)}), {band(table)}; AUC: IQM of each run's area under "
        f"its curve, {bars(table)}; {scale(table)}"
    )

    def curve(ax: Axes, k: int) -> None:
        for label, look in looks.items():
            if tasks := normalised_curves(found, table, label, k):
                draw_curve(ax, tasks, ("curve", label, "all", k), look)

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, table.rows, "auc", table.settings["capacities"])

    return score_panels("Score over training", subtitle, iqm_axis(table), "AUC", table, width, curve, end)


@FIGURES.register("metric_over_training")
def metric_over_training(
    results: Results, table: Table, width: float = PAGE, *, metric: str, name: str,
    last: float = 0.1, line: float = math.nan, line_name: str = "",
) -> Figure:  # fmt: skip
    """A column of the metrics over training (mean over runs), and its mean over the `last` share of phases against K.

    `line`: a level to compare with, named `line_name`. Algorithms that do not measure the column are left out.
    """
    found = results.grid
    having = {
        label
        for c, rs in found.cells.items()
        for label in [c.label]
        if any(r.column(metric) is not None for r in rs)
    }
    looks = {label: look for label, look in looks_of(table).items() if label in having}
    rows = [_end_row(found, label, k, metric, last) for label in looks for k in found.capacities]
    when = "all phases" if last >= 1 else f"the last {last:.0%} of the phases"
    subtitle = (
        f"mean over environments and seeds ({seeds(found)}), no interval; right: mean of {when}, {bars(table)}"
    ) + (f"; dotted: {line_name}" if line_name else "")

    def curve(ax: Axes, k: int) -> None:
        for label, look in looks.items():
            x, y = binned(found.members(label, k), metric)
            ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
        level(ax, line)

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, rows, "end", table.settings["capacities"])
        level(ax, line)

    title = f"{name[0].upper()}{name[1:]} over training"
    when = "all phases" if last >= 1 else f"last {last:.0%} of phases"
    return score_panels(title, subtitle, name, when, table, width, curve, end, list(looks), one=True)


def score_panels(
    title: str, subtitle: str, y: str, y_end: str, table: Table, width: float, curve: Callable[[Axes, int], None],
    end: Callable[[Axes], None], names: Sequence[str] | None = None, one: bool = False,
) -> Figure:  # fmt: skip
    """A panel per capacity and one for the end; `one`: all of them have the same y axis."""
    ks = table.settings["capacities"]
    looks = {label: s for label, s in looks_of(table).items() if names is None or label in names}
    columns = columns_for(width, min(4, len(ks) + 1))
    groups = [0] * len(ks) + [0 if one else 1]
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for ax, k in zip(axes, ks, strict=False):
            curve(ax, k)
            ax.set_title(f"K = {k}", loc="left")
            steps_axis(ax)
        end(axes[-1])
        axes[-1].set_title(y_end, loc="left")
        axes[-1].yaxis.set_major_locator(MaxNLocator(5))
        label_edges(axes, columns, table.settings["unit"], y)
        axes[-1].set_xlabel("buffer capacity K")
        if len(axes) % columns == 1:
            axes[-1].set_ylabel(y)
        if one and ("share" in y):
            for ax in axes:
                percent_axis(ax)
        legend(figure, looks)
    return figure


def _end_row(found: Grid, label: str, k: int, metric: str, last: float) -> dict[str, Any]:
    """Mean of the last phases, run by run, then over runs and tasks, with its interval."""
    tasks = []
    for members in found.tasks(label, k).values():
        columns = [c[~np.isnan(c)] for r in members if (c := r.column(metric)) is not None]
        if ends := [c[-max(1, round(last * len(c))) :].mean() for c in columns if len(c)]:
            tasks.append(np.array(ends))
    return with_interval(tasks, label, k, metric)


def with_interval(tasks: Sequence[Array], label: str, k: int, name: str) -> dict[str, Any]:
    """{algorithm, capacity, end, end_low, end_high}: mean over tasks of their means, None where there is none."""
    row: dict[str, Any] = {"algorithm": label, "capacity": k, "end": None, "end_low": None, "end_high": None}
    if tasks:
        row["end"] = float(mean_of_tasks(*tasks)[0])
    if tasks and min(map(len, tasks)) > 1:
        low, high = fast_interval(mean_of_tasks, tasks, name=(name, label, k), reps=REPS)
        row |= {"end_low": float(low[0]), "end_high": float(high[0])}
    return row
