"""Row of StaleBench's table: a method at one capacity, its score, what it lost to lag, and its tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...store.stored_run import StoredRun
from ..aggregate import MIN_RUNS
from ..bootstrap import REPS, percentiles, pooled_iqm, resample, rliable_interval, stable_seed
from ..scores import Array
from ..significance_and_power import ALPHA, detectable_difference, holm_of_results, results_key
from ..t_tests_and_intervals import welch
from .protocol import BASELINE, LEARNT, Protocol, area_of

REFERENCE, USER = "reference", "yours"  # sources of runs; others are the names of third parties' bundles
COMPLETE = "complete"  # source of complete rows of the user's folder other than the one asked for; they are `yours` too


@dataclass(frozen=True)
class BenchmarkRow:
    """A method at one capacity of a track. None: not known (yet).

    Scores are areas under the evaluation curve on the protocol's scale: 0 an untrained policy, 1 PPO-clip at K = 1.
    """

    method: str  # label, or the name of a width control
    label: str  # as readers see it
    track: str
    capacity: int  # K
    source: str  # `reference`, `yours`, or the name of a third party's bundle
    n: int = 0  # reported runs of each environment, the fewest
    missing: int = 0  # runs that the protocol asks for and that are absent, including those of the ladder
    divergences: int = 0  # reported seeds on which a run diverged, or all if it did at every rate; then no score
    gaps: tuple[float, ...] = ()  # factors that the ladder left out: a run diverged there, or is not in the bundle
    score: float | None = None  # IQM over runs and environments, with its interval (bootstrap; `MIN_RUNS` runs or more)
    low: float | None = None
    high: float | None = None
    retained: float | None = None  # share of the row's own score at K = 1, with its bootstrap interval
    retained_low: float | None = None
    retained_high: float | None = None
    loss_p: float | None = None  # Welch: as high as the method's own score at K = 1
    difference: float | None = None  # of means, from PPO-clip at this K, with Welch's interval
    difference_low: float | None = None
    difference_high: float | None = None
    p: float | None = None  # Welch: no difference from PPO-clip
    holm: float | None = None  # the same, corrected over the rows of this K that learnt
    equals_baseline: bool = False  # the same results as PPO-clip at this K: one computation, which has no test
    detectable: float | None = None  # difference from PPO-clip that the corrected test sees with 80 % power
    # D_TV of the learner from the policies that acted, and effective sample size over n: means over the budget, on
    # tokens of all gradient steps, on control of the ends of the phases
    tv: float | None = None
    ess: float | None = None
    rate: float | None = None  # factor of the learning rate that the ladder chose
    did_not_learn: bool = False  # below half of PPO-clip's score at K = 1 without lag
    cpus: tuple[str, ...] = ()  # kinds of processor that made the runs
    between_cpus: bool = False  # of the difference: PPO-clip's runs are of other kinds of processor
    code: tuple[str, ...] = ()  # hashes of the method's code, as the runs recorded them
    kind: str = "method"  # or `control`, `preview` (a look) or `added` (of a third party's bundle), which have no rank
    scores: Mapping[str, Any] = field(default_factory=dict)  # environment -> run id -> score of each reported run

    @property
    def columns(self) -> list[Array]:
        """Scores [runs] of each environment."""
        return [np.array(list(self.scores[env].values()), dtype=np.float64) for env in sorted(self.scores)]


def with_scores(
    protocol: Protocol, row: BenchmarkRow, by_env: Sequence[Mapping[int, StoredRun]], fresh: BenchmarkRow | None
) -> BenchmarkRow:
    """Fill in the scores of a row. fresh: the method's row at the smallest capacity; None where that is this row."""
    runs = [run for by_seed in by_env for run in by_seed.values()]
    scores = {
        env: {by_seed[seed].id: area_of(protocol, by_seed[seed]) for seed in sorted(by_seed)}
        for env, by_seed in zip(protocol.env, by_env, strict=True)
    }
    cpus = tuple(sorted({str(run.record["fingerprint"].get("cpu", "")) for run in runs} - {""}))
    code = tuple(sorted({run.code for run in runs} - {""}))
    tv, ess = _mean_of(runs, "tv", "tv_end"), _mean_of(runs, "ess", "ess_end")
    row = replace(row, scores=scores, cpus=cpus, code=code, tv=tv, ess=ess)
    row = replace(row, score=float(pooled_iqm(*row.columns)))
    if row.n >= MIN_RUNS:
        name = ("stalebench", row.track, row.method, row.capacity)
        low, high = rliable_interval(lambda *c: pooled_iqm(*c)[..., None], row.columns, name=name, reps=REPS)
        row = replace(row, low=float(low[0]), high=float(high[0]))
    return row if fresh is None else _with_loss(row, fresh)


def _mean_of(runs: Sequence[StoredRun], *names: str) -> float | None:
    """Mean over runs of the first of these metrics that a run has, itself a mean over the budget; None where no run has
    any."""
    summaries = [run.record["summary"] for run in runs]
    means = [next((s[name] for name in names if s.get(name) is not None), None) for s in summaries]
    values = [mean for mean in means if mean is not None]
    return float(np.mean(values)) if values else None


def _with_loss(row: BenchmarkRow, fresh: BenchmarkRow) -> BenchmarkRow:
    """Fill in the share of the score without lag that is retained."""
    if not fresh.score or fresh.score <= 0 or row.score is None:
        return row
    row = replace(row, retained=row.score / fresh.score)
    if min(row.n, fresh.n) < 2:
        return row
    row = replace(row, loss_p=welch(row.columns, fresh.columns).p)
    if min(row.n, fresh.n) < MIN_RUNS:
        return row
    rng = np.random.default_rng(stable_seed("stalebench retained", row.track, row.method, row.capacity))
    top, bottom = (pooled_iqm(*resample(cell.columns, REPS, rng)) for cell in (row, fresh))
    low, high = percentiles(top / bottom)
    return replace(row, retained_low=float(low), retained_high=float(high))


def with_tests(rows: Sequence[BenchmarkRow]) -> list[BenchmarkRow]:
    """Fill in what follows from other rows: which methods did not learn, and the tests against the baseline."""
    base = {row.capacity: row for row in rows if row.method == BASELINE and row.source in (REFERENCE, USER)}
    base |= {row.capacity: row for row in rows if row.method == BASELINE and row.source == REFERENCE}
    limit = (base[1].score if 1 in base else None) or 0.0
    poor = {
        (row.method, row.source)
        for row in rows
        if row.capacity == 1 and row.score is not None and row.score < LEARNT * limit
    }
    out = [replace(row, did_not_learn=(row.method, row.source) in poor) for row in rows]
    out = [_against(row, base.get(row.capacity)) for row in out]
    for k in base:
        places = [i for i, r in enumerate(out) if r.capacity == k and r.p is not None and not r.did_not_learn]
        out = _with_holm(out, places, base[k])
        if len(rest := [i for i in places if out[i].kind != "preview"]) < len(places):
            out = _with_holm(out, rest, base[k])  # a preview is corrected among all rows, and changes no other's p
    return out


def _with_holm(rows: Sequence[BenchmarkRow], places: Sequence[int], base: BenchmarkRow) -> list[BenchmarkRow]:
    """Fill in the corrected tests of the rows at these places, one family."""
    out = list(rows)
    sides = [(results_key(out[i].columns), BASELINE) for i in places]
    p_holm = holm_of_results([out[i].p or 0.0 for i in places], sides)
    open_tests = {frozenset(pair) for pair, p in zip(sides, p_holm, strict=True) if p >= ALPHA}
    level = ALPHA / max(1, len(open_tests))  # Holm's, of the next difference to become significant
    for i, p in zip(places, p_holm, strict=True):
        test = welch(out[i].columns, base.columns)
        out[i] = replace(out[i], holm=p, detectable=detectable_difference(test, level))
    return out


def _against(row: BenchmarkRow, base: BenchmarkRow | None) -> BenchmarkRow:
    """Fill in Welch's test against the baseline at the same capacity, unless they have the same results."""
    if base is None or (row.method, row.source) == (base.method, base.source) or min(row.n, base.n) < 2:
        return row
    if row.score is None or base.score is None:  # it diverged
        return row
    if results_key(row.columns) == results_key(base.columns):
        return replace(row, equals_baseline=True)
    test = welch(row.columns, base.columns)
    return replace(
        row,
        difference=test.value,
        difference_low=test.low,
        difference_high=test.high,
        p=test.p,
        between_cpus=row.cpus != base.cpus,
    )
