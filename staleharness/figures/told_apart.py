"""Methods in order of score, run by run, and which of them differ from a baseline."""

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
from .canvas import FAINT, INK, PAGE, columns_for, gid, panels, shown
from .captions import axis, looks_of, seeds
from .palette import Style
from .registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@FIGURES.register("told_apart")
def told_apart(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    baseline: str = "ppo_clip",
    beside: str = "",
    k: int | None = None,
) -> Figure:
    """Final scores at one K (the largest), best method first: a dot per run, the mean, and whether a paired t-test
    tells the method from the baseline. One panel per environment; scores as they are.

    beside: a label that is shown and compared with the baseline like the others, but no method of its own (the baseline
    without lag): left out where methods are compared with each other.
    """
    found, looks, score = results.grid, looks_of(table), table.settings["score"]
    if baseline not in found.labels:
        raise UserError(f"baseline={baseline!r} has no run; {nearest(baseline, found.labels)}")
    k = max(found.capacities) if k is None else k
    scores = {env: held for env in found.envs if baseline in (held := scores_by_seed(found, k, env, score))}
    if not scores:
        raise UserError(f"k={k}: {baseline} has no run there")
    base = _name(baseline, looks, width)
    at_k = RunGrid({cell: runs for cell, runs in found.cells.items() if cell.capacity == k})
    of_panel = " of a panel" if len(scores) > 1 else ""
    subtitle = (
        f"K = {k}; dots: runs ({seeds(at_k)} seeds); black: mean; dotted line: that of {base}. Bars: {LEVEL:.0%} "
        "Student's interval of the difference from it, seed by seed, set at the mean, cut at the edge; dark and bold: "
        f"a paired t-test tells the two apart at {ALPHA:.0%}, after Holm's correction for all rows{of_panel}. "
        + "; ".join(spread_of(held, beside, env if len(scores) > 1 else "") for env, held in scores.items())
    )
    columns, most = columns_for(width, min(2, len(scores))), max(map(len, scores.values()))
    with panels(
        "Methods told apart",
        subtitle,
        list(scores),
        table=table,
        columns=columns,
        height=0.5 + 0.165 * most,
        width=width,
    ) as (figure, axes):
        for ax, (env, held) in zip(axes, scores.items(), strict=True):
            _rows(ax, held, baseline, looks, width)
            ax.set_title(env, loc="left")
            ax.set_xlabel(axis(table) if table.settings["normalise"] == "raw" else str(table.settings["measure"]))
    return figure


def spread_of(scores: Scores, beside: str, env: str) -> str:
    """How far methods lie apart against seeds, in words."""
    methods = {label: runs for label, runs in scores.items() if label != beside}
    made = compare_all_pairs(methods)
    ratio = f_ratio([np.array(list(runs.values())) for runs in methods.values()])
    told = sum(d.significant for d in made)
    spread = "all runs score the same" if np.isnan(ratio) else f"F = {ratio:.1f} between methods"
    text = f"{spread}; {told} of {len(made)} pairs told apart after Holm's correction for all"
    if not made:
        single = max(map(len, methods.values())) == 1
        text = "one run a method" if single else "no two methods have two seeds in common"
    return f"{env}: {text}" if env else text


def _rows(ax: Axes, scores: Scores, baseline: str, looks: dict[str, Style], width: float) -> None:
    means = {label: float(np.mean(list(runs.values()))) for label, runs in scores.items()}
    order = sorted(means, key=lambda label: (-means[label], label))
    compared = {d.a: d for d in compare_with_baseline(scores, baseline)}
    ax.axvline(means[baseline], color=FAINT, linewidth=0.8, linestyle=(0, (1, 2)))
    for at, label in enumerate(order):
        look = looks[label]
        if (d := compared.get(label)) is not None and d.low is not None and d.high is not None:
            ends = [means[label] + d.low - d.mean, means[label] + d.high - d.mean]
            alpha = 0.75 if d.significant else 0.25
            ax.barh(at, ends[1] - ends[0], left=ends[0], height=0.6, color=look.colour, alpha=alpha, gid=gid(look))
        runs = list(scores[label].values())
        pen: dict[str, Any] = {"color": look.colour, "markersize": 2.8, "markeredgewidth": 0.4}
        ax.plot(runs, np.full(len(runs), at), "o", markeredgecolor="white", gid=gid(look), **pen)
        ax.plot([means[label]] * 2, [at - 0.38, at + 0.38], color=INK, linewidth=1.4, gid=gid(look))
    everything = [x for runs in scores.values() for x in runs.values()]
    room = 0.15 * (max(everything) - min(everything)) or 0.1  # intervals of few seeds would squeeze the runs
    ax.set_xlim(min(everything) - room, max(everything) + room)
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_yticks(range(len(order)), labels=[_name(label, looks, width) for label in order])
    for text, label in zip(ax.get_yticklabels(), order, strict=True):
        text.set_gid(gid(looks[label]))
        text.set_fontweight("bold" if label in compared and compared[label].significant else "normal")
    ax.xaxis.set_major_locator(MaxNLocator(6))


def _name(label: str, looks: dict[str, Style], width: float) -> str:
    return shown(looks[label].name, width)
