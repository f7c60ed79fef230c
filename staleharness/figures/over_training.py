"""Something over training, a panel per capacity, and in the last panel what it comes to against the capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..base.text import plural
from ..statistics.bootstrap import fast_interval, mean_of_tasks
from ..statistics.scores import Array, metrics
from ..statistics.table import Table
from ..store.cells import Grid, grid
from ..store.store import StoredRun
from .canvas import FAINT, PAGE, columns_for, gid, label_edges, legend, panels, steps_axis
from .captions import band, bars, iqm_axis, looks_of, scale, seeds
from .curves import draw_curve, normalised_curves
from .marks import points_against_capacity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPS = 2000


def score_and_area(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training (IQM over environments and seeds), and the area under it against K."""
    found, looks = grid(runs), looks_of(table)
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

    return _panels("Score over training", subtitle, iqm_axis(table), "AUC", table, width, curve, end)


def metric_over_training(
    runs: Sequence[StoredRun], table: Table, width: float = PAGE, *, metric: str, name: str,
    last: float = 0.1, line: float = math.nan, line_name: str = "",
) -> Figure:  # fmt: skip
    """A column of the metrics over training (mean over runs), and its mean over the `last` share of phases against K.

    `line`: a level to compare with, named `line_name`. Algorithms that do not measure the column are left out.
    """
    found = grid(runs)
    having = {
        label for c, rs in found.cells.items() for label in [c.label] if any(metric in metrics(r) for r in rs)
    }
    looks = {label: look for label, look in looks_of(table).items() if label in having}
    rows = [_end_row(found, label, k, metric, last) for label in looks for k in found.capacities]
    when = "all phases" if last >= 1 else f"the last {last:.0%} of the phases"
    subtitle = (
        f"mean over environments and seeds ({seeds(found)}), no interval; right: mean of {when}, {bars(table)}"
    ) + (f"; dotted: {line_name}" if line_name else "")

    def curve(ax: Axes, k: int) -> None:
        for label, look in looks.items():
            x, y = binned([metrics(r) for r in members(found, label, k)], metric)
            ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
        level(ax, line)

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, rows, "end", table.settings["capacities"])
        level(ax, line)

    title = f"{name[0].upper()}{name[1:]} over training"
    when = "all phases" if last >= 1 else f"last {last:.0%} of phases"
    return _panels(title, subtitle, name, when, table, width, curve, end, list(looks), one=True)


def metric_over_time(
    runs: Sequence[StoredRun], table: Table, width: float = PAGE, *, metric: str, name: str
) -> Figure:
    """A column of the metrics against wall-clock time without evaluation: one panel per capacity, mean over runs."""
    found, looks, ks = grid(runs), looks_of(table), table.settings["capacities"]
    cores = ", ".join(sorted({str(r.record["fingerprint"].get("cpu")) for r in runs}))
    subtitle = (
        f"mean over environments and seeds ({seeds(found)}) of {name} and of the seconds until then (collecting and "
        f"learning), phase by phase, at most {BINS} bins, no interval; on {cores}"
    )
    columns = columns_for(width, min(4, len(ks)))
    title = f"{name[0].upper()}{name[1:]} over time"
    with panels(title, subtitle, [0] * len(ks), table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for ax, k in zip(axes, ks, strict=True):
            for label, look in looks.items():
                frames = [metrics(r).assign(clock=_clock(r)) for r in members(found, label, k)]
                _, x = binned(frames, "clock")
                _, y = binned(frames, metric)
                if len(x) == len(y):
                    ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
            ax.set_title(f"K = {k}", loc="left")
            ax.set_xlim(left=0)
        label_edges(axes, columns, "seconds", name)
        legend(figure, looks)
    return figure


def _clock(run: StoredRun) -> Array:
    """Seconds of collecting and learning until the end of each phase."""
    timing = run.timing()
    return np.asarray((timing["collect"] + timing["learn"]).cumsum(), dtype=np.float64)


def steps_to_threshold(
    runs: Sequence[StoredRun], table: Table, width: float = PAGE, *, threshold: float = 0.5
) -> Figure:
    """Share of runs whose newest policy has scored `threshold` (normalised) at least once, against the steps."""
    found, looks = grid(runs), looks_of(table)
    subtitle = (
        f"share of runs that reached a normalised score of {threshold:g} in an evaluation by then, over environments "
        f"and seeds ({seeds(found)}), no interval; right: share at the end, {bars(table)}; {scale(table)}"
    )

    def first(k: int, label: str) -> list[Array]:
        """Steps at which each run of each task got there, infinite where it did not: [runs] per task."""
        tasks = normalised_curves(found, table, label, k)
        return [np.array([min(x[y >= threshold], default=math.inf) for x, y in task]) for task in tasks]

    def curve(ax: Axes, k: int) -> None:
        end = max((float(metrics(r)["steps"].iloc[-1]) for r in runs), default=1.0)
        for label, look in looks.items():
            if tasks := first(k, label):
                x = np.sort(np.concatenate(tasks))
                share = np.arange(1, len(x) + 1) / len(x)
                there = x < math.inf
                steps = np.concatenate([[0.0], x[there], [end]])
                heights = np.concatenate([[0.0], share[there], [there.mean()]])
                ax.step(
                    steps,
                    heights,
                    where="post",
                    color=look.colour,
                    dashes=look.dashes,
                    linewidth=1.2,
                    gid=gid(look),
                )

    rows = []
    for label in looks:
        for k in found.capacities:
            if tasks := first(k, label):
                reached = [(t < math.inf).astype(np.float64) for t in tasks]
                rows.append(_with_interval(reached, label, k, "reached"))

    def end(ax: Axes) -> None:
        points_against_capacity(ax, looks, rows, "end", table.settings["capacities"])

    return _panels(
        "Steps to threshold",
        subtitle,
        "share of runs",
        "share at the end",
        table,
        width,
        curve,
        end,
        one=True,
    )


def _panels(
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
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
        legend(figure, looks)
    return figure


def members(found: Grid, label: str, k: int) -> list[StoredRun]:
    return [r for c, rs in found.cells.items() if (c.label, c.capacity) == (label, k) for r in rs]


def _end_row(found: Grid, label: str, k: int, metric: str, last: float) -> dict[str, Any]:
    """Mean of the last phases, run by run, then over runs and tasks, with its interval."""
    tasks = []
    for cell, members in found.cells.items():
        if (cell.label, cell.capacity) == (label, k):
            columns = [
                metrics(r)[metric].dropna().to_numpy(np.float64) for r in members if metric in metrics(r)
            ]
            ends = [c[-max(1, round(last * len(c))) :].mean() for c in columns if len(c)]
            if ends:
                tasks.append(np.array(ends))
    return _with_interval(tasks, label, k, metric)


def _with_interval(tasks: Sequence[Array], label: str, k: int, name: str) -> dict[str, Any]:
    """{algorithm, capacity, end, end_low, end_high}: mean over tasks of their means, None where there is none."""

    row: dict[str, Any] = {"algorithm": label, "capacity": k, "end": None, "end_low": None, "end_high": None}
    if tasks:
        row["end"] = float(mean_of_tasks(*tasks)[0])
    if tasks and min(map(len, tasks)) > 1:
        low, high = fast_interval(mean_of_tasks, tasks, name=(name, label, k), reps=REPS)
        row |= {"end_low": float(low[0]), "end_high": float(high[0])}
    return row


def level(ax: Axes, height: float) -> None:
    if math.isfinite(height):
        ax.axhline(height, color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))


BINS = 100  # of a diagnostic over training


def binned(frames: Sequence[Any], name: str, most: int = BINS) -> tuple[Array, Array]:
    """Mean of a column over runs and within bins of equally many phases: ([bins], [bins]), empty if unmeasured."""
    frames = [f for f in frames if name in f]
    x = np.concatenate([np.empty(0), *(f["steps"].to_numpy(np.float64) for f in frames)])
    y = np.concatenate([np.empty(0), *(f[name].to_numpy(np.float64) for f in frames)])
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    phases = np.unique(x)
    bins = min(len(phases), most)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    weight = np.bincount(index, minlength=bins)
    return np.bincount(index, x, bins) / weight, np.bincount(index, y, bins) / weight
