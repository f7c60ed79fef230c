"""One function per figure: from stored runs and their table to a matplotlib figure.

Every figure says in its second line what n is, which interval and which score it shows. Identical results
give identical bytes (`canvas.to_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from .bootstrap import curve_band
from .canvas import INK, PAGE, columns_for, gid, label_edges, legend, names_at_ends, panels, shown, steps_axis
from .palette import Style, styles
from .scores import Array, Cell, Grid, Normaliser, grid, learning_curve, metrics
from .store import StoredRun
from .tables import Table, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_REPS = 2000
BINS = 100  # of a diagnostic over training
DIAGNOSTICS = {
    "tv_data": "TV of the data",
    "ess_data": "ESS of the data",
    "kl_k3_data": "KL (k3) of the data",
    "clipped": "clipped share",
}
Curve = tuple[Array, Array]  # environment steps [points], value [points]


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
    return made


def learning_curves(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Return of the newest policy over training: one panel per environment and capacity, IQM over seeds."""
    found, score = grid(runs), table.settings["score"]

    def tasks_of(label: str, env: str, k: int) -> list[list[Curve]]:
        return [[learning_curve(r, score) for r in found.cells.get(Cell(label, k, env), [])]]

    titles = {(env, k): f"{env}, K = {k}" for env in found.envs for k in found.capacities}
    subtitle = f"{score} returns of the newest policy, IQM over seeds ({_seeds(found)}), {_band(table)}"
    return _curve_panels("Learning curves", subtitle, "return", table, titles, tasks_of, width)


def aggregate_curves(runs: Sequence[StoredRun], table: Table, width: float = PAGE) -> Figure:
    """Normalised score over training, IQM over all environments and seeds: one panel per capacity."""
    found, s = grid(runs), table.settings
    low, high = ({env: ends[i] for env, ends in s["constants"].items()} for i in (0, 1))
    scale = Normaliser(s["normalise"], low, high, s["constants_note"])

    def tasks_of(label: str, _: str, k: int) -> list[list[Curve]]:
        tasks = []
        for cell, members in found.cells.items():
            if (cell.label, cell.capacity) == (label, k):
                raw = [learning_curve(r, s["score"]) for r in members]
                tasks.append([(x, scale(cell.env, y)) for x, y in raw])
        return tasks

    over = f"{len(found.envs)} environments"
    titles = {("all", k): f"{over}, K = {k}" for k in found.capacities}
    subtitle = f"IQM over {over} and seeds ({_seeds(found)}), {_band(table)}; {_scale(table)}"
    return _curve_panels("Score over training", subtitle, "normalised score", table, titles, tasks_of, width)


def _curve_panels(
    title: str, subtitle: str, y: str, table: Table, titles: Mapping[tuple[str, int], str],
    tasks_of: Callable[[str, str, int], list[list[Curve]]], width: float,
) -> Figure:  # fmt: skip
    """A panel per (environment, capacity), a line per algorithm: its curves by task, as IQM and band."""
    looks, envs = styles(_labels(table)), [env for env, _ in titles]
    count, per_env = len(titles), envs.count(envs[0])
    wanted = per_env if 1 < per_env <= 4 else count if count <= 4 else 3
    columns, height = columns_for(width, wanted), 2.9 if count == 1 else 1.75
    with panels(title, subtitle, envs, columns=columns, height=height, width=width) as (figure, axes):
        for ax, ((env, k), name) in zip(axes, titles.items(), strict=True):
            if env in table.settings["envs"]:
                ax.set_gid(f"panel-{table.settings['envs'].index(env)}")
            ends = []
            for label, look in looks.items():
                tasks = [t for t in tasks_of(label, env, k) if t and all(len(x) for x, _ in t)]
                if tasks:
                    ends.append((label, *_curve(ax, tasks, ("curve", label, env, k), look)))
            ax.set_title(name, loc="left")
            steps_axis(ax)
            if count == 1:
                names_at_ends(ax, ends, looks, height)
        label_edges(axes, columns, "environment steps", y)
        if count > 1:
            legend(figure, looks)
    return figure


def _curve(ax: Axes, tasks: list[list[Curve]], name: tuple[Any, ...], look: Style) -> tuple[float, float]:
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


def score_against_capacity(table: Table, width: float = PAGE) -> Figure:
    """Normalised IQM with its interval over the buffer capacity K (logarithmic): one line per algorithm."""
    looks, ks = styles(_labels(table)), table.settings["capacities"]
    title, height = "Score against buffer capacity", 2.6
    subtitle = f"IQM over {_n(table)}, {_bars(table)}; {_scale(table)}"
    with panels(title, subtitle, [0], columns=1, height=height, width=width) as (figure, (ax,)):
        ends = []
        for label, look in looks.items():
            rows = [r for r in table.rows if r["algorithm"] == label and r["iqm"] is not None]
            # Side by side, so that intervals at the same K do not hide each other.
            x = [r["capacity"] * 2 ** (0.03 * (look.index - (len(looks) - 1) / 2)) for r in rows]
            y = [r["iqm"] for r in rows]
            for xi, r in zip(x, rows, strict=True):
                if r["iqm_low"] is not None:
                    bar = [r["iqm_low"], r["iqm_high"]]
                    ax.plot([xi, xi], bar, color=look.colour, linewidth=2.2, alpha=0.35, gid=gid(look))
            ax.plot(
                x, y, color=look.colour, dashes=look.dashes, gid=gid(look),
                marker=look.marker, markersize=5.5, markeredgecolor="white", markeredgewidth=0.5,
            )  # fmt: skip
            if rows:
                ends.append((label, x[-1], y[-1]))
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(ks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        margin = 0.03 * len(looks) / 2 + (0.15 if len(ks) > 1 else 0.02)  # in doublings
        ax.set_xlim(min(ks) / 2**margin, max(ks) * 2**margin)
        label_edges([ax], 1, "buffer capacity K (1 = on-policy)", "normalised IQM")
        names_at_ends(ax, ends, looks, height)
    return figure


def aggregate_scores(table: Table, width: float = PAGE) -> Figure:
    """IQM, median, mean and optimality gap with intervals: one line per algorithm, grouped by capacity."""
    looks = styles(_labels(table))
    names = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap ↓"}
    place, lines = _lines(table)
    columns, height = 4 if width > 5 else 2, 0.5 + 0.155 * len(lines)
    title = "Aggregate scores"
    subtitle = f"{_n(table)}, {_bars(table)}; {_scale(table)}; of the gap (↓), less is better"
    with panels(title, subtitle, [0] * 4, columns=columns, height=height, width=width) as (figure, axes):
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
            for text in ax.get_yticklabels():
                text.set_fontweight("bold" if text.get_text().startswith("K = ") else "normal")
        label_edges(axes, columns, "normalised score", "")
    return figure


def _lines(table: Table) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Where each (algorithm, capacity) stands among the lines of a chart with a heading per capacity."""
    place: dict[tuple[str, int], int] = {}
    lines: list[str] = []
    for k in table.settings["capacities"]:
        lines.append(f"K = {k}")
        for row in table.rows:
            if row["capacity"] == k:
                place[row["algorithm"], k] = len(lines)
                lines.append(shown(row["algorithm"]))
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
    with panels("Lag histogram", subtitle, ks, columns=columns, height=1.75, width=width) as (figure, axes):
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
    found, looks = grid(runs), styles(_labels(table))
    ks = found.capacities
    places = [(name, k) for name in DIAGNOSTICS for k in ks]
    columns = columns_for(width, len(ks) if len(ks) > 1 else 2)
    subtitle = (
        "data against the newest policy at the start of each phase; clipped share as the harness measures "
        f"it; mean over environments and seeds ({_seeds(found)}), no interval; at most {BINS} bins"
    )
    title, groups = "Staleness over training", [name for name, _ in places]
    with panels(title, subtitle, groups, columns=columns, height=1.45, width=width) as (figure, axes):
        for ax, (name, k) in zip(axes, places, strict=True):
            for label, look in looks.items():
                members = [
                    r for c, rs in found.cells.items() if (c.label, c.capacity) == (label, k) for r in rs
                ]
                x, y = _binned([metrics(r) for r in members], name)
                ax.plot(x, y, color=look.colour, dashes=look.dashes, linewidth=1, gid=gid(look))
            ax.set_title(DIAGNOSTICS[name] + (f", K = {k}" if len(ks) > 1 else ""), loc="left")
            if name == "clipped":
                ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
            ax.yaxis.set_major_locator(MaxNLocator(4))
            steps_axis(ax)
        label_edges(axes, columns, "environment steps", "")
        legend(figure, looks)
    return figure


def _binned(frames: Sequence[Any], name: str) -> Curve:
    """Mean of a column over runs and within bins of equally many phases: ([bins], [bins])."""
    x = np.concatenate([np.empty(0), *(f["steps"].to_numpy(np.float64) for f in frames)])
    y = np.concatenate([np.empty(0), *(f[name].to_numpy(np.float64) for f in frames)])
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    phases = np.unique(x)
    bins = min(len(phases), BINS)
    index = np.searchsorted(phases, x) * bins // max(1, len(phases))
    weight = np.bincount(index, minlength=bins)
    return np.bincount(index, x, bins) / weight, np.bincount(index, y, bins) / weight


# --- what a subtitle says


def _labels(table: Table) -> list[str]:
    return sorted({r["algorithm"] for r in table.rows})


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return f"{low}" if low == high else f"{low} to {high}"


def _seeds(found: Grid) -> str:
    return f"n = {_span([len(rs) for rs in found.cells.values()])}"


def _n(table: Table) -> str:
    there = [r for r in table.rows if r["n_runs"]]
    runs, tasks = ([r[c] for r in there] for c in ("n_runs", "n_tasks"))
    missing = sum(r["missing"] for r in table.rows)
    text = f"n = {_span(runs)} {'run' if set(runs) == {1} else 'runs'} × "
    text += f"{_span(tasks)} {'task' if set(tasks) == {1} else 'tasks'}"
    return text + (f" ({plural(missing, 'run')} missing)" if missing else "")


def _band(table: Table) -> str:
    return f"band: {table.settings['level']:.0%} pointwise bootstrap interval"


def _bars(table: Table) -> str:
    return f"bars: {table.settings['level']:.0%} stratified bootstrap interval"


def _scale(table: Table) -> str:
    s = table.settings
    return f"{s['score']} returns, normalised: {s['normalise']}"
