"""Learning curves: returns per environment, and normalised scores over all environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..statistics.bootstrap import REPS, curve_band
from ..statistics.results import Results
from ..statistics.scores import Array, learning_curve, normaliser_of, untrained_return, untrained_score
from ..statistics.table import Table
from ..store.run_grid import Cell, RunGrid
from ..store.stored_run import StoredRun
from ..study import plain_env
from .captions import axis, band, scale, seeds
from .palette import Style, looks_of
from .plot_layout import PAGE, columns_for, gid, label_edges, legend, names_at_ends, panels, short_label, steps_axis
from .plot_marks import UNTRAINED_NOTE, End, level_line, name_identical_lines
from .registry import FIGURES, Section, single_choice

Curve = tuple[Array, Array]  # environment steps [points], value [points]
TasksOf = Callable[[str, str, int], list[list[Curve]]]  # (algorithm, environment, K) -> curves by task


def curve_panel(ax: Axes, results: Results, table: Table, *, env: str | None = None, k: int | None = None) -> None:
    """Draw the learning curves of one environment (with or without its version) at one capacity; either may be None if
    the results have one."""
    grid = results.grid
    full = {plain_env(name): name for name in grid.envs}
    env = single_choice("env", env and full.get(plain_env(env), env), grid.envs)
    k = single_choice("k", k, grid.capacities)
    _curves(ax, table, returns(results, table), env, k)
    level_line(ax, untrained_return(results.grid, table, env))
    ax.set_title(f"{env}, K = {k}", loc="left")
    label_edges([ax], table.settings["unit"], _return_axis(table))


def returns(results: Results, table: Table) -> TasksOf:
    """Learning curves of a cell, as one task."""
    grid, score = results.grid, table.settings["score"]

    def tasks_of(label: str, env: str, k: int) -> list[list[Curve]]:
        return [[learning_curve(r, score) for r in grid.cells.get(Cell(label, k, env), [])]]

    return tasks_of


def _return_axis(table: Table) -> str:
    return "return" if axis(table) == "normalised score" else axis(table)


@FIGURES.register(
    "learning_curves",
    Section(10, "Learning curves", "Evaluations of the newest policy, not returns of the stale actors."),
    panel=curve_panel,
)
def learning_curves(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Return of the newest policy over training: one panel per environment and capacity, IQM over seeds."""
    grid = results.grid
    titles = {(env, k): f"{env}, K = {k}" for env in grid.envs for k in grid.capacities}
    subtitle = f"{table.settings['measure']} of the newest policy, IQM over seeds ({seeds(grid)}), {band(table)}"
    tasks_of = returns(results, table)
    levels = {env: untrained_return(results.grid, table, env) for env in grid.envs}
    alone = {cell: runs[0] for cell, runs in grid.cells.items() if len(runs) == 1 and len(grid.cells) == 1}
    errors = {cell: error for cell, run in alone.items() if (error := sampling_error(run, table)) is not None}
    subtitle += "; pale: 95% interval of one policy, from the problems alone" if errors else ""
    args = (subtitle, _return_axis(table), table, titles, tasks_of, levels, width, errors)
    return _curve_panels("Learning curves", *args)


def sampling_error(run: StoredRun, table: Table) -> float | None:
    """Standard error of an evaluation's accuracy p over √(p (1 − p)), measured before training; None where unknown."""
    summary, name = run.record["summary"], f"untrained/{table.settings['score']}"
    p, error = summary.get(name), summary.get(f"{name}_error")
    if run.record["task"]["normalise"] != "raw" or p is None or not error or not 0 < p < 1:
        return None
    return float(error / math.sqrt(p * (1 - p)))


@FIGURES.register("curves_by_method")
def curves_by_method(
    results: Results, table: Table, width: float = PAGE, *, env: str | None = None, k: int | None = None
) -> Figure:
    """Learning curves of one environment and capacity, a small panel per method: IQM and band, the others' in grey."""
    grid, looks, tasks_of = results.grid, looks_of(table), returns(results, table)
    env, k = single_choice("env", env, grid.envs), single_choice("k", k, grid.capacities)
    names = list(table.settings.get("names", ()))  # in the order in which the figure names them
    in_order = sorted(looks, key=lambda label: names.index(label) if label in names else len(names))
    tasks = {label: tasks_of(label, env, k) for label in in_order if grid.cells.get(Cell(label, k, env))}
    fewest, titles = table.settings.get("fewest", 0), [short_label(looks[label].name, width / 2) for label in tasks]
    subtitle = f"{table.settings['measure']} of the newest policy, IQM over seeds ({seeds(grid)}), {band(table)}"
    subtitle += f"; grey: the other methods{UNTRAINED_NOTE}"
    columns = columns_for(width, 4)
    with panels("Learning curves", subtitle, [0] * len(tasks), table, width, 1.35, columns) as (figure, axes):
        for ax, label, title in zip(axes, tasks, titles, strict=True):
            for other in tasks:
                if other != label:
                    grey = replace(looks[other], colour="#C8C8C8", dashes=(1, 0))
                    draw_curve(ax, tasks[other], ("curve", other, env, k), grey, fewest, band=False)
            draw_curve(ax, tasks[label], ("curve", label, env, k), looks[label], fewest)
            level_line(ax, untrained_return(results.grid, table, env))
            ax.set_title(title, loc="left")
            steps_axis(ax)
        label_edges(axes, table.settings["unit"], _return_axis(table))
    return figure


@FIGURES.register(
    "aggregate_curves",
    Section(
        20,
        "Score over training",
        "All environments together, each run's curve normalised first.",
        lambda results: len(results.grid.envs) > 1,
    ),
)
def aggregate_curves(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training, IQM over all environments and seeds: one panel per capacity."""
    grid = results.grid

    def tasks_of(label: str, _: str, k: int) -> list[list[Curve]]:
        return normalised_curves(grid, table, label, k)

    over = f"{len(grid.envs)} environments"
    titles = {("all", k): f"{over}, K = {k}" for k in grid.capacities}
    subtitle = f"IQM over {over} and seeds ({seeds(grid)}), {band(table)}; {scale(table)}"
    subtitle += below_zero(grid, table)
    levels = {"all": untrained_score(results.grid, table)}
    return _curve_panels("Score over training", subtitle, axis(table), table, titles, tasks_of, levels, width)


def normalised_curves(grid: RunGrid, table: Table, label: str, k: int) -> list[list[Curve]]:
    """Learning curves of an algorithm at a capacity, on the table's scale: one list per environment."""
    normalise, score = normaliser_of(table), table.settings["score"]
    return [
        [(x, normalise(env, y)) for x, y in (learning_curve(r, score) for r in members)]
        for env, members in grid.tasks(label, k).items()
    ]


def below_zero(grid: RunGrid, table: Table) -> str:
    """Reason why scores over training lie below 0, the worst final score; empty where none does."""
    curves = [curve for row in grid.rows for task in normalised_curves(grid, table, *row) for curve in task]
    low = table.settings["normalise"] == "minmax" and any((y < 0).any() for _, y in curves)
    return "; below 0: lower than any run ends" if low else ""


def _curve_panels(
    title: str,
    subtitle: str,
    y: str,
    table: Table,
    titles: Mapping[tuple[str, int], str],
    tasks_of: TasksOf,
    levels: Mapping[str, float],
    width: float,
    errors: Mapping[Cell, float] | None = None,
) -> Figure:
    """A panel per (environment, capacity), a line per algorithm: its curves by task, as IQM and band. `levels`:
    scores of the untrained policy by environment. errors: `sampling_error` of cells of one run."""
    subtitle += UNTRAINED_NOTE if any(map(math.isfinite, levels.values())) else ""
    looks, envs = looks_of(table), [env for env, _ in titles]
    count, per_env = len(titles), envs.count(envs[0])
    columns = columns_for(width, per_env if 1 < per_env <= 4 else count if count <= 4 else 3)
    height = 2.9 if count == 1 else 1.75
    with panels(title, subtitle, envs, table, width, height, columns) as (figure, axes):
        for ax, ((env, k), name) in zip(axes, titles.items(), strict=True):
            if env in table.settings["envs"]:
                ax.set_gid(f"panel-{table.settings['envs'].index(env)}")
            ends = _curves(ax, table, tasks_of, env, k)
            for cell, error in (errors or {}).items():
                ((steps, p),) = tasks_of(cell.label, cell.env, cell.capacity)[0]
                reach, look = 1.96 * error * np.sqrt(p * (1 - p)), looks[cell.label]
                ax.fill_between(steps, p - reach, p + reach, color=look.colour, alpha=0.1, linewidth=0, gid=gid(look))
            level_line(ax, levels[env])
            name_identical_lines(ax, looks)
            inches = width / columns - 0.35  # over the panel: a long name stands above its K
            ax.set_title(name if 0.062 * len(name) < inches else name.replace(", K", ",\nK"), loc="left")
            if count == 1:
                names_at_ends(ax, ends, looks, height)
        label_edges(axes, table.settings["unit"], y)
        if count > 1:
            legend(figure, looks)
    return figure


def _curves(ax: Axes, table: Table, tasks_of: TasksOf, env: str, k: int) -> list[End]:
    """Draw a line per algorithm. Returns their ends."""
    ends = []
    for label, look in looks_of(table).items():
        tasks = [t for t in tasks_of(label, env, k) if t and all(len(x) for x, _ in t)]
        if tasks:
            fewest = table.settings.get("fewest", 0)
            ends.append((label, *draw_curve(ax, tasks, ("curve", label, env, k), look, fewest)))
    steps_axis(ax)
    return ends


def draw_curve(
    ax: Axes, tasks: list[list[Curve]], name: tuple[Any, ...], look: Style, fewest: int = 0, band: bool = True
) -> tuple[float, float]:
    """Draw IQM and band, or the runs themselves if fewer than `fewest`; without `band` the IQM alone. Returns the end
    point.

    Runs of a sweep are evaluated at the same steps; where they are not, curves are interpolated within the
    range that all of them cover.
    """
    curves = [c for task in tasks for c in task]
    steps = np.unique(np.concatenate([x for x, _ in curves]))
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    steps = steps[(steps >= first) & (steps <= last)] if first <= last else steps
    values = [np.stack([np.interp(steps, x, y) for x, y in task]) for task in tasks]
    middle, low, high = curve_band(values, name=name, reps=REPS)
    if not band:
        pass
    elif min(map(len, tasks)) < fewest:
        for run in np.concatenate(values):
            ax.plot(steps, run, color=look.colour, linewidth=0.5, alpha=0.6, gid=gid(look))
    elif low is not None and high is not None:
        ax.fill_between(steps, low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid(look))
    marker = look.marker if len(steps) == 1 else ""
    ax.plot(steps, middle, color=look.colour, dashes=look.dashes, marker=marker, gid=gid(look))
    return float(steps[-1]), float(middle[-1])
