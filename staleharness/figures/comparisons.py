"""Comparisons of algorithms: probability of improvement, performance profiles, differences seed by seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import UserError, nearest
from ..statistics.bootstrap import LEVEL, REPS, mean_of_tasks, percentiles, resample, stable_seed
from ..statistics.method_labels import display_label
from ..statistics.results import Results
from ..statistics.scores import Array, final_score, normaliser_of
from ..statistics.significance_and_power import (
    ALPHA,
    Scores,
    compare_all_pairs,
    compare_with_baseline,
    f_ratio,
    final_scores,
    improvement_over,
)
from ..statistics.table import Table, has_intervals, has_small_samples
from ..store.run_grid import Cell, RunGrid
from .captions import axis, bars, interval, scale, seeds
from .curves_and_summary import summary_row
from .palette import Style, looks_of
from .plot_layout import COLUMN, INK, PAGE, columns_for, gid, label_edges, legend, panels, percent_axis, short_label
from .plot_marks import REFERENCE_LINE, dots, draw_line, highest_first, named_rows, row_axis
from .registry import FIGURES

POINTS = 101  # of a profile


@FIGURES.register("probability_of_improvement")
def probability_of_improvement(
    results: Results, table: Table, width: float = PAGE, *, baseline: str = "ppo_clip"
) -> Figure:
    """Chance that a run ends higher than a run of the baseline at the same capacity: one panel per capacity."""
    rows = improvement_over(results.grid, baseline, table.settings["score"])
    too_few = {(r["algorithm"], r["capacity"]) for r in table.rows if "dots" in r}
    bar = f"bars: {interval(table)}{', none where the runs are too few' if too_few else ''}"
    subtitle = (
        f"chance that a run scores higher than a run of {display_label(baseline)} at the same K, averaged over "
        f"environments; 0.5 is a draw; {seeds(results.grid)} seeds, "
        f"{bar if has_intervals(table) else 'too few for an interval'}; "
        f"{table.settings['measure']}, not normalised"
    )
    ks = table.settings["capacities"]
    last = {r["algorithm"]: r["probability"] for r in rows if r["capacity"] == ks[-1]}
    looks = highest_first({label: look for label, look in looks_of(table).items() if label != baseline}, last)
    title, height = f"Probability of improvement over {display_label(baseline)}", 0.5 + 0.17 * len(looks)
    with panels(title, subtitle, [0] * len(ks), table, width, height) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            estimates = {}
            for r in (r for r in rows if r["capacity"] == k):
                bare = not too_few.isdisjoint({(r["algorithm"], k), (baseline, k)})
                estimates[r["algorithm"]] = r["probability"], *((None, None) if bare else (r["low"], r["high"]))
            named_rows(ax, looks, estimates, width)
            ax.axvline(0.5, **REFERENCE_LINE)
            ax.set_xlim(-0.02, 1.02)
            ax.set_title(f"K = {k}", loc="left")
        label_edges(axes, "probability", "")
    return figure


@FIGURES.register("performance_profiles")
def performance_profiles(results: Results, table: Table, width: float = PAGE) -> Figure:
    """Share of runs whose final score exceeds τ, averaged over environments: one panel per capacity."""
    looks, ks, normalise = looks_of(table), table.settings["capacities"], normaliser_of(table)
    scores = defaultdict[tuple[str, int], list[Array]](list)  # (algorithm, K) -> normalised final scores by environment
    for cell, runs in results.grid.cells.items():
        finals = np.array([final_score(run, table.settings["score"]) for run in runs])
        scores[cell.label, cell.capacity].append(normalise(cell.env, finals))
    fewest = max(2, table.settings.get("fewest", 0))
    band = f"band: {table.settings['level']:.0%} pointwise stratified bootstrap interval"
    if has_small_samples(table):
        band = f"{band}, none where the runs are too few" if has_intervals(table) else "too few for an interval"
    n = f"{seeds(results.grid)} seeds"
    subtitle = f"share of runs that end above τ, averaged over environments ({n}), {band}; {scale(table)}"
    all_values = [x for tasks in scores.values() for x in np.concatenate(tasks)]
    taus = np.linspace(min(0.0, *all_values), max(1.0, *all_values), POINTS)
    with panels("Performance profiles", subtitle, [0] * len(ks), table, width, 1.9) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            for label, look in looks.items():
                if not (tasks := scores[label, k]):
                    continue
                if min(map(len, tasks)) >= fewest:
                    rng = np.random.default_rng(stable_seed("profile", label, k))
                    low, high = percentiles(profile(resample(tasks, REPS, rng), taus))
                    ax.fill_between(taus, low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid(look))
                draw_line(ax, look, taus, profile(tasks, taus))
            ax.set_title(f"K = {k}", loc="left")
            percent_axis(ax)
        label_edges(axes, f"{axis(table)} τ", "runs above τ")
        legend(figure, looks)
    return figure


def profile(tasks: Sequence[Array], taus: Array) -> Array:
    """Share of runs above each τ, averaged over tasks (Agarwal et al., 2021): [..., runs_t] -> [..., points]."""
    return np.asarray(np.mean([(t[..., :, None] > taus).mean(axis=-2) for t in tasks], axis=0))


@FIGURES.register("paired_differences")
def paired_differences(results: Results, table: Table, width: float = PAGE, *, baseline: str = "ppo_clip") -> Figure:
    """Score minus the baseline's, seed by seed (common random numbers): dots, and their mean with its interval."""
    grid, ks = results.grid, table.settings["capacities"]
    if baseline not in grid.labels:
        raise UserError(f"baseline={baseline!r} has no run; {nearest(baseline, grid.labels)}")
    looks = {label: look for label, look in looks_of(table).items() if label != baseline}
    last = {label: pairs(grid, table, label, baseline, ks[-1]) for label in looks}
    looks = highest_first(looks, {name: float(mean_of_tasks(*tasks)[0]) for name, tasks in last.items() if tasks})
    subtitle = (
        f"{axis(table)} minus that of {display_label(baseline)} with the same seed, environment and K: dots; upright "
        f"line: mean over environments and seeds ({seeds(grid)} seeds), {bars(table)} over pairs; {scale(table)}"
    )
    title, height = f"Differences from {display_label(baseline)}, seed by seed", 0.5 + 0.19 * len(looks)
    with panels(title, subtitle, [0] * len(ks), table, width, height) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            rows = {}
            for at, (label, look) in enumerate(looks.items()):
                tasks = pairs(grid, table, label, baseline, k)
                if not tasks:
                    continue
                row = summary_row(tasks, label, k, "paired", table.settings.get("fewest", 0))
                rows[label] = row["end"], row["end_low"], row["end_high"]
                dots(ax, at, np.concatenate(tasks).tolist(), look, across=True)
            named_rows(ax, looks, rows, width)
            ax.axvline(0, **REFERENCE_LINE)
            ax.set_title(f"K = {k}", loc="left")
            ax.xaxis.set_major_locator(MaxNLocator(5 if width > COLUMN else 4))
        label_edges(axes, "difference of scores", "")
    return figure


def pairs(grid: RunGrid, table: Table, label: str, baseline: str, k: int) -> list[Array]:
    """Differences of normalised final scores of the seeds that both have: [pairs] per environment."""
    normalise, score = normaliser_of(table), table.settings["score"]
    out = []
    for env in grid.envs:
        a, b = (
            {r.spec["seed"]: float(normalise(env, final_score(r, score))) for r in members}
            for members in (grid.cells.get(Cell(method, k, env), []) for method in (label, baseline))
        )
        if common_seeds := sorted(set(a) & set(b)):
            out.append(np.array([a[s] - b[s] for s in common_seeds]))
    return out


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
    """Final scores at one K (None: the largest), best method first: a dot per run, the mean, and the result of
    Welch's t-test against the baseline. One panel per environment; scores as they are.

    beside: a label that is shown and compared with the baseline like the others, but is no method of its own (the
    baseline without lag); it is left out where methods are compared with each other.
    """
    grid, looks, score = results.grid, looks_of(table), table.settings["score"]
    if baseline not in grid.labels:
        raise UserError(f"baseline={baseline!r} has no run; {nearest(baseline, grid.labels)}")
    k = max(grid.capacities) if k is None else k
    scores = {env: runs for env in grid.envs if baseline in (runs := final_scores(grid, k, env, score))}
    if not scores:
        raise UserError(f"k={k}: {baseline} has no run there")
    base = short_label(looks[baseline].name, width)
    at_k = RunGrid({cell: runs for cell, runs in grid.cells.items() if cell.capacity == k})
    of_panel = " of a panel" if len(scores) > 1 else ""
    subtitle = (
        f"K = {k}; dots: runs ({seeds(at_k)} seeds); upright line: mean; dotted: that of {base}. Bars: {LEVEL:.0%} "
        "Welch's interval of the difference from it, set at the mean, cut at the edge; full colour and bold: "
        f"Welch's t-test tells the two apart at {ALPHA:.0%}, after Holm's correction for all rows{of_panel}. "
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
    ratio = f_ratio(list(methods.values()))
    count = sum(d.significant for d in differences)
    spread = "all runs score the same" if np.isnan(ratio) else f"F = {ratio:.1f} between methods"
    text = f"{spread}; {count} of {len(differences)} pairs told apart after Holm's correction for all"
    if not differences:
        single = max(map(len, methods.values())) == 1
        text = "one run a method" if single else "no two methods have two runs each"
    return f"{env}: {text}" if env else text


def _rows(ax: Axes, scores: Scores, baseline: str, looks: dict[str, Style], width: float) -> None:
    means = {label: float(runs.mean()) for label, runs in scores.items()}
    order = sorted(means, key=lambda label: (-means[label], label))
    differences = {d.a: d for d in compare_with_baseline(scores, baseline)}
    ax.axvline(means[baseline], **REFERENCE_LINE)
    for at, label in enumerate(order):
        look = looks[label]
        if (d := differences.get(label)) is not None and d.low is not None and d.high is not None:
            ends = [means[label] + d.low - d.mean, means[label] + d.high - d.mean]
            alpha = 0.75 if d.significant else 0.25
            ax.barh(at, ends[1] - ends[0], left=ends[0], height=0.6, color=look.colour, alpha=alpha, gid=gid(look))
        runs = scores[label]
        pen: dict[str, Any] = {"color": look.colour, "markersize": 2.8, "markeredgewidth": 0.4}
        ax.plot(runs, np.full(len(runs), at), "o", markeredgecolor="white", gid=gid(look), **pen)
        ax.plot([means[label]] * 2, [at - 0.38, at + 0.38], color=INK, linewidth=1.4, gid=gid(look))
    all_values = np.concatenate(list(scores.values()))
    margin = 0.15 * float(np.ptp(all_values)) or 0.1  # intervals from few seeds would squeeze the runs
    ax.set_xlim(all_values.min() - margin, all_values.max() + margin)
    row_axis(ax, [short_label(looks[label].name, width) for label in order])
    for text, label in zip(ax.get_yticklabels(), order, strict=True):
        text.set_gid(gid(looks[label]))
        text.set_fontweight("bold" if label in differences and differences[label].significant else "normal")
    ax.xaxis.set_major_locator(MaxNLocator(6))
