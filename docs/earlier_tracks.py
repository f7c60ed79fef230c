"""Tracks of the leaderboard from studies that are older than its protocol, scored by the protocol's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from staleharness.statistics.benchmark.leaderboard_rows import mean_curve
from staleharness.statistics.benchmark.protocol import BASELINE, LEARNT
from staleharness.statistics.bootstrap import REPS, percentiles, pooled_iqm, resample, stable_seed
from staleharness.statistics.leaderboard_scores import CapacityResult, LeaderboardRow, ScoreEstimate, Track
from staleharness.statistics.results import Results
from staleharness.statistics.scores import Array, random_returns, resolve_auto, score_before_training
from staleharness.statistics.significance_and_power import holm_of_results, results_key
from staleharness.statistics.t_tests_and_intervals import welch
from staleharness.store.bundle_runs_table import curve_area
from staleharness.store.stored_run import StoredRun

EARLIER: dict[str, tuple[str, str]] = {  # track -> study, its settings
    "paper": (
        "vaco_ratio",
        "HalfCheetah, Hopper and Walker2d at the ratios of VACO's paper: 200 phases of 320 gradient steps, "
        "uniform lag, published defaults, five seeds.",
    )
}
TOKEN_NAMES = {"vaco[delta=0.05]": "vaco"}  # labels of the earlier studies on tokens -> names on all tracks
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
    draws_of = {
        label: {k: _bootstrap(_columns(runs), (name, label, k)) for k, runs in by_k.items() if len(runs) == len(envs)}
        for label, by_k in scores.items()
    }
    learned = [label for label, draws in draws_of.items() if ks[0] in draws and draws[ks[0]][0] >= LEARNT]
    differences = {k: _against_baseline({label: _columns(scores[label][k]) for label in learned}) for k in ks}
    seeds = len({run.seed for run in results})
    rows = []
    for label, by_k in scores.items():
        draws = draws_of[label]
        capacities = {
            k: CapacityResult(
                score=_estimate(*draws[k]) if k in draws else None,
                runs=runs,
                expected=seeds * len(envs),
                **_means(grid.members(label, k)),
                difference=differences[k].get(label, (None, None))[0],
                p=differences[k].get(label, (None, None))[1],
                between_cpus=False,
                curve=mean_curve(grid.members(label, k), measure, lambda env, x: (x - zero[env]) / top[env]),
            )
            for k, runs in by_k.items()
        }
        whole = len(draws) == len(ks)
        value, replicates = np.mean([v for v, _ in draws.values()]), np.mean([r for _, r in draws.values()], axis=0)
        fresh, stale = draws.get(ks[0]), draws.get(ks[-1])
        rows.append(
            LeaderboardRow(
                label=label,
                method=(names or {}).get(label, ""),
                score=_estimate(float(value), replicates) if whole else None,
                capacities=capacities,
                retention=_estimate(stale[0] / fresh[0], stale[1] / fresh[1]) if fresh and stale else None,
                has_learned=label in learned,
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
    runs = list(columns.values())
    return float(pooled_iqm(*runs)), pooled_iqm(*resample(runs, REPS, rng))


def _estimate(value: float, replicates: Array) -> ScoreEstimate:
    low, high = percentiles(replicates)
    return ScoreEstimate(value, float(low), float(high))


def _against_baseline(columns: Mapping[str, Columns]) -> dict[str, tuple[ScoreEstimate, float]]:
    """Difference of each method from the baseline and p after Holm's correction (Welch, mean over environments).

    Methods with the baseline's results have neither.
    """
    base = columns[BASELINE]
    sides = {
        label: ([own[env] for env in base], [base[env] for env in base])
        for label, own in columns.items()
        if label != BASELINE and own.keys() == base.keys()
    }
    sides = {label: pair for label, pair in sides.items() if results_key(pair[0]) != results_key(pair[1])}
    tests = {label: welch(*pair) for label, pair in sides.items()}
    p_holm = holm_of_results(
        [test.p for test in tests.values()], [(results_key(own), results_key(base)) for own, base in sides.values()]
    )
    estimates = {label: ScoreEstimate(test.value, test.low, test.high) for label, test in tests.items()}
    return {label: (estimate, p) for (label, estimate), p in zip(estimates.items(), p_holm, strict=True)}


def _means(runs: Sequence[StoredRun]) -> dict[str, float | None]:
    """Means over runs of lag, learning rate, distance of the data and effective sample size."""

    def mean(*names: str) -> float | None:
        values = [s[name] for s in (run.record["summary"] for run in runs) for name in names if name in s]
        return float(np.mean(values)) if values else None

    rates = {run.spec.get("learning_rate") for run in runs}
    rate = rates.pop() if len(rates) == 1 else None
    return {"lag": mean("lag_mean"), "tv": mean("tv_data"), "ess": mean("ess_data"), "learning_rate": rate}
