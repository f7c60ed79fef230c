"""Paired tests against a baseline: methods in order of score, run by run, and their differences from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import UserError, nearest
from ..statistics.bootstrap import LEVEL
from ..statistics.power import ALPHA
from ..statistics.results import Results
from ..statistics.significance import Scores, compare_all_pairs, compare_with_baseline, f_ratio, scores_by_seed
from ..statistics.table import Table
from ..store.run_grid import RunGrid
from .captions import axis, looks_of, seeds
from .marks import REFERENCE_LINE, row_axis
from .palette import Style
from .plot_layout import INK, PAGE, columns_for, gid, panels, short_label
from .registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@FIGURES.register("told_apart")
def differences_from_baseline(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    baseline: str = "ppo_clip",
    beside: str = "",
    k: int | None = None,
) -> Figure:
    """Final scores at one K (None: the largest), best method first: a dot per run, the mean, and the result of a paired
    t-test against the baseline. One panel per environment; scores as they are.

    beside: a label that is shown and compared with the baseline like the others, but no method of its own (the baseline
    without lag): left out where methods are compared with each other.
    """
    grid, looks, score = results.grid, looks_of(table), table.settings["score"]
    if baseline not in grid.labels:
        raise UserError(f"baseline={baseline!r} has no run; {nearest(baseline, grid.labels)}")
    k = max(grid.capacities) if k is None else k
    scores = {env: runs for env in grid.envs if baseline in (runs := scores_by_seed(grid, k, env, score))}
    if not scores:
        raise UserError(f"k={k}: {baseline} has no run there")
    base = short_label(looks[baseline].name, width)
    at_k = RunGrid({cell: runs for cell, runs in grid.cells.items() if cell.capacity == k})
    of_panel = " of a panel" if len(scores) > 1 else ""
    subtitle = (
        f"K = {k}; dots: runs ({seeds(at_k)} seeds); black: mean; dotted line: that of {base}. Bars: {LEVEL:.0%} "
        "Student's interval of the difference from it, seed by seed, set at the mean, cut at the edge; dark and bold: "
        f"a paired t-test tells the two apart at {ALPHA:.0%}, after Holm's correction for all rows{of_panel}. "
        + "; ".join(spread_of(runs, beside, env if len(scores) > 1 else "") for env, runs in scores.items())
    )
    columns, height = columns_for(width, min(2, len(scores))), 0.5 + 0.165 * max(map(len, scores.values()))
    with panels("Methods told apart", subtitle, list(scores), table, width, height, columns) as (figure, axes):
        for ax, (env, runs) in zip(axes, scores.items(), strict=True):
            _rows(ax, runs, baseline, looks, width)
            ax.set_title(env, loc="left")
            ax.set_xlabel(axis(table) if table.settings["normalise"] == "raw" else str(table.settings["measure"]))
    return figure


def spread_of(scores: Scores, beside: str, env: str) -> str:
    """Spread of methods against that of seeds, in words."""
    methods = {label: runs for label, runs in scores.items() if label != beside}
    differences = compare_all_pairs(methods)
    ratio = f_ratio([np.array(list(runs.values())) for runs in methods.values()])
    count = sum(d.significant for d in differences)
    spread = "all runs score the same" if np.isnan(ratio) else f"F = {ratio:.1f} between methods"
    text = f"{spread}; {count} of {len(differences)} pairs told apart after Holm's correction for all"
    if not differences:
        single = max(map(len, methods.values())) == 1
        text = "one run a method" if single else "no two methods have two seeds in common"
    return f"{env}: {text}" if env else text


def _rows(ax: Axes, scores: Scores, baseline: str, looks: dict[str, Style], width: float) -> None:
    means = {label: float(np.mean(list(runs.values()))) for label, runs in scores.items()}
    order = sorted(means, key=lambda label: (-means[label], label))
    differences = {d.a: d for d in compare_with_baseline(scores, baseline)}
    ax.axvline(means[baseline], **REFERENCE_LINE)
    for at, label in enumerate(order):
        look = looks[label]
        if (d := differences.get(label)) is not None and d.low is not None and d.high is not None:
            ends = [means[label] + d.low - d.mean, means[label] + d.high - d.mean]
            alpha = 0.75 if d.significant else 0.25
            ax.barh(at, ends[1] - ends[0], left=ends[0], height=0.6, color=look.colour, alpha=alpha, gid=gid(look))
        runs = list(scores[label].values())
        pen: dict[str, Any] = {"color": look.colour, "markersize": 2.8, "markeredgewidth": 0.4}
        ax.plot(runs, np.full(len(runs), at), "o", markeredgecolor="white", gid=gid(look), **pen)
        ax.plot([means[label]] * 2, [at - 0.38, at + 0.38], color=INK, linewidth=1.4, gid=gid(look))
    everything = [x for runs in scores.values() for x in runs.values()]
    margin = 0.15 * (max(everything) - min(everything)) or 0.1  # intervals of few seeds would squeeze the runs
    ax.set_xlim(min(everything) - margin, max(everything) + margin)
    row_axis(ax, [short_label(looks[label].name, width) for label in order])
    for text, label in zip(ax.get_yticklabels(), order, strict=True):
        text.set_gid(gid(looks[label]))
        text.set_fontweight("bold" if label in differences and differences[label].significant else "normal")
    ax.xaxis.set_major_locator(MaxNLocator(6))
