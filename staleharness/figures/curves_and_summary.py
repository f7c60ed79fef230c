"""Scores and metrics over training, a panel per capacity, and in a last panel their summary against the capacity."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.text_formatting import plural
from ..statistics.bootstrap import REPS, fast_interval, mean_of_tasks
from ..statistics.results import Results
from ..statistics.row_diagnostics import budget_phases, in_budget
from ..statistics.scores import Array
from ..statistics.table import Table
from ..store.run_grid import RunGrid
from .captions import band, bars, iqm_axis, scale, seeds, spread
from .learning_curves import below_zero, draw_curve, normalised_curves
from .metric_curves import capital, check_metric, draw_metric
from .palette import Style, looks_of
from .plot_layout import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .plot_marks import level_line, name_identical_lines, points_against_capacity
from .registry import FIGURES


@FIGURES.register("score_and_area")
def score_and_area(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training (IQM over environments and seeds), and the area under it against K."""
    grid, looks, fewest = results.grid, looks_of(table), table.settings.get("fewest", 0)
    over = plural(len(grid.envs), "environment")
    subtitle = (
        f"IQM over {over} and seeds ({seeds(grid)}), {band(table)}; AUC: IQM of each run's area under "
        f"its curve, {bars(table)}; {scale(table)}{below_zero(grid, table)}"
    )

    def curve(ax: Axes, k: int) -> None:
        for label, look in looks.items():
            if tasks := normalised_curves(grid, table, label, k):
                draw_curve(ax, tasks, ("curve", label, "all", k), look, fewest)

    names = ("Score over training", subtitle, iqm_axis(table), "AUC")
    return panels_and_summary(*names, table, width, looks, curve, table.rows, "auc")


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

    `part`: its bounds, as shares of the phases. `line`: a level to compare with, named `line_name`. Algorithms that
    do not measure the column are left out.
    """
    check_metric(results, metric)
    grid, fewest = results.grid, table.settings.get("fewest", 0)
    labels = {c.label for c, rs in grid.cells.items() if any(r.column(metric) is not None for r in rs)}
    looks = {label: look for label, look in looks_of(table).items() if label in labels}
    rows = [_end_row(grid, label, k, metric, part, fewest) for label in looks for k in grid.capacities]
    period = "all phases" if tuple(part) == (0, 1) else f"phases {_span(grid, part)}"
    subtitle = f"mean over environments and seeds ({seeds(grid)}), {spread(table)}"
    subtitle += f"; right: mean of {period}, {bars(table)}"
    subtitle += f"; dotted: {line_name}" if line_name else ""

    def curve(ax: Axes, k: int) -> None:
        draw_metric(ax, looks, functools.partial(grid.members, capacity=k), [metric], fewest=fewest, thick=1)

    names = (f"{capital(name)} over training", subtitle, name, period)
    return panels_and_summary(*names, table, width, looks, curve, rows, "end", line)


def _span(grid: RunGrid, part: Sequence[float]) -> str:
    """`10 to 49`, phases of the budget counted from 0; in per cent where runs are not equally long."""
    phases = {budget_phases(run) for run in grid.runs}
    if len(phases) > 1:
        return f"from {part[0]:.0%} to {part[1]:.0%}"
    numbers = phases_in(np.arange(phases.pop(), dtype=float), part)
    return f"{numbers[0]:.0f} to {numbers[-1]:.0f}"


def _end_row(grid: RunGrid, label: str, k: int, metric: str, part: Sequence[float], fewest: int) -> dict[str, Any]:
    """Mean of a part of the budget's phases, run by run, then over runs and tasks, with its interval."""
    tasks = []
    for members in grid.tasks(label, k).values():
        columns = [phases_in(in_budget(r, c), part) for r in members if (c := r.column(metric)) is not None]
        if means := [c[~np.isnan(c)].mean() for c in columns if np.isfinite(c).any()]:
            tasks.append(np.array(means))
    return summary_row(tasks, label, k, metric, fewest)


def phases_in(values: Array, part: Sequence[float]) -> Array:
    """Values from one share of their number to another, at least one: [phases] -> [some of them]."""
    first, end = (round(share * len(values)) for share in part)
    first = min(first, len(values) - 1)
    return values[first : max(first + 1, end)]


@FIGURES.register("steps_to_threshold")
def steps_to_threshold(results: Results, table: Table, width: float = PAGE, *, threshold: float = 0.5) -> Figure:
    """Share of runs whose newest policy has scored `threshold` (normalised) at least once, against the steps."""
    grid, looks = results.grid, looks_of(table)
    subtitle = (
        f"share of runs that reached a normalised score of {threshold:g} in an evaluation by then, over environments "
        f"and seeds ({seeds(grid)}), no interval; right: share at the end, {bars(table)}; {scale(table)}"
    )

    def first(k: int, label: str) -> list[Array]:
        """Steps at which each run of each task first scores that much, infinite if it never does: [runs] per task."""
        tasks = normalised_curves(grid, table, label, k)
        return [np.array([min(x[y >= threshold], default=math.inf) for x, y in task]) for task in tasks]

    def curve(ax: Axes, k: int) -> None:
        last_step = max((float(x[-1]) for r in results if (x := r.column("steps")) is not None), default=1.0)
        for label, look in looks.items():
            if tasks := first(k, label):
                x = np.sort(np.concatenate(tasks))
                steps = np.concatenate([[0.0], x[x < math.inf], [last_step]])
                heights = np.mean([(t[:, None] <= steps).mean(axis=0) for t in tasks], axis=0)
                pen: dict[str, Any] = {"color": look.colour, "dashes": look.dashes, "gid": gid(look)}
                ax.step(steps, heights, where="post", linewidth=1.2, **pen)

    def end_row(label: str, k: int) -> dict[str, Any]:
        shares = [(t < math.inf).astype(np.float64) for t in first(k, label)]
        return summary_row(shares, label, k, "reached", table.settings.get("fewest", 0))

    rows = [end_row(label, k) for label in looks for k in grid.capacities]
    names = ("Steps to threshold", subtitle, "share of runs", "share at the end")
    return panels_and_summary(*names, table, width, looks, curve, rows, "end")


def panels_and_summary(
    title: str,
    subtitle: str,
    y: str,
    y_end: str,
    table: Table,
    width: float,
    looks: Mapping[str, Style],
    curve: Callable[[Axes, int], None],
    rows: Sequence[Mapping[str, Any]],
    column: str,
    line: float = math.nan,
) -> Figure:
    """A panel per capacity, drawn by `curve`, and a last one of a column of `rows` against the capacity. All have the
    same y axis if the column is the `end` of the curves; `line`: a level to compare with in each."""
    ks, share_y = table.settings["capacities"], column == "end"
    columns = columns_for(width, min(4, len(ks) + 1))
    with panels(title, subtitle, [0] * len(ks) + [0 if share_y else 1], table, width, 1.9) as (figure, axes):
        for ax, k in zip(axes, ks, strict=False):
            curve(ax, k)
            level_line(ax, line)
            name_identical_lines(ax, looks)
            ax.set_title(f"K = {k}", loc="left")
            steps_axis(ax)
        points_against_capacity(axes[-1], looks, rows, column, ks)
        level_line(axes[-1], line)
        axes[-1].set_title(y_end, loc="left")
        axes[-1].yaxis.set_major_locator(MaxNLocator(5))
        label_edges(axes, table.settings["unit"], y)
        axes[-1].set_xlabel("buffer capacity K")
        if len(axes) % columns == 1:
            axes[-1].set_ylabel(y)
        if share_y and "share" in y:
            for ax in axes:
                percent_axis(ax)
        legend(figure, looks)
    return figure


def summary_row(tasks: Sequence[Array], label: str, k: int, name: str, fewest: int = 0) -> dict[str, Any]:
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
