"""One function per figure: from stored runs and their table to a matplotlib figure.

Every figure says in its second line what n is, which interval and which score it shows. Identical results
give identical bytes (`canvas.to_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..statistics.scores import metrics
from ..statistics.table import Table
from ..store.cells import grid
from ..store.store import StoredRun
from .canvas import INK, PAGE, columns_for, gid, label_edges, legend, names_at_ends, panels, shown, steps_axis
from .captions import axis, bars, looks_of, scale, seeds, size
from .curves import aggregate_curves, learning_curves
from .marks import points_against_capacity
from .over_training import BINS, binned
from .time import timed, where_the_time_goes

DIAGNOSTICS = {
    "tv_data": "TV of the data",
    "ess_data": "ESS of the data",
    "kl_k3_data": "KL (k3) of the data",
    "clipped": "clipped share",
}


def all_figures(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> dict[str, Figure]:
    """Every figure that these results can fill, by file name, in the order of the report."""
    if not runs:
        return {}
    made = {"learning_curves": learning_curves(runs, table, width)}
    if len(grid(runs).envs) > 1:
        made["aggregate_curves"] = aggregate_curves(runs, table, width)
    made["score_against_capacity"] = score_against_capacity(table, width)
    made["aggregate_scores"] = aggregate_scores(table, width)
    made["lag_histogram"] = lag_histogram(runs, table, width)
    made["staleness"] = staleness(runs, table, width)
    if timed(runs):
        made["where_the_time_goes"] = where_the_time_goes(runs, table, width)
    return made


def score_against_capacity(table: Table, width: float = PAGE, *, delay: bool = False) -> Figure:
    """Normalised IQM with its interval over the buffer capacity K (logarithmic): one line per algorithm.

    `delay`: the axis says by how many phases data are delayed, K − 1, of runs whose lag is `oldest`.
    """
    looks, ks = looks_of(table), table.settings["capacities"]
    title, height = f"Score against {'delay' if delay else 'buffer capacity'}", 2.6
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}"
    with panels(title, subtitle, [0], table=table, columns=1, height=height, width=width) as (figure, (ax,)):
        ends = points_against_capacity(ax, looks, table.rows, "iqm", ks)
        if delay:
            ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k - 1:g}"))
        x = "delay in phases (0 = on-policy)" if delay else "buffer capacity K (1 = on-policy)"
        label_edges([ax], 1, x, f"IQM of {axis(table)}")
        names_at_ends(ax, ends, looks, height)
    return figure


def aggregate_scores(table: Table, width: float = PAGE) -> Figure:
    """IQM, median, mean and optimality gap with intervals: one line per algorithm, grouped by capacity."""
    looks = looks_of(table)
    names = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap ↓"}
    place, lines = _lines(table, width)
    owner = {at: label for (label, _), at in place.items()}
    columns, height = 4 if width > 5 else 2, 0.5 + 0.155 * len(lines)
    title = "Aggregate scores"
    subtitle = f"{size(table)}, {bars(table)}; {scale(table)}; of the gap (↓), less is better"
    with panels(title, subtitle, [0] * 4, table=table, columns=columns, height=height, width=width) as (
        figure,
        axes,
    ):
        for ax, (name, heading) in zip(axes, names.items(), strict=True):
            for r in table.rows:
                look, at = looks[r["algorithm"]], place[r["algorithm"], r["capacity"]]
                if r[f"{name}_low"] is not None:
                    low, span = r[f"{name}_low"], r[f"{name}_high"] - r[f"{name}_low"]
                    ax.barh(at, span, left=low, height=0.66, color=look.colour, alpha=0.55, gid=gid(look))
                if r[name] is not None:
                    ax.plot([r[name]] * 2, [at - 0.42, at + 0.42], color=INK, linewidth=1.4, gid=gid(look))
            ax.set_title(heading, loc="left")
            ax.set_ylim(len(lines) - 0.4, -0.6)
            ax.grid(axis="y", visible=False)
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", length=0)
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.set_yticks(range(len(lines)), labels=lines)
            for at, text in enumerate(ax.get_yticklabels()):
                if (label := owner.get(at)) is None:
                    text.set_fontweight("bold")
                else:
                    text.set_gid(gid(looks[label]))
        label_edges(axes, columns, axis(table), "")
    return figure


def _lines(table: Table, width: float) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Where each (algorithm, capacity) stands among the lines of a chart with a heading per capacity."""
    place: dict[tuple[str, int], int] = {}
    lines: list[str] = []
    for k in table.settings["capacities"]:
        lines.append(f"K = {k}")
        for row in table.rows:
            if row["capacity"] == k:
                place[row["algorithm"], k] = len(lines)
                lines.append(shown(row["algorithm"], width))
    return place, lines


def lag_histogram(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """How stale the decisions really were: share of all decisions at each lag, one panel per capacity."""
    found = grid(runs)
    ks, rows = found.capacities, [r for r in table.rows if r["lag_mean"] is not None]
    lags = ", ".join(sorted({str(r.record["spec"].get("lag")) for r in runs}))
    means = [[r["lag_mean"] for r in rows if r["capacity"] == k] for k in ks]
    apart = max((max(m) - min(m) for m in means if m), default=0.0)
    subtitle = (
        "realised lag of every decision, pooled over environments, seeds and algorithms (whose means differ "
        f"by {apart:.2f} at most); red: mean; lag model: {lags}"
    )
    columns = columns_for(width, min(4, len(ks)))
    with panels("Lag histogram", subtitle, ks, table=table, columns=columns, height=1.75, width=width) as (
        figure,
        axes,
    ):
        for ax, k in zip(axes, ks, strict=True):
            total: dict[int, int] = {}
            for run in (r for c, rs in found.cells.items() if c.capacity == k for r in rs):
                for lag, decisions in run.record["lag_histogram"].items():
                    total[int(lag)] = total.get(int(lag), 0) + int(decisions)
            count = max(1, sum(total.values()))
            mean = sum(lag * n for lag, n in total.items()) / count
            ax.bar(list(total), [n / count for n in total.values()], width=0.8, color="#7A8FA6")
            ax.axvline(mean, color="#B3261E", linewidth=1)
            ax.set_title(f"K = {k}, mean lag {mean:.2f}", loc="left")
            ax.set_xlim(-0.6, max(*total, 3) + 0.6)
            ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            ax.grid(axis="x", visible=False)
        label_edges(axes, columns, "lag in phases", "share of decisions")
    return figure


def staleness(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """TV, ESS and KL of the data and the clipped share over training: a line per algorithm, a panel per
    capacity.
    """
    found, looks = grid(runs), looks_of(table)
    ks = found.capacities
    places = [(name, k) for name in DIAGNOSTICS for k in ks]
    columns = columns_for(width, len(ks) if len(ks) > 1 else 2)
    subtitle = (
        "data against the newest policy at the start of each phase; clipped share as the harness measures "
        f"it; mean over environments and seeds ({seeds(found)}), no interval; at most {BINS} bins"
    )
    title, groups = "Staleness over training", [name for name, _ in places]
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.45, width=width) as (
        figure,
        axes,
    ):
        for ax, (name, k) in zip(axes, places, strict=True):
            for label, look in looks.items():
                members = [
                    r for c, rs in found.cells.items() if (c.label, c.capacity) == (label, k) for r in rs
                ]
                x, y = binned([metrics(r) for r in members], name)
                ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
            ax.set_title(DIAGNOSTICS[name] + (f", K = {k}" if len(ks) > 1 else ""), loc="left")
            if name == "clipped":
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            ax.yaxis.set_major_locator(MaxNLocator(4))
            steps_axis(ax)
        label_edges(axes, columns, table.settings["unit"], "")
        legend(figure, looks)
    return figure
