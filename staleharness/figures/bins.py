"""A column of the metrics over training, as means in bins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..statistics.diagnostics import BINS, in_bins
from ..statistics.scores import Array
from ..statistics.t_intervals import t_reach
from ..store.stored_run import StoredRun
from .canvas import gid
from .palette import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Column = str | Callable[[StoredRun], Array | None]
Transform = Callable[[Array], Array]


def binned(runs: Iterable[StoredRun], column: Column, most: int = BINS) -> tuple[Array, Array]:
    """Mean of a column over environments and runs and within bins of equally many phases: ([bins], [bins]), empty if
    unmeasured."""
    pairs, envs = [], []
    for run in runs:
        y = run.column(column) if isinstance(column, str) else column(run)
        if y is not None and (steps := run.column("steps")) is not None:
            pairs.append((steps, y))
            envs.append(str(run.spec["env"]))
    return in_bins(pairs, envs, most)


def in_logarithms(column: Column) -> Column:
    """The natural logarithm of a column, whose means are geometric; what is not above zero has none and is left out."""

    def logarithm(run: StoredRun) -> Array | None:
        values = run.column(column) if isinstance(column, str) else column(run)
        return None if values is None else np.log(np.where(values > 0, values, np.nan))

    return logarithm


def draw_spread(
    ax: Axes, runs: Iterable[StoredRun], column: Column, look: Style, fewest: int = 0, shown: Transform = np.asarray
) -> None:
    """A band around the mean of `binned`: Student's pointwise interval over the runs of each environment; the range of
    runs where an environment has fewer than `fewest`. Nothing where runs are not measured at the same steps.

    `shown` takes the ends of the band to the axis: `np.exp` for those of a column `in_logarithms`.
    """
    tasks: dict[str, list[tuple[Array, Array]]] = {}
    for run in runs:
        x, y = binned([run], column)
        if len(x):
            tasks.setdefault(str(run.spec["env"]), []).append((x, y))
    curves = [curve for task in tasks.values() for curve in task]
    if not curves or any(not np.array_equal(x, curves[0][0]) for x, _ in curves):
        return
    stacked = [np.stack([y for _, y in task]) for task in tasks.values()]
    least = min(map(len, stacked))
    if least < max(2, fewest):
        if len(stacked) > 1 or least < 2:
            return
        low, high = stacked[0].min(axis=0), stacked[0].max(axis=0)
    else:
        middle = np.mean([s.mean(axis=0) for s in stacked], axis=0)
        variances = np.array([s.var(axis=0, ddof=1) / len(s) for s in stacked]) / len(stacked) ** 2
        reach = t_reach(variances, [len(s) for s in stacked])
        low, high = middle - reach, middle + reach
    low, high = shown(low), shown(high)
    ax.fill_between(curves[0][0], low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid(look))
