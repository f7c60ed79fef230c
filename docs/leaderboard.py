"""The leaderboard, docs/leaderboard.md and docs/leaderboard.html, from published runs.

Until the runs of a protocol are published (`results/reference/stalebench_v1_<track>`), its rules for scores are applied
to an earlier study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from staleharness.base.text import markdown_table
from staleharness.figures.leaderboard_plot import draw_tracks
from staleharness.figures.plot_layout import COLUMN, PAGE, reduce_colours, to_bytes
from staleharness.pages.leaderboard_page import MethodText, leaderboard_html, p_text, robustness, run_count
from staleharness.pages.paper_summary import picture, picture_file
from staleharness.statistics.benchmark.benchmark_row import REFERENCE
from staleharness.statistics.benchmark.benchmark_table import benchmark_table
from staleharness.statistics.benchmark.protocol import read_protocol
from staleharness.statistics.benchmark.track_rows import leaderboard_track
from staleharness.statistics.bootstrap import iqm, percentiles, resample, stable_seed
from staleharness.statistics.labels import display_label
from staleharness.statistics.leaderboard import CapacityResult, Leaderboard, LeaderboardRow, ScoreEstimate, Track
from staleharness.statistics.order_agreement import order_agreement
from staleharness.statistics.power import ALPHA
from staleharness.statistics.results import Results, load
from staleharness.statistics.retention import random_returns
from staleharness.statistics.scores import Array, learning_curve, resolve_auto, score_before_training
from staleharness.statistics.significance import holm
from staleharness.statistics.t_intervals import t_p_value, t_reach
from staleharness.store.flat_columns import curve_area
from staleharness.store.store import MARKER
from staleharness.store.stored_run import StoredRun

MOST_ROWS = 30  # of the table in Markdown
HEAD = """<!-- Made by docs/generate.py (`make docs`) from the bundles of results/reference. -->

# Leaderboard

Methods under policy lag: K is the capacity of the policy buffer, and K = 1 is synchronous training. A score is the area
under the evaluation curve, 0 for a random policy and 1 for PPO-clip without lag; IQM over tasks and seeds, mean over K,
with 95 % bootstrap intervals. "Less PPO-clip" is a difference of means at the largest K, bold where Welch's test tells
it from 0 at 5 % after Holm's correction over the rows. **[The whole leaderboard](leaderboard.html)** is one file to
open in a browser: it sorts and filters, and has every method's formula, curves and runs.
"""
TAIL = """[Which corrections survive](corrections.md) tests each study by its own rules;
[staleness budgets](staleness_budgets.md) has what each method keeps at each lag.
"""
EARLIER: dict[str, tuple[str, str, dict[str, str]]] = {  # track -> study, its settings, names of labels on all tracks
    "control": (
        "vaco_control",
        "HalfCheetah, Hopper and Walker2d; 100 phases of 16 × 128 steps, lag uniform, published defaults, five seeds.",
        {},
    ),
    "tokens": (
        "stress_lags",
        "word-problems, a model of 90k parameters; 64 optimiser steps in 32 phases, lag oldest, one learning rate, "
        "five seeds.",
        {"vaco[delta=0.05]": "vaco"},
    ),
}
BASELINE = "ppo_clip"
LEARNED = 0.5  # share of the baseline's score at the smallest K that a method has to reach
REPS = 2000  # bootstrap resamples
Columns = dict[str, Array]  # environment -> score of each run, on the scale of the track


def earlier_track(results: Results, name: str, title: str, about: str, names: Mapping[str, str] | None = None) -> Track:
    """Track of a study that is older than the protocol: its runs, scored by the protocol's rules.

    A run's score is the area under its evaluation curve less a random policy's return, over the mean of the baseline's
    at the smallest K. A method's score is the IQM over environments and seeds, with a stratified bootstrap interval.
    `names`: label -> name of the method on all tracks.
    """
    grid = results.grid
    measure, _ = resolve_auto(results, "auto", "auto")
    envs, ks = grid.envs, grid.capacities
    random = random_returns(envs, measure)
    zero = {env: (score_before_training(grid, env, measure) or (random.get(env, 0.0), 0.0))[0] for env in envs}
    areas = {
        cell: {run.id: area for run in runs if (area := curve_area(run, measure)) is not None}
        for cell, runs in grid.cells.items()
    }
    top = {
        cell.env: float(np.mean(list(by_id.values()))) - zero[cell.env]
        for cell, by_id in areas.items()
        if (cell.label, cell.capacity) == (BASELINE, ks[0])
    }
    scores: dict[str, dict[int, dict[str, dict[str, float]]]] = {label: {k: {} for k in ks} for label in grid.labels}
    for cell, by_id in areas.items():
        scaled = {run: (area - zero[cell.env]) / top[cell.env] for run, area in by_id.items()}
        scores[cell.label][cell.capacity][cell.env] = scaled
    differences = {k: _against_baseline({x: _columns(scores[x][k]) for x in scores}) for k in ks}
    seeds = len({run.seed for run in results})
    rows = []
    for label, by_k in scores.items():
        draws = {k: _bootstrap(_columns(runs), (name, label, k)) for k, runs in by_k.items() if len(runs) == len(envs)}
        capacities = {
            k: CapacityResult(
                score=_estimate(*draws[k]) if k in draws else None,
                runs=runs,
                expected=seeds * len(envs),
                **_means(grid.members(label, k)),
                difference=differences[k].get(label, (None, None))[0],
                p=differences[k].get(label, (None, None))[1],
                curve=_mean_curve(grid.members(label, k), measure, zero, top),
            )
            for k, runs in by_k.items()
        }
        whole = len(draws) == len(ks)
        value, spread = np.mean([v for v, _ in draws.values()]), np.mean([r for _, r in draws.values()], axis=0)
        fresh, stale = draws.get(ks[0]), draws.get(ks[-1])
        rows.append(
            LeaderboardRow(
                label=label,
                method=(names or {}).get(label, ""),
                score=_estimate(float(value), spread) if whole else None,
                capacities=capacities,
                retention=_estimate(stale[0] / fresh[0], stale[1] / fresh[1]) if fresh and stale else None,
                has_learned=fresh is not None and fresh[0] >= LEARNED,
                cpus=tuple(
                    sorted({str(r.record["fingerprint"].get("cpu", "")) for k in ks for r in grid.members(label, k)})
                ),
            )
        )
    return Track(name, title, about, tuple(envs), tuple(ks), tuple(rows), baseline=BASELINE)


def _columns(runs: Mapping[str, Mapping[str, float]]) -> Columns:
    return {env: np.array(list(by_id.values())) for env, by_id in runs.items()}


def _bootstrap(columns: Columns, name: tuple[object, ...]) -> tuple[float, Array]:
    """IQM over the runs of all environments, and its resamples [REPS]."""
    rng = np.random.default_rng(stable_seed("leaderboard", *name))
    draws = np.concatenate(resample(list(columns.values()), REPS, rng), axis=-1)
    return float(iqm(np.concatenate(list(columns.values())))), iqm(draws)


def _estimate(value: float, replicates: Array) -> ScoreEstimate:
    low, high = percentiles(replicates[:, None])
    return ScoreEstimate(value, float(low[0]), float(high[0]))


def _against_baseline(columns: Mapping[str, Columns]) -> dict[str, tuple[ScoreEstimate, float]]:
    """Difference of each method from the baseline and p after Holm's correction (Welch, mean over environments)."""
    base, found = columns[BASELINE], {}
    for label, own in columns.items():
        if label == BASELINE or own.keys() != base.keys():
            continue
        value = float(np.mean([own[env].mean() - base[env].mean() for env in base]))
        sides = [side[env] for env in base for side in (own, base)]
        variances = np.array([side.var(ddof=1) / len(side) for side in sides]) / len(base) ** 2
        reach = float(t_reach(variances, [len(side) for side in sides]))
        p = t_p_value(value, variances, [len(side) for side in sides]) if reach else 1.0
        found[label] = ScoreEstimate(value, value - reach, value + reach), p
    corrected = holm([p for _, p in found.values()])
    return {label: (e, float(p)) for (label, (e, _)), p in zip(found.items(), corrected, strict=True)}


def _means(runs: Sequence[StoredRun]) -> dict[str, float | None]:
    """Means over runs of lag, learning rate, distance of the data and effective sample size."""

    def mean(*names: str) -> float | None:
        values = [s[name] for s in (run.record["summary"] for run in runs) for name in names if name in s]
        return float(np.mean(values)) if values else None

    rates = {run.spec.get("learning_rate") for run in runs}
    rate = rates.pop() if len(rates) == 1 else None
    return {"lag": mean("lag_mean"), "tv": mean("tv_data"), "ess": mean("ess_data"), "learning_rate": rate}


def _mean_curve(
    runs: Sequence[StoredRun], measure: str, zero: Mapping[str, float], top: Mapping[str, float]
) -> tuple[tuple[float, float], ...]:
    """Mean learning curve over environments and seeds, on the scale of the track, at shares of training."""
    curves = []
    for run in runs:
        steps, values = learning_curve(run, measure)
        env = str(run.spec["env"])
        if len(steps) > 1:
            curves.append((steps / run.record["steps"], (values - zero[env]) / top[env]))
    if not curves:
        return ()
    at = curves[0][0]
    heights = np.mean([np.interp(at, steps, values) for steps, values in curves], axis=0)
    return tuple((round(float(x), 4), round(float(y), 4)) for x, y in zip(at, heights, strict=True))


def protocol_track(folder: Path, name: str) -> tuple[Track | None, str]:
    """Track from the published runs of its protocol, None while under half of them is there; and what is, in words."""
    protocol = read_protocol(name)
    bundle = folder / protocol.name
    runs = list(load(bundle)) if (bundle / MARKER).is_file() else []
    sources = {REFERENCE: runs}
    table = benchmark_table(protocol, sources)
    track = leaderboard_track(protocol, table, sources)
    words = (
        f"{name} v{protocol.version}: {table.runs_done:,} of {table.runs_total:,} runs of the protocol are published"
    )
    shown = track.ranking and 2 * table.runs_done >= table.runs_total
    return (track if shown else None), words


def board(folder: Path) -> Leaderboard:
    """All tracks of the leaderboard, from the folder of bundles; earlier studies where a protocol has no runs."""
    tracks, notes = [], []
    for name in ("control", "tokens", "paper"):
        track, words = protocol_track(folder, name)
        if track is None and name in EARLIER:
            study, about, names = EARLIER[name]
            track = earlier_track(load(folder / study), name, f"{name} (earlier study {study})", about, names)
            words += f"; until then its place is taken by {study}, whose data only grow old in the course of a run"
        tracks += [track] if track is not None else []
        notes.append(f"{words}.")
    if all(not track.protocol for track in tracks):
        other = earlier_track(load(folder / "corrections_word_problems", k=16), "", "", "", EARLIER["tokens"][2])
        scores = ({r.name: r.capacities[16].score.value for r in t.rows} for t in (tracks[1], other))  # type: ignore[union-attr]
        both = order_agreement(*scores)
        assert both is not None
        notes.append(
            "On tokens the order is that of one setting. With uniform lag and larger steps (corrections_word_problems) "
            f"that of the {both.methods} methods at K = 16 agrees with it by τ = {both.tau:.2f} ({p_text(both.p)})."
        )
    return Leaderboard("StaleBench v1", tuple(tracks), tuple(notes))


def markdown(board: Leaderboard) -> str:
    """Page of the leaderboard as Markdown: picture, one table of all tracks, and how far its order can be trusted."""
    names = sorted({row.name for track in board.tracks for row in track.ranking}, key=lambda name: _place(board, name))
    head = ["method"]
    for track in board.tracks:
        head += [f"{track.name}: #", "score", f"K = {track.ks[-1]}", f"less {display_label(track.baseline)}", "kept"]
    rows = [[display_label(name), *(c for t in board.tracks for c in _cells(t, name))] for name in names[:MOST_ROWS]]
    parts = [HEAD, *(f"{note}\n" for note in board.notes), picture("Score against K, by track", "leaderboard"), ""]
    parts += [f"- **{track.title}**: {track.about} {run_count(*track.runs)}." for track in board.tracks]
    parts += ["", markdown_table(head, rows), ""]
    parts += [f"{len(names) - MOST_ROWS} more rows are on the page.\n"] if len(names) > MOST_ROWS else []
    for track in board.tracks:
        if apart := ", ".join(display_label(row.label) for row in track.apart if not row.has_learned):
            parts.append(f"Below half of PPO-clip's score at K = {track.ks[0]} on {track.name}: {apart}.\n")
    parts += ["## Would the order come out again?", "", *(f"- {line}" for line in robustness(board)), "", TAIL]
    return "\n".join(parts)


def _place(board: Leaderboard, name: str) -> tuple[int, float, str]:
    """Sort key: methods on most tracks first, then by their mean score."""
    scores = [row.score.value for track in board.tracks for row in track.ranking if row.name == name and row.score]
    return -len(scores), -float(np.mean(scores)), name


def _cells(track: Track, name: str) -> list[str]:
    for place, row in enumerate(track.ranking, 1):
        if row.name == name:
            last = row.capacities[track.ks[-1]]
            gap = last.difference
            difference = "" if gap is None else f"{gap.value:+.2f}".replace("-", "−")
            if last.p is not None and last.p < ALPHA:
                difference = f"**{difference}**"
            kept = "–" if row.retention is None else f"{row.retention.value:.0%}"
            return [str(place), _interval(row.score), _interval(last.score), difference, kept]
    return [""] * 5


def _interval(estimate: ScoreEstimate | None) -> str:
    if estimate is None:
        return "–"
    ends = "" if estimate.low is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{ends}".replace("-", "−")


def write(folder: Path, published: Path, texts: Mapping[str, MethodText]) -> None:
    """Write leaderboard.md, its picture in two widths, and leaderboard.html into a folder."""
    tracks = board(published)
    for form, width in (("wide", PAGE), ("narrow", COLUMN)):
        png = reduce_colours(to_bytes(draw_tracks(tracks, width), "png"))
        (folder / picture_file("leaderboard", form)).write_bytes(png)
    (folder / "leaderboard.html").write_text(leaderboard_html(tracks, texts), encoding="utf-8")
    (folder / "leaderboard.md").write_text(markdown(tracks), encoding="utf-8")
