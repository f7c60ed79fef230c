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
from ..store.run_grid import RunGrid
from .bins import binned, draw_spread
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .captions import band, bars, iqm_axis, looks_of, scale, seeds, spread
from .curves import draw_curve, normalised_curves
from .marks import level, points_against_capacity, say_same
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
                draw_curve(ax, tasks, ("curve", label, "all", k), look, table.settings.get("fewest", 0))

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, table.rows, "auc", table.settings["capacities"])

    return score_panels("Score over training", subtitle, iqm_axis(table), "AUC", table, width, curve, end)


@FIGURES.register("metric_over_training")
def metric_over_training(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    metric: str,
    name: str,
    part: Sequence[float] = (0.9, 1.0),
    line: float = math.nan,
    line_name: str = "",
) -> Figure:
    """A column of the metrics over training (mean over runs), and its mean over a part of the phases against K.

    `part`: from which share of the phases to which. `line`: a level to compare with, named `line_name`. Algorithms that
    do not measure the column are left out.
    """
    found = results.grid
    having = {
        label for c, rs in found.cells.items() for label in [c.label] if any(r.column(metric) is not None for r in rs)
    }
    looks = {label: look for label, look in looks_of(table).items() if label in having}
    fewest = table.settings.get("fewest", 0)
    rows = [_end_row(found, label, k, metric, part, fewest) for label in looks for k in found.capacities]
    when = "all phases" if tuple(part) == (0, 1) else f"phases {_span(table, part)}"
    subtitle = (
        f"mean over environments and seeds ({seeds(found)}), {spread(table)}; right: mean of {when}, {bars(table)}"
    ) + (f"; dotted: {line_name}" if line_name else "")

    def curve(ax: Axes, k: int) -> None:
        for label, look in looks.items():
            draw_spread(ax, found.members(label, k), metric, look, fewest)
            x, y = binned(found.members(label, k), metric)
            ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
        level(ax, line)

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, rows, "end", table.settings["capacities"])
        level(ax, line)

    title = f"{name[0].upper()}{name[1:]} over training"
    return score_panels(title, subtitle, name, when, table, width, curve, end, list(looks), one=True)


def _span(table: Table, part: Sequence[float]) -> str:
    """`10 to 49`, counted from 0; in per cent where runs are not equally long."""
    phases = {size[0] for size in table.settings["sizes"]}
    if len(phases) > 1:
        return f"from {part[0]:.0%} to {part[1]:.0%}"
    shown = within(np.arange(phases.pop()), part)
    return f"{shown[0]:.0f} to {shown[-1]:.0f}"


def score_panels(
    title: str,
    subtitle: str,
    y: str,
    y_end: str,
    table: Table,
    width: float,
    curve: Callable[[Axes, int], None],
    end: Callable[[Axes], None],
    names: Sequence[str] | None = None,
    one: bool = False,
) -> Figure:
    """A panel per capacity and one for the end; `one`: all of them have the same y axis."""
    ks = table.settings["capacities"]
    looks = {label: s for label, s in looks_of(table).items() if names is None or label in names}
    columns = columns_for(width, min(4, len(ks) + 1))
    groups = [0] * len(ks) + [0 if one else 1]
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.9, width=width) as (figure, axes):
        for ax, k in zip(axes, ks, strict=False):
            curve(ax, k)
            say_same(ax, looks)
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


def _end_row(found: RunGrid, label: str, k: int, metric: str, part: Sequence[float], fewest: int) -> dict[str, Any]:
    """Mean of a part of the phases, run by run, then over runs and tasks, with its interval."""
    tasks = []
    for members in found.tasks(label, k).values():
        columns = [within(c, part) for r in members if (c := r.column(metric)) is not None]
        if means := [c[~np.isnan(c)].mean() for c in columns if np.isfinite(c).any()]:
            tasks.append(np.array(means))
    return with_interval(tasks, label, k, metric, fewest)


def within(values: Array, part: Sequence[float]) -> Array:
    """The values from one share of their number to another, at least one: [phases] -> [some of them]."""
    first, end = (round(share * len(values)) for share in part)
    first = min(first, len(values) - 1)
    return values[first : max(first + 1, end)]


def with_interval(tasks: Sequence[Array], label: str, k: int, name: str, fewest: int = 0) -> dict[str, Any]:
    """{algorithm, capacity, end, end_low, end_high}: mean over tasks of their means, None where there is none; `dots`
    in place of an interval of fewer than `fewest` runs."""
    row: dict[str, Any] = {"algorithm": label, "capacity": k, "end": None, "end_low": None, "end_high": None}
    if tasks:
        row["end"] = float(mean_of_tasks(*tasks)[0])
    if tasks and min(map(len, tasks)) < fewest:
        row["dots"] = {"end": np.concatenate(tasks).tolist()}
    elif tasks and min(map(len, tasks)) > 1:
        low, high = fast_interval(mean_of_tasks, tasks, name=(name, label, k), reps=REPS)
        row |= {"end_low": float(low[0]), "end_high": float(high[0])}
    return row
