"""What is reached, and in what time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import SECONDS, StoredRun
from .canvas import FAINT, INK, PAGE, panels, shown
from .captions import axis, iqm_axis, labels, machines, seeds, size
from .registry import FIGURES

RULE = "#E4E4E4"  # between the lines of a table
Cells = Callable[[str, int], tuple[str, str]]  # (method, K) -> a value, and what stands below it


@FIGURES.register("score_and_time")
def score_and_time(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Final score of each method by K, the time that its training took, and the share of that time that went into a
    proximal policy's own pass (where runs say so), as a table.

    Time is that of collecting and learning, without evaluation, of one run: mean over runs, and the least and the
    most of them.
    """
    found, names, ks = results.grid, labels(table), table.settings["capacities"]
    rows = {(r["algorithm"], r["capacity"]): r for r in table.rows if r["iqm"] is not None}
    seconds = {run.id: _spent(run, "collect", "learn") for run in results}
    unit, short = _clock_unit(max(seconds.values(), default=0.0))

    def over_runs(of: Callable[[str], float], digits: int) -> Cells:
        def cell(label: str, k: int) -> tuple[str, str]:
            values = [of(r.id) for r in found.members(label, k)]
            several = f"{min(values):.{digits}f} to {max(values):.{digits}f}" if len(values) > 1 else ""
            return f"{np.mean(values):.{digits}f}" if values else "–", several

        return cell

    def score(label: str, k: int) -> tuple[str, str]:
        row = rows.get((label, k))
        if row is None:
            return "–", ""
        there = row["iqm_low"] is not None
        return f"{row['iqm']:.3f}", f"{row['iqm_low']:.3f} to {row['iqm_high']:.3f}" if there else ""

    parts = {
        f"final {axis(table)}": score,
        f"training time, {short}": over_runs(lambda r: seconds[r] / unit, 2),
    }
    if all(run.column(SECONDS + "proximal") is not None for run in results):
        proximal = {run.id: _spent(run, "proximal") for run in results}
        parts["of it in the proximal step, %"] = over_runs(lambda r: 100 * proximal[r] / seconds[r], 1)
    cores = machines(results)
    subtitle = (
        f"final score: {iqm_axis(table)} over {size(table)}, {table.settings['level']:.0%} stratified bootstrap "
        "interval below; time: collecting and learning of one run, without evaluation, mean over runs "
        f"({seeds(found)}), range below. Time is that of the machine ({cores}) and of what else ran on it"
    )
    columns, height = len(parts) if width > 5 else 1, 0.45 + 0.34 * len(names)
    with panels(
        "Score and time", subtitle, [0] * len(parts), table=table, columns=columns, height=height, width=width
    ) as (figure, axes):
        for ax, (heading, cell) in zip(axes, parts.items(), strict=True):
            for y, label in enumerate(names):
                for x, k in enumerate(ks):
                    value, below = cell(label, k)
                    ax.text(x, y - 0.06, value, ha="center", va="bottom" if below else "center", fontsize=8)
                    ax.text(x, y + 0.06, below, ha="center", va="top", fontsize=5, color=FAINT)
                ax.axhline(y + 0.5, color=RULE, linewidth=0.5)
            ax.axhline(-0.5, color=INK, linewidth=0.8)
            ax.set(xlim=(-0.5, len(ks) - 0.5), ylim=(len(names) - 0.45, -0.55))
            ax.set_xticks(range(len(ks)), labels=[f"K = {k}" for k in ks])
            ax.set_yticks(range(len(names)), labels=[shown(label, width) for label in names])
            ax.set_title(heading, loc="left", pad=14)
            ax.xaxis.tick_top()
            ax.tick_params(length=0)
            ax.grid(visible=False)
            ax.spines[["left", "bottom"]].set_visible(False)
    return figure


def _spent(run: StoredRun, *parts: str) -> float:
    """Seconds of these parts of a run's phases."""
    columns = [c for part in parts if (c := run.column(SECONDS + part)) is not None]
    return float(np.nansum(np.sum(columns, axis=0)))


def _clock_unit(longest: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time is said."""
    return (3600.0, "hours") if longest >= 3600 else (60.0, "minutes") if longest >= 60 else (1.0, "seconds")
