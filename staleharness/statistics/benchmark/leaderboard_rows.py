"""Track of a leaderboard from the table of a protocol and its stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...base.parsing import parse_choice
from ...base.text_formatting import plural
from ...store.stored_run import StoredRun
from ..aggregate import MIN_RUNS
from ..bootstrap import REPS, percentiles, pooled_iqm, resample, stable_seed
from ..leaderboard_scores import CapacityResult, LeaderboardRow, ScoreEstimate, Track
from ..scores import Array, learning_curve
from .benchmark_row import COMPLETE, REFERENCE, USER, BenchmarkRow
from .benchmark_table import BenchmarkTable
from .protocol import BASELINE, MethodRuns, Protocol, runs_by_row

RunsByRow = Mapping[tuple[str, int], MethodRuns]  # as `runs_by_row` returns


def leaderboard_track(protocol: Protocol, table: BenchmarkTable, sources: Mapping[str, Iterable[StoredRun]]) -> Track:
    """Make the track: rows of the table that have runs, with the mean over K, and with curves and ids of these runs.

    sources: those that the table was made of.
    """
    names = (REFERENCE, COMPLETE, *(() if table.look else (USER,)))  # sources of rows that are no preview
    entry_runs_by_row = runs_by_row(protocol, [run for name in names for run in sources.get(name, ())])
    by_source = {name: runs_by_row(protocol, runs) for name, runs in sources.items() if name not in names}
    rows = []
    for method, source in table.methods:
        members = [row for row in table.rows if (row.method, row.source) == (method, source)]
        if any(row.scores or row.divergences for row in members):
            by_row = by_source[source] if members[0].kind in ("preview", "added") else entry_runs_by_row
            rows.append(_row(protocol, table, method, source, by_row))
    has_user_rows = any(
        row.source == USER and row.kind != "preview" and row.method in protocol.entries for row in table.rows
    )
    return Track(
        name=table.track,
        title=f"{table.track} v{table.version}",
        about=f"{table.question} {table.runs_done:,} of {table.runs_total:,} runs of the protocol, tuning "
        f"included, are published{' or yours' * has_user_rows}.{_rates_text(protocol, table)} Reported here:",
        envs=table.envs,
        ks=table.capacities,
        rows=tuple(rows),
        protocol=table.digest,
        baseline=BASELINE,
    )


def _rates_text(protocol: Protocol, table: BenchmarkTable) -> str:
    """Sentence on how often the best learning rate is the largest of the grid, where that is so for any method."""
    rates = [row.rate for row in table.rows if row.kind == "method" and row.rate is not None]
    n_largest = sum(rate == max(protocol.rates) for rate in rates)
    if not n_largest:
        return ""
    rows = f"{n_largest} of {plural(len(rates), 'row')} (a method at one K)"
    return f" In {rows} the best learning rate is the largest tried; a larger one could score higher."


def _row(protocol: Protocol, table: BenchmarkTable, method: str, source: str, by_row: RunsByRow) -> LeaderboardRow:
    by_k = {k: row for k in table.capacities if (row := table.row(method, k, source)) is not None}
    methods = protocol.entry_methods(method)
    title = protocol.title_of(method)
    kind = next(iter(by_k.values())).kind
    apart = kind in ("preview", "added")  # may stand beside a published row of the method
    last = by_k.get(table.capacities[-1])
    label = f"{title or method} ({source})" if apart else title or method
    if kind == "method" and any(row.divergences or row.missing for row in by_k.values()):
        kind = "diverged" if any(row.divergences for row in by_k.values()) else "partial"
    return LeaderboardRow(
        label=label,
        score=_mean_over_capacities(table, by_k),
        capacities={k: _result(protocol, table, row, by_row.get((methods[k], k))) for k, row in by_k.items()},
        retention=None if last is None else _estimate(last.retained, last.retained_low, last.retained_high),
        kind=kind,
        has_learned=not any(row.did_not_learn for row in by_k.values()),
        cpus=tuple(sorted({cpu for row in by_k.values() for cpu in row.cpus})),
        code=tuple(sorted({code for row in by_k.values() for code in row.code})),
        method=label if apart else method if title or method not in protocol.entries else parse_choice(method).name,
    )


def _mean_over_capacities(table: BenchmarkTable, by_k: dict[int, BenchmarkRow]) -> ScoreEstimate | None:
    """Mean of the scores at all capacities, with a bootstrap interval; None where one is missing. Seeds are drawn
    together for all capacities, since runs of a seed begin with the same policy at each."""
    rows = [by_k[k] for k in table.capacities if k in by_k]
    if len(rows) < len(table.capacities) or any(row.score is None for row in rows):
        return None
    value = float(np.mean([row.score for row in rows]))
    if min(row.n for row in rows) < MIN_RUNS:
        return ScoreEstimate(value)
    draws = []
    for row in rows:
        rng = np.random.default_rng(stable_seed("stalebench mean", row.track, row.method))
        draws.append(pooled_iqm(*resample(row.columns, REPS, rng)))
    low, high = percentiles(np.mean(draws, axis=0))
    return ScoreEstimate(value, float(low), float(high))


def _result(protocol: Protocol, table: BenchmarkTable, row: BenchmarkRow, members: MethodRuns | None) -> CapacityResult:
    by_env: dict[str, dict[int, StoredRun]] = {}
    if members is not None and row.rate is not None and row.scores:
        by_env = {env: dict(sorted(members.report.get((env, row.rate), {}).items())) for env in table.envs}
    all_runs = [run for by_seed in by_env.values() for run in by_seed.values()]
    lags = [lag for run in all_runs if (lag := run.record["summary"].get("lag_mean")) is not None]
    baseline = row.method == BASELINE
    return CapacityResult(
        score=_estimate(row.score, row.low, row.high),
        runs=row.scores,
        expected=(table.look if table.look and row.source == USER else table.seeds) * len(table.envs),
        lag=float(np.mean(lags)) if lags else None,
        learning_rate=None if row.rate is None else protocol.rate(row.rate),
        tv=row.tv,
        ess=row.ess,
        difference=None if baseline else _estimate(row.difference, row.difference_low, row.difference_high),
        p=None if baseline else row.holm,
        between_cpus=row.between_cpus,
        curve=mean_curve(all_runs, protocol.score, protocol.scale, float(protocol.settings["steps"])),
    )


def _estimate(value: float | None, low: float | None, high: float | None) -> ScoreEstimate | None:
    return None if value is None else ScoreEstimate(value, low, high)


def mean_curve(
    runs: Iterable[StoredRun], measure: str, scale: Callable[[str, Array], Array], budget: float | None = None
) -> tuple[tuple[float, float], ...]:
    """Mean learning curve over tasks and seeds, at shares of the budget.

    scale: environment, scores -> scaled scores. budget: steps; by default those of each run.
    """
    curves = []
    for run in runs:
        steps, values = learning_curve(run, measure)
        if len(steps) > 1:
            curves.append((steps / (budget or run.record["steps"]), scale(str(run.spec["env"]), values)))
    if not curves:
        return ()
    at = curves[0][0]
    heights = np.mean([np.interp(at, steps, values) for steps, values in curves], axis=0)
    return tuple((round(float(x), 4), round(float(y), 4)) for x, y in zip(at, heights, strict=True))
