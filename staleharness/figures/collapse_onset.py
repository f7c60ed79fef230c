"""Falls of the reward: metrics that warn of them, and the lags and option values at which they happen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import UserError
from ..statistics.claims.early_warning import SHARE, WINDOW, fall_of_reward, falls, largest_lag
from ..statistics.method_labels import option_values
from ..statistics.results import Results
from ..statistics.scores import final_score
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import run_facts, seeds
from .metric_curves import draw_metric
from .palette import Style, looks_of
from .plot_layout import PAGE, gid, legend, panels, short_label, steps_axis
from .registry import FIGURES, SHEETS
from .table_markup import Block, Sheet, SheetCell

BINS = 40  # of a column over training


@FIGURES.register("warning_before_fall")
def warning_before_fall(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    metric: str,
    name: str,
    share: float = 2 / 3,
    after: int = 0,
    window: int = 8,
) -> Figure:
    """Training reward, a column that may warn of its fall, and when each of the two fell, run by run.

    Either has fallen when its mean over the last `window` phases is below `share` of its best so far. The first
    `after` steps do not count: a column may be best there only because the data are not stale yet. All capacities of
    the table are in the same panels.
    """
    looks = looks_of(table)
    subtitle = (
        f"above: mean over environments and seeds ({seeds(results.grid)}) in at most {BINS} bins, no interval; below: "
        f"each run; ring: its {name}, disc: its reward is first below {share:.0%} of the best so far (means of "
        f"{window} phases, from step {after} on)"
    )
    title, groups = f"{name} before the reward falls", ["reward", "column", "runs"]
    with panels(title, subtitle, groups, table, width, 1.65, 1) as (figure, (reward, column, events)):
        runs = {label: [r for r in results if r.label == label] for label in looks}
        for ax, curve, heading in ((reward, "reward", "training reward"), (column, metric, name)):
            draw_metric(ax, looks, runs.__getitem__, [curve], bins=BINS)
            steps_axis(ax)
            ax.yaxis.set_major_locator(MaxNLocator(4))
            ax.set_title(heading, loc="left")
            ax.set_ylim(0)
        for at, (label, look) in enumerate(looks.items()):
            for i, run in enumerate(sorted(runs[label], key=lambda r: int(r.spec["seed"]))):
                height = at + 0.6 * ((i + 0.5) / len(runs[label]) - 0.5)
                _event_line(events, look, height, falls(run, metric, share, after, window))
        events.set_ylim(len(looks) - 0.4, -0.6)
        if width < PAGE:  # names beside the rows would take half of the panels' width
            events.set_yticks([])
            legend(figure, looks)
        else:
            names = [short_label(look.name or label, width) for label, look in looks.items()]
            ticks = events.set_yticks(range(len(looks)), labels=names)
            for tick, look in zip(ticks, looks.values(), strict=True):
                tick.label1.set(color=look.colour, fontweight="bold", gid=gid(look))
        events.tick_params(axis="y", length=0)
        events.set_title("when they fell, run by run", loc="left")
        events.set_xlim(reward.get_xlim())
        steps_axis(events)
        events.set_xlabel(table.settings["unit"])
    return figure


def _event_line(ax: Axes, look: Style, height: float, steps: tuple[float, float]) -> None:
    """Draw a ring and a disc at two steps, joined; a step that is NaN is left out."""
    ax.plot(steps, [height] * 2, color=look.colour, linewidth=0.8, gid=gid(look))
    for x, face in zip(steps, ("white", look.colour), strict=True):
        pen: dict[str, Any] = {"markerfacecolor": face, "markersize": 3.2, "markeredgewidth": 0.9}
        ax.plot([x], [height], "o", color=look.colour, gid=gid(look), **pen)


@SHEETS.register("collapse")
def collapse(results: Results, table: Table, *, option: str, name: str = "") -> Sheet:
    """Final score and time of the fall of the reward, by the option's value (greatest on top) and lag S; and for stale
    data the product of time, S and value, a lower bound if some of the runs never fell."""
    values = option_values(results, option)
    if texts := [value for value in values.values() if not isinstance(value, int | float)]:
        raise UserError(f"option={option!r} has the value {texts[0]!r}; this table multiplies it and needs numbers")
    cells: dict[tuple[float, int], list[StoredRun]] = {}
    for run in sorted((run for run in results if run.label in values), key=lambda run: run.seed):
        cells.setdefault((float(values[run.label]), largest_lag(run)), []).append(run)
    rates = sorted({rate for rate, _ in cells}, reverse=True)
    lags = sorted({lag for _, lag in cells})
    score = table.settings["score"]

    def final(rate: float, lag: int) -> SheetCell:
        runs = cells.get((rate, lag), [])
        if not runs:
            return SheetCell("–")
        mean = float(np.mean([final_score(run, score) for run in runs]))
        return SheetCell(f"{mean:.2f}", _fall_times(runs), min(1.0, max(0.0, mean)))

    def product(rate: float, lag: int) -> SheetCell:
        times = [fall_of_reward(run) for run in cells.get((rate, lag), [])]
        if np.isnan(times).all():
            return SheetCell("–")
        bound = "> " if np.isnan(times).any() else ""
        return SheetCell(f"{bound}{np.nanmean(times) * lag * rate:.2g}")

    corner, stale = name or option, [lag for lag in lags if lag]
    finals = [(f"{rate:g}", [final(rate, lag) for lag in lags]) for rate in rates]
    products = [(f"{rate:g}", [product(rate, lag) for lag in stale]) for rate in rates]
    blocks = [
        Block(f"Final {table.settings['measure']}", corner, [f"S = {lag}" for lag in lags], finals),
        Block(f"Time of the fall × S × {corner}", corner, [f"S = {lag}" for lag in stale], products),
    ]
    about = (
        f"mean over seeds ({seeds(results.grid)}), no interval, and the {table.settings['unit']} at which the "
        f"reward of each run fell: a mean of {WINDOW} phases below {SHARE:.0%} of the best so far; >: the mean of "
        "those that fell, where others never did (–); S: the lag once the buffer is full"
    )
    return Sheet("Learning rate and lag", [about, run_facts(table)], blocks, table.draft)


def _fall_times(runs: Sequence[StoredRun]) -> str:
    """`(fell at 16, 23)`; `(fell at 40, –)`."""
    times = [fall_of_reward(run) for run in runs]
    if all(map(math.isnan, times)):
        return "(never fell)"
    return f"(fell at {', '.join('–' if math.isnan(t) else f'{t:.0f}' for t in times)})"
