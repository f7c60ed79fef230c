"""Learning curves: returns per environment, and normalised scores over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ..statistics.bootstrap import curve_band
from ..statistics.scores import Array, learning_curve, normaliser_of
from ..statistics.table import Table
from ..store.cells import Cell, Grid, grid
from ..store.store import StoredRun
from .canvas import PAGE, columns_for, gid, label_edges, legend, names_at_ends, panels, steps_axis
from .captions import axis, band, looks_of, scale, seeds
from .palette import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_REPS = 2000
Curve = tuple[Array, Array]  # environment steps [points], value [points]


def learning_curves(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Return of the newest policy over training: one panel per environment and capacity, IQM over seeds."""
    found, score = grid(runs), table.settings["score"]

    def tasks_of(label: str, env: str, k: int) -> list[list[Curve]]:
        return [[learning_curve(r, score) for r in found.cells.get(Cell(label, k, env), [])]]

    titles = {(env, k): f"{env}, K = {k}" for env in found.envs for k in found.capacities}
    subtitle = (
        f"{table.settings['measure']} of the newest policy, IQM over seeds ({seeds(found)}), {band(table)}"
    )
    return _curve_panels(
        "Learning curves",
        subtitle,
        "return" if axis(table) == "normalised score" else axis(table),
        table,
        titles,
        tasks_of,
        width,
    )


def aggregate_curves(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training, IQM over all environments and seeds: one panel per capacity."""
    found = grid(runs)

    def tasks_of(label: str, _: str, k: int) -> list[list[Curve]]:
        return normalised_curves(found, table, label, k)

    over = f"{len(found.envs)} environments"
    titles = {("all", k): f"{over}, K = {k}" for k in found.capacities}
    subtitle = f"IQM over {over} and seeds ({seeds(found)}), {band(table)}; {scale(table)}"
    return _curve_panels("Score over training", subtitle, axis(table), table, titles, tasks_of, width)


def normalised_curves(found: Grid, table: Table, label: str, k: int) -> list[list[Curve]]:
    """The learning curves of an algorithm at a capacity, on the table's scale: one list per environment."""
    normalise, score = normaliser_of(table), table.settings["score"]
    tasks = []
    for cell, members in found.cells.items():
        if (cell.label, cell.capacity) == (label, k):
            raw = [learning_curve(r, score) for r in members]
            tasks.append([(x, normalise(cell.env, y)) for x, y in raw])
    return tasks


def _curve_panels(
    title: str, subtitle: str, y: str, table: Table, titles: Mapping[tuple[str, int], str],
    tasks_of: Callable[[str, str, int], list[list[Curve]]], width: float,
) -> Figure:  # fmt: skip
    """A panel per (environment, capacity), a line per algorithm: its curves by task, as IQM and band."""
    looks, envs = looks_of(table), [env for env, _ in titles]
    count, per_env = len(titles), envs.count(envs[0])
    wanted = per_env if 1 < per_env <= 4 else count if count <= 4 else 3
    columns, height = columns_for(width, wanted), 2.9 if count == 1 else 1.75
    with panels(title, subtitle, envs, table=table, columns=columns, height=height, width=width) as (
        figure,
        axes,
    ):
        for ax, ((env, k), name) in zip(axes, titles.items(), strict=True):
            if env in table.settings["envs"]:
                ax.set_gid(f"panel-{table.settings['envs'].index(env)}")
            ends = []
            for label, look in looks.items():
                tasks = [t for t in tasks_of(label, env, k) if t and all(len(x) for x, _ in t)]
                if tasks:
                    ends.append((label, *draw_curve(ax, tasks, ("curve", label, env, k), look)))
            ax.set_title(name, loc="left")
            steps_axis(ax)
            if count == 1:
                names_at_ends(ax, ends, looks, height)
        label_edges(axes, columns, table.settings["unit"], y)
        if count > 1:
            legend(figure, looks)
    return figure


def draw_curve(ax: Axes, tasks: list[list[Curve]], name: tuple[Any, ...], look: Style) -> tuple[float, float]:
    """Draw IQM and band, return the end point.

    Runs of a sweep are evaluated at the same steps; where they are not, curves are interpolated within the
    range that all of them cover.
    """
    curves = [c for task in tasks for c in task]
    steps = np.unique(np.concatenate([x for x, _ in curves]))
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    steps = steps[(steps >= first) & (steps <= last)] if first <= last else steps
    stacked = [np.stack([np.interp(steps, x, y) for x, y in task]) for task in tasks]
    middle, low, high = curve_band(stacked, name=name, reps=CURVE_REPS)
    if low is not None and high is not None:
        ax.fill_between(steps, low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid(look))
    marker = look.marker if len(steps) == 1 else ""
    ax.plot(steps, middle, color=look.colour, dashes=look.dashes, marker=marker, gid=gid(look))
    return float(steps[-1]), float(middle[-1])
