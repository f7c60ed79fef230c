"""Comparisons of algorithms: probability of improvement, performance profiles, differences seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import UserError, nearest
from ..statistics.aggregate import improvement
from ..statistics.bootstrap import fast_interval, mean_of_tasks, percentiles, resample, stable_seed
from ..statistics.labels import display_label
from ..statistics.normalise import normaliser_of
from ..statistics.results import Results
from ..statistics.scores import Array, final_score
from ..statistics.single_runs import has_intervals, has_small_samples
from ..statistics.table import Table
from ..store.run_grid import Cell, RunGrid
from .captions import axis, bars, interval, looks_of, scale, seeds
from .marks import REFERENCE_LINE, dots, draw_line, highest_first, named_rows
from .plot_layout import COLUMN, PAGE, gid, label_edges, legend, panels, percent_axis
from .registry import FIGURES

REPS = 2000
POINTS = 101  # of a profile


@FIGURES.register("probability_of_improvement")
def probability_of_improvement(
    results: Results, table: Table, width: float = PAGE, *, baseline: str = "ppo_clip"
) -> Figure:
    """Chance that a run ends higher than a run of the baseline at the same capacity: one panel per capacity."""
    rows = improvement(results.grid, baseline, score=table.settings["score"], reps=REPS)
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
    looks, ks, scores = looks_of(table), table.settings["capacities"], all_scores(results.grid, table)
    fewest = max(2, table.settings.get("fewest", 0))
    band = f"band: {table.settings['level']:.0%} pointwise stratified bootstrap interval"
    if has_small_samples(table):
        band = f"{band}, none where the runs are too few" if has_intervals(table) else "too few for an interval"
    n = f"{seeds(results.grid)} seeds"
    subtitle = f"share of runs that end above τ, averaged over environments ({n}), {band}; {scale(table)}"
    everything = [x for tasks in scores.values() for x in np.concatenate(list(tasks.values()))]
    taus = np.linspace(min(0.0, *everything), max(1.0, *everything), POINTS)
    with panels("Performance profiles", subtitle, [0] * len(ks), table, width, 1.9) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            for label, look in looks.items():
                tasks = list(scores.get((label, k), {}).values())
                if not tasks:
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
        f"{axis(table)} minus that of {display_label(baseline)} with the same seed, environment and K: dots; black: "
        f"mean over environments and seeds ({seeds(grid)} seeds), {bars(table)} over pairs; {scale(table)}"
    )
    title, height = f"Differences from {display_label(baseline)}, seed by seed", 0.5 + 0.19 * len(looks)
    with panels(title, subtitle, [0] * len(ks), table, width, height) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            rows = {}
            for at, (label, look) in enumerate(looks.items()):
                tasks = pairs(grid, table, label, baseline, k)
                if not tasks:
                    continue
                low = high = None
                if min(map(len, tasks)) >= max(2, table.settings.get("fewest", 0)):
                    ends = fast_interval(mean_of_tasks, tasks, name=("paired", label, k), reps=REPS)
                    low, high = (float(e[0]) for e in ends)
                rows[label] = (float(mean_of_tasks(*tasks)[0]), low, high)
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
            for members in (grid.cells.get(Cell(who, k, env), []) for who in (label, baseline))
        )
        if both := sorted(set(a) & set(b)):
            out.append(np.array([a[s] - b[s] for s in both]))
    return out


def all_scores(grid: RunGrid, table: Table) -> dict[tuple[str, int], dict[str, Array]]:
    """{(algorithm, K): {environment: normalised final scores [runs]}}."""
    normalise, out = normaliser_of(table), dict[tuple[str, int], dict[str, Array]]()
    for cell, members in grid.cells.items():
        raw = np.array([final_score(r, table.settings["score"]) for r in members])
        out.setdefault((cell.label, cell.capacity), {})[cell.env] = normalise(cell.env, raw)
    return out
