"""Metrics over training, over time and by forward lag: a panel per setting, a line per algorithm, means in bins."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..base.parsing import without_n
from ..errors import UserError, nearest
from ..statistics.results import Results
from ..statistics.row_diagnostics import BINS, EMPTY, STALENESS, in_bins, in_budget
from ..statistics.scores import Array, axis
from ..statistics.t_tests_and_intervals import t_reach
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .captions import machines, seeds, spread
from .palette import Style, looks_of, styles, with_names
from .plot_layout import PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, steps_axis
from .plot_marks import draw_line, level_line, name_identical_lines
from .registry import FIGURES, Section

Column = str | Callable[[StoredRun], Array | None]
Transform = Callable[[Array], Array]
RunsOf = Callable[[str], Sequence[StoredRun]]  # label of an algorithm -> the runs of its line


def _values(run: StoredRun, column: Column) -> Array | None:
    return run.column(column) if isinstance(column, str) else column(run)


def binned_mean(runs: Iterable[StoredRun], column: Column, max_bins: int = BINS) -> tuple[Array, Array]:
    """Mean of a column over environments and runs and within bins of equally many phases: steps [bins] and values
    [bins], empty if unmeasured."""
    pairs, envs = [], []
    for run in runs:
        y = _values(run, column)
        if y is not None and (steps := run.column("steps")) is not None:
            pairs.append((in_budget(run, steps), in_budget(run, y)))
            envs.append(str(run.spec["env"]))
    return in_bins(pairs, envs, max_bins)


def logarithm_of(column: Column) -> Column:
    """Natural logarithm of a column, whose means are geometric; NaN for values that are not above zero."""

    def logarithm(run: StoredRun) -> Array | None:
        values = _values(run, column)
        return None if values is None else np.log(np.where(values > 0, values, np.nan))

    return logarithm


def draw_spread(
    ax: Axes, runs: Iterable[StoredRun], column: Column, look: Style, fewest: int = 0, to_axis: Transform = np.asarray
) -> None:
    """Draw a band around `binned_mean`: Student's pointwise interval over the runs of each environment; the range of
    the runs if an environment has fewer than `fewest`. Nothing if runs are not measured at the same steps.

    `to_axis` maps the ends of the band to the axis: `np.exp` for those of a `logarithm_of` a column.
    """
    tasks: dict[str, list[tuple[Array, Array]]] = {}
    for run in runs:
        x, y = binned_mean([run], column)
        if len(x):
            tasks.setdefault(str(run.spec["env"]), []).append((x, y))
    curves = [curve for task in tasks.values() for curve in task]
    if not curves or any(not np.array_equal(x, curves[0][0]) for x, _ in curves):
        return
    values = [np.stack([y for _, y in task]) for task in tasks.values()]
    least = min(map(len, values))
    if least < max(2, fewest):
        if len(values) > 1 or least < 2:
            return
        low, high = values[0].min(axis=0), values[0].max(axis=0)
    else:
        middle = np.mean([s.mean(axis=0) for s in values], axis=0)
        variances = np.array([s.var(axis=0, ddof=1) / len(s) for s in values]) / len(values) ** 2
        reach = t_reach(variances, [len(s) for s in values])
        low, high = middle - reach, middle + reach
        if to_axis is np.asarray and min(float(np.nanmin(v)) for v in values) >= 0:
            low = np.maximum(low, 0.0)  # of what is never negative
    low, high = to_axis(low), to_axis(high)
    ax.fill_between(curves[0][0], low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid(look))


def draw_metric(
    ax: Axes,
    looks: Mapping[str, Style],
    runs_of: RunsOf,
    columns: Sequence[Column],
    *,
    clock: Column | None = None,
    fewest: int | None = None,
    bins: int = BINS,
    logarithmic: bool = False,
    thick: float = 1.1,
) -> set[str]:
    """Draw columns of the metrics: a line per algorithm and column, the mean over its runs.

    clock: column of the x axis, None for training steps. fewest: that of the band of `draw_spread`; None for no band.
    Returns the algorithms that have a line: those that measure a column.
    """
    to_axis: Transform = np.exp if logarithmic else np.asarray
    labels = set()
    for label, look in looks.items():
        runs = runs_of(label)
        for name in columns:
            column = logarithm_of(name) if logarithmic else name
            x, y = binned_mean(runs, column, bins)
            if clock is not None:
                _, x = binned_mean(runs, _where_measured(clock, column), bins)
            if len(x) and len(x) == len(y):
                if fewest is not None:
                    draw_spread(ax, runs, column, look, fewest, to_axis)
                draw_line(ax, look, x, to_axis(y), linewidth=thick)
                labels.add(label)
    return labels


def _where_measured(clock: Column, column: Column) -> Column:
    """The clock of the phases in which a column has a value."""

    def times(run: StoredRun) -> Array | None:
        at, values = _values(run, clock), _values(run, column)
        return None if at is None or values is None else np.where(np.isfinite(values), at, np.nan)

    return times


def check_metric(results: Results, name: str) -> None:
    """Raise `UserError` for a column that no run has, if there are runs."""
    runs = list(results)
    if runs and all(run.column(name) is None for run in runs):
        columns = sorted(map(str, runs[0].metrics().columns))
        raise UserError(f"metric={name!r} is measured in none of these runs; {nearest(name, columns)}")


def _mean_text(results: Results) -> str:
    return f"mean over environments and seeds ({seeds(results.grid)})"


def capital(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}"


@FIGURES.register("metric_by_forward")
def metric_by_forward(
    results: Results, table: Table, width: float = PAGE, *, metric: str, name: str, share: bool = False
) -> Figure:
    """A column of the metrics over training: one panel per forward lag N, one line per method, mean over runs."""
    fewest = table.settings.get("fewest", 0)
    looks = with_names(styles(without_n(r.label) for r in results), table.settings.get("names"))
    runs: dict[int, list[StoredRun]] = {}
    for run in results:
        runs.setdefault(int(run.spec[axis(run, "N") or "minibatches"]), []).append(run)
    subtitle = f"{_mean_text(results)}, {spread(table)}; N = minibatches per generation round"
    with panels(f"{capital(name)} by N", subtitle, [0] * len(runs), table, width, 1.9) as (figure, axes):
        for ax, (n, members) in zip(axes, sorted(runs.items()), strict=True):
            methods = {label: [r for r in members if without_n(r.label) == label] for label in looks}
            draw_metric(ax, looks, methods.__getitem__, [metric], fewest=fewest)
            ax.set_title(f"N = {n}", loc="left")
            name_identical_lines(ax, looks)
            if share:
                percent_axis(ax)
            steps_axis(ax)
        label_edges(axes, table.settings["unit"], name)
        legend(figure, looks)
    return figure


@FIGURES.register("metric_over_time")
def metric_over_time(results: Results, table: Table, width: float = PAGE, *, metric: str, name: str) -> Figure:
    """A column of the metrics against wall-clock time without evaluation: one panel per capacity, mean over runs."""
    check_metric(results, metric)
    grid, looks, ks = results.grid, looks_of(table), table.settings["capacities"]
    subtitle = (
        f"{_mean_text(results)} of {name} and of the seconds until then (collecting and "
        f"learning), phase by phase, at most {BINS} bins, no interval; on {machines(results)}"
    )
    with panels(f"{capital(name)} over time", subtitle, [0] * len(ks), table, width, 1.9) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            draw_metric(ax, looks, functools.partial(grid.members, capacity=k), [metric], clock=_seconds)
            ax.set_title(f"K = {k}", loc="left")
            ax.set_xlim(left=0)
        label_edges(axes, "seconds", name)
        legend(figure, looks)
    return figure


def _seconds(run: StoredRun) -> Array | None:
    """Seconds of collecting and learning until the end of each phase."""
    collect, learn = run.column("seconds/collect"), run.column("seconds/learn")
    return None if collect is None or learn is None else np.cumsum(collect + learn)


@FIGURES.register("rows_over_training")
def rows_over_training(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    rows: Mapping[str, Sequence[str]],
    name: str,
    unit: str = "",
    note: str = "",
    logarithmic: bool = False,
    line: float = math.nan,
    one_axis: bool = True,
) -> Figure:
    """One row of panels per entry of `rows` (its name -> the columns in it), one panel per capacity; mean over runs,
    and on a `logarithmic` axis the geometric mean, its interval taken on logarithms.

    A column is one of the metrics, or `seconds/<part>` of the time of a phase. All panels have one y axis, or each row
    its own. `line`: a level to compare with, drawn in the last row if each row has its own axis. Algorithms that
    measure none of a row's columns are left out of it.
    """
    for columns_of_row in rows.values():
        if all(run.column(name) is None for run in results for name in columns_of_row):
            check_metric(results, columns_of_row[0])
    grid, ks = results.grid, table.settings["capacities"]
    looks, fewest = looks_of(table), table.settings.get("fewest", 0)
    subtitle = f"{'geometric ' * logarithmic}{_mean_text(results)}, {spread(table)}" + (f"; {note}" if note else "")
    if any(c.startswith(SECONDS) for columns in rows.values() for c in columns):
        subtitle += "; on " + machines(results)
    columns = columns_for(width, min(4, len(ks)))
    places = [(row, k) for row in rows for k in ks]
    if columns < len(ks):  # on a narrow page the panels of a capacity stand side by side, not those of a row
        columns, places = columns_for(width, len(rows)), [(row, k) for k in ks for row in rows]
    groups = [0 if one_axis else row for row, _ in places]
    between = " " if width > 5 else "\n"
    labels: set[str] = set()
    with panels(f"{capital(name)} over training", subtitle, groups, table, width, 1.7, columns) as (figure, axes):
        for ax, (row, k) in zip(axes, places, strict=True):
            runs_of = functools.partial(grid.members, capacity=k)
            labels |= draw_metric(ax, looks, runs_of, rows[row], fewest=fewest, logarithmic=logarithmic, thick=1)
            name_identical_lines(ax, looks)
            if one_axis or row == list(rows)[-1]:
                level_line(ax, line)
            if logarithmic:
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            ax.set_title(f"{row},{between}K = {k}", loc="left")
            steps_axis(ax)
        label_edges(axes, table.settings["unit"], unit)
        legend(figure, {label: look for label, look in looks.items() if label in labels})
    return figure


ABOUT = "How far the data are from the policy that learns from them."


@FIGURES.register("staleness", Section(60, "Staleness over training", ABOUT))
def staleness(results: Results, table: Table, width: float = PAGE) -> Figure:
    """TV, ESS and KL of the data and the clipped share over training: a line per algorithm, a panel per capacity."""
    looks, ks = looks_of(table), results.grid.capacities
    places = [(name, k) for name in STALENESS for k in ks]
    subtitle = (
        "data against the newest policy at the start of each phase; clipped share as the harness measures "
        f"it; {_mean_text(results)}, no interval; at most {BINS} bins"
    )
    columns, groups = columns_for(width, len(ks) if len(ks) > 1 else 2), [name for name, _ in places]
    with panels("Staleness over training", subtitle, groups, table, width, 1.45, columns) as (figure, axes):
        for ax, (name, k) in zip(axes, places, strict=True):
            for label, look in looks.items():
                draw_line(ax, look, *results.diagnostics.get((label, k), EMPTY).staleness[name], linewidth=1)
            ax.set_title(STALENESS[name] + (f", K = {k}" if len(ks) > 1 else ""), loc="left")
            if name == "clipped":
                percent_axis(ax)
            ax.yaxis.set_major_locator(MaxNLocator(4))
            steps_axis(ax)
        label_edges(axes, table.settings["unit"], "")
        legend(figure, looks)
    return figure
