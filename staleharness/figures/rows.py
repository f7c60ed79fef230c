"""Several columns over training, a row of panels each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS
from .bins import Transform, binned, draw_spread, in_logarithms
from .canvas import PAGE, columns_for, gid, label_edges, legend, panels, steps_axis
from .captions import looks_of, machines, seeds, spread
from .marks import level, say_same
from .registry import FIGURES


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

    A column is one of the metrics, or `seconds/<part>` of what a phase's time went to. All panels have one y axis, or
    each row its own. `line`: a level to compare with, where each row has its own axis in the last row. Algorithms
    that measure none of a row's columns are left out of it.
    """
    found, ks = results.grid, table.settings["capacities"]
    looks = looks_of(table)
    subtitle = f"{'geometric ' * logarithmic}mean over environments and seeds ({seeds(found)}), {spread(table)}" + (
        f"; {note}" if note else ""
    )
    if any(c.startswith(SECONDS) for columns in rows.values() for c in columns):
        subtitle += "; on " + machines(results)
    shown: Transform = np.exp if logarithmic else np.asarray
    fewest = table.settings.get("fewest", 0)
    columns = columns_for(width, min(4, len(ks)))
    places = [(row, k) for row in rows for k in ks]
    if columns < len(ks):  # on a narrow page a capacity's panels stand side by side, not a row's
        columns, places = columns_for(width, len(rows)), [(row, k) for k in ks for row in rows]
    groups = [0 if one_axis else row for row, _ in places]
    between = " " if width > 5 else "\n"
    title = f"{name[0].upper()}{name[1:]} over training"
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.7, width=width) as (figure, axes):
        drawn = set()
        for ax, (row, k) in zip(axes, places, strict=True):
            for label, look in looks.items():
                for name_of in rows[row]:
                    column = in_logarithms(name_of) if logarithmic else name_of
                    x, y = binned(found.members(label, k), column)
                    if len(x):
                        draw_spread(ax, found.members(label, k), column, look, fewest, shown)
                        ax.plot(x, shown(y), color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
                        drawn.add(label)
            say_same(ax, looks)
            if one_axis or row == list(rows)[-1]:
                level(ax, line)
            if logarithmic:
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            ax.set_title(f"{row},{between}K = {k}", loc="left")
            steps_axis(ax)
        label_edges(axes, columns, table.settings["unit"], unit)
        legend(figure, {label: look for label, look in looks.items() if label in drawn})
    return figure
