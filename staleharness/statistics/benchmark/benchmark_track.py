"""Track of the leaderboard from a table of StaleBench."""

from __future__ import annotations

import numpy as np

from ..bootstrap import percentiles, pooled_iqm, resample, stable_seed
from ..leaderboard import CapacityResult, LeaderboardRow, ScoreEstimate, Track
from .benchmark_table import REFERENCE, REPS, USER, BenchmarkRow, BenchmarkTable
from .protocol import BASELINE, Protocol


def track_of(table: BenchmarkTable, protocol: Protocol) -> Track:
    """Return the table's rows in the form that the leaderboard's page shows. A method's score is the mean over the
    capacities of its IQMs; None while one of them has no runs."""
    controls = {control.name for control in protocol.controls}
    rows = []
    for method, source in table.methods:
        held = [row for row in table.rows if (row.method, row.source) == (method, source)]
        rows.append(
            LeaderboardRow(
                label=held[0].label if method in controls else method,
                score=_mean_score(held),
                capacities={row.capacity: _result(row, protocol, table.quick) for row in held},
                retention=_estimate(held[-1].retained, held[-1].retained_low, held[-1].retained_high),
                kind="control" if method in controls else "method" if source in (REFERENCE, USER) else "added",
                has_learned=not held[0].did_not_learn,
                cpus=tuple(sorted({cpu for row in held for cpu in row.cpus})),
                method=method.partition("[")[0] if method not in controls else method,
            )
        )
    about = f"{table.question} Score: area under the evaluation curve, 0 an untrained policy, 1 PPO-clip without lag."
    title = f"StaleBench {table.track} v{table.version}"
    return Track(
        table.track, title, about, table.envs, table.capacities, tuple(rows), protocol=table.digest, baseline=BASELINE
    )


def _result(row: BenchmarkRow, protocol: Protocol, quick: bool) -> CapacityResult:
    look = quick and row.source == USER
    return CapacityResult(
        score=_estimate(row.score, row.low, row.high),
        runs=row.scores,
        expected=row.n * len(protocol.env) if look else len(protocol.seeds) * len(protocol.env),
        learning_rate=None if row.rate is None else protocol.rate(row.rate),
        tv=row.tv,
        ess=row.ess,
        difference=_estimate(row.difference, row.difference_low, row.difference_high),
        p=row.holm,
    )


def _mean_score(rows: list[BenchmarkRow]) -> ScoreEstimate | None:
    """Mean over capacities of the IQM, with its bootstrap interval where each cell has two runs."""
    scores = [row.score for row in rows if row.score is not None]
    if len(scores) < len(rows):
        return None
    if min(row.n for row in rows) < 2:
        return ScoreEstimate(float(np.mean(scores)))
    rng = np.random.default_rng(stable_seed("stalebench mean", rows[0].track, rows[0].method))
    draws = np.mean([pooled_iqm(*resample(row.columns, REPS, rng)) for row in rows], axis=0)
    low, high = percentiles(draws[:, None])
    return ScoreEstimate(float(np.mean(scores)), float(low[0]), float(high[0]))


def _estimate(value: float | None, low: float | None, high: float | None) -> ScoreEstimate | None:
    return None if value is None else ScoreEstimate(value, low, high)
