"""Table of StaleBench: one row per method and capacity of a track, from stored runs alone.

`BenchmarkTable` is all that a page or a verdict shows; `benchmark_table` makes it, `to_json` and `from_json` store it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ...base.parsing import build
from ...errors import UserError
from ...store.stored_run import StoredRun
from ..aggregate import area
from ..bootstrap import percentiles, pooled_iqm, resample, rliable_interval, stable_seed
from ..labels import display_label
from ..power import detectable_effect, spread
from ..scores import Array
from ..significance import holm
from ..t_intervals import welch
from .protocol import BASELINE, LEARNT, Protocol, method_of

REPS = 2000  # bootstrap resamples
REFERENCE, USER = "reference", "yours"  # sources of runs; others are the names of third parties' bundles
LOOK_SEEDS = 2  # of a quick look, at the first learning rate


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
    missing: int = 0  # runs that the protocol asks for and that are not there, those of the ladder included
    score: float | None = None  # IQM over runs and environments, with its stratified bootstrap interval
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
    detectable: float | None = None  # difference from PPO-clip that so many runs see with 80 % power
    tv: float | None = None  # D_TV of the learner from the policies that acted, over all gradient steps of the budget
    ess: float | None = None  # effective sample size over n, the same
    rate: float | None = None  # factor of the learning rate that the ladder chose
    did_not_learn: bool = False  # below half of PPO-clip's score at K = 1 without lag
    cpus: tuple[str, ...] = ()  # kinds of processor that made the runs
    scores: Mapping[str, Any] = field(default_factory=dict)  # environment -> run id -> score of each reported run

    @property
    def columns(self) -> list[Array]:
        """Scores [runs] of each environment."""
        return [np.array(list(self.scores[env].values()), dtype=np.float64) for env in sorted(self.scores)]


@dataclass(frozen=True)
class BenchmarkTable:
    """All rows of a track, with what a reader must know of the protocol."""

    track: str
    version: int
    digest: str  # of the protocol
    question: str
    envs: tuple[str, ...]
    capacities: tuple[int, ...]
    seeds: int  # reported runs of each environment that the protocol asks for
    rows: tuple[BenchmarkRow, ...]
    runs_done: int  # published runs that are there
    runs_total: int  # and those that the protocol asks for
    quick: bool = False  # a look with few seeds at one rate, which is no result
    notes: tuple[str, ...] = ()

    def row(self, method: str, capacity: int, source: str | None = None) -> BenchmarkRow | None:
        """Return the row of a method, of any source unless one is given."""
        for row in self.rows:
            if (row.method, row.capacity) == (method, capacity) and source in (None, row.source):
                return row
        return None

    @property
    def methods(self) -> list[tuple[str, str]]:
        """(method, source) of all rows: learnt ones by their score at the largest capacity, then the others."""
        keys = dict.fromkeys((row.method, row.source) for row in self.rows)
        order = {
            (row.method, row.source): (row.did_not_learn, row.score is None, -(row.score or 0.0))
            for row in self.rows
            if row.capacity == self.capacities[-1]
        }
        return sorted(keys, key=lambda key: order.get(key, (True, True, 0.0)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BenchmarkTable:
        return build(cls, content, "benchmark table")


@dataclass
class MethodRuns:
    """Runs of one row, by their place: (environment, factor of the rate) -> seed -> run."""

    tuning: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)
    report: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)


def choose_rate(areas: Mapping[float, Sequence[float]]) -> float:
    """Return the factor of the rate with the highest mean over its tuning runs; the one nearest to 1 on a tie."""
    return max(areas, key=lambda factor: (np.mean(areas[factor]), -abs(np.log(factor))))


def chosen_rate(protocol: Protocol, runs: MethodRuns, gaps: bool = False) -> float | None:
    """Return the step of the ladder that a method takes at one capacity; None while a tuning run is missing.

    gaps: choose among the rates whose tuning runs are all there. A rate at which a run diverged has none.
    """
    areas: dict[float, list[float]] = {}
    for factor in protocol.rates:
        held = [runs.tuning.get((env, factor), {}) for env in protocol.env]
        if all(len(each) == len(protocol.tuning_seeds) for each in held):
            areas[factor] = [area_of(protocol, run) for each in held for run in each.values()]
    complete = len(areas) == len(protocol.rates) or (gaps and areas)
    return choose_rate(areas) if complete else None


def area_of(protocol: Protocol, run: StoredRun) -> float:
    """Mean height of a run's evaluation curve on the protocol's scale."""
    return area(run, protocol.scale, protocol.score)


def runs_by_row(protocol: Protocol, runs: Iterable[StoredRun]) -> dict[tuple[str, int], MethodRuns]:
    """Sort runs by (label without the learning rate, capacity). Runs outside the protocol are left out. Raises
    `UserError` where two runs claim one place."""
    rows: dict[tuple[str, int], MethodRuns] = {}
    for run in runs:
        if (place := protocol.place_of(run)) is None:
            continue
        members = rows.setdefault((method_of(run), place.capacity), MethodRuns())
        group = members.tuning if place.tuning else members.report
        seeds = group.setdefault((place.env, place.factor), {})
        if (other := seeds.setdefault(place.seed, run)).id != run.id:
            raise UserError(
                f"runs {other.id} and {run.id} are both {run.label} on {place.env} at K={place.capacity}, seed "
                f"{place.seed}: its plugin was changed in between; leave one of them out"
            )
    return rows


def benchmark_table(
    protocol: Protocol,
    sources: Mapping[str, Iterable[StoredRun]],
    *,
    quick: bool = False,
    notes: Sequence[str] = (),
    gaps: bool = False,
) -> BenchmarkTable:
    """Make the table of a track. sources: name -> runs, of which `reference` and `yours` make the same rows.

    quick: `yours` are a look, with `LOOK_SEEDS` seeds at the first rate.
    gaps: of `yours`, rates at which a run diverged are left out of the ladder.
    """
    reference = list(sources.get(REFERENCE, ()))
    ids = {run.id for run in reference}
    user_runs = [run for run in sources.get(USER, ()) if run.id not in ids]
    rows: list[BenchmarkRow] = []
    published_rows, user_rows = (
        runs_by_row(protocol, [*reference, *([] if quick else user_runs)]),
        runs_by_row(protocol, user_runs),
    )
    for name in protocol.entries:
        methods = protocol.entry_methods(name)
        is_users = any((text, k) in user_rows for k, text in methods.items()) and not quick
        rows += _rows(protocol, name, USER if is_users else REFERENCE, published_rows, gaps=gaps and is_users)
    labels = {text for name in protocol.entries for text in protocol.entry_methods(name).values()}
    for label in dict.fromkeys(label for label, _ in user_rows):
        if quick or label not in labels:
            rows += _rows(protocol, label, USER, user_rows, quick=quick, gaps=gaps)
    for source in [name for name in sources if name not in (REFERENCE, USER)]:
        bundle_rows = runs_by_row(protocol, sources[source])
        for label in dict.fromkeys(label for label, _ in bundle_rows):
            rows += _rows(protocol, label, source, bundle_rows, gaps=True)
    sources_of_rows = (REFERENCE,) if quick else (REFERENCE, USER)
    published = [row for row in rows if row.method in protocol.entries and row.source in sources_of_rows]
    runs_total = runs_asked(protocol) * len(protocol.entries)
    return BenchmarkTable(
        track=protocol.track,
        version=protocol.version,
        digest=protocol.digest,
        question=protocol.question,
        envs=protocol.env,
        capacities=protocol.capacity,
        seeds=len(protocol.seeds),
        rows=tuple(_with_tests(rows)),
        runs_done=runs_total - sum(row.missing for row in published),
        runs_total=runs_total,
        quick=quick,
        notes=tuple(notes),
    )


def runs_asked(protocol: Protocol, quick: bool = False) -> int:
    """Number of runs of one method, those of the ladder included."""
    each = LOOK_SEEDS if quick else len(protocol.seeds) + len(protocol.rates) * len(protocol.tuning_seeds)
    return each * len(protocol.env) * len(protocol.capacity)


def _rows(
    protocol: Protocol,
    name: str,
    source: str,
    held: Mapping[tuple[str, int], MethodRuns],
    quick: bool = False,
    gaps: bool = False,
) -> list[BenchmarkRow]:
    """Return the rows of one method at every capacity, without what follows from other methods."""
    rows: list[BenchmarkRow] = []
    for k, text in protocol.entry_methods(name).items():
        members = held.get((text, k), MethodRuns())
        rate = 1.0 if quick else chosen_rate(protocol, members, gaps)
        by_env = [{} if rate is None else members.report.get((env, rate), {}) for env in protocol.env]
        tuning_runs = sum(map(len, members.tuning.values()))
        asked = runs_asked(protocol, quick) // len(protocol.capacity)
        row = BenchmarkRow(
            method=name,
            label=protocol.title_of(name) or display_label(name),
            track=protocol.track,
            capacity=k,
            source=source,
            n=min(map(len, by_env)),
            missing=max(0, asked - sum(map(len, by_env)) - (0 if quick else tuning_runs)),
            rate=rate,
        )
        if row.n:
            rows.append(_with_scores(protocol, row, by_env, rows[0] if rows else None))
        else:
            rows.append(row)
    return rows


def _with_scores(
    protocol: Protocol, row: BenchmarkRow, by_env: Sequence[Mapping[int, StoredRun]], fresh: BenchmarkRow | None
) -> BenchmarkRow:
    """Fill in the scores of a row. fresh: the method's row at the smallest capacity; None where that is this row."""
    runs = [run for each in by_env for run in each.values()]
    scores = {
        env: {each[seed].id: area_of(protocol, each[seed]) for seed in sorted(each)}
        for env, each in zip(protocol.env, by_env, strict=True)
    }
    cpus = tuple(sorted({str(run.record["fingerprint"].get("cpu", "")) for run in runs} - {""}))
    row = replace(row, scores=scores, cpus=cpus, tv=_mean_of(runs, "tv"), ess=_mean_of(runs, "ess"))
    columns = row.columns
    row = replace(row, score=float(pooled_iqm(*columns)))
    if row.n >= 2:
        name = ("stalebench", row.track, row.method, row.capacity)
        low, high = rliable_interval(lambda *c: pooled_iqm(*c)[..., None], columns, name=name, reps=REPS)
        row = replace(row, low=float(low[0]), high=float(high[0]))
    return row if fresh is None else _with_loss(row, fresh)


def _mean_of(runs: Sequence[StoredRun], name: str) -> float | None:
    """Mean of a metric's means over the budget of runs; None where no run has it."""
    values = [value for run in runs if (value := run.record["summary"].get(name)) is not None]
    return float(np.mean(values)) if values else None


def _with_loss(row: BenchmarkRow, fresh: BenchmarkRow) -> BenchmarkRow:
    """Fill in the share of the score without lag that is retained."""
    if not fresh.score or fresh.score <= 0 or row.score is None:
        return row
    row = replace(row, retained=row.score / fresh.score)
    if min(row.n, fresh.n) < 2:
        return row
    rng = np.random.default_rng(stable_seed("stalebench retained", row.track, row.method, row.capacity))
    top, bottom = (pooled_iqm(*resample(each.columns, REPS, rng)) for each in (row, fresh))
    low, high = percentiles((top / bottom)[:, None])
    p = welch(row.columns, fresh.columns).p
    return replace(row, retained_low=float(low[0]), retained_high=float(high[0]), loss_p=p)


def _with_tests(rows: Sequence[BenchmarkRow]) -> list[BenchmarkRow]:
    """Fill in what follows from other rows: who did not learn, and the tests against the baseline."""
    base = {row.capacity: row for row in rows if row.method == BASELINE and row.source in (REFERENCE, USER)}
    base |= {row.capacity: row for row in rows if row.method == BASELINE and row.source == REFERENCE}
    fresh = min(base, default=None)
    limit = base[fresh].score if fresh is not None else None
    poor = {
        (row.method, row.source)
        for row in rows
        if row.capacity == fresh and None not in (limit, row.score) and row.score < LEARNT * limit  # type: ignore
    }
    out = [replace(row, did_not_learn=(row.method, row.source) in poor) for row in rows]
    out = [_against(row, base.get(row.capacity)) for row in out]
    for k in base:
        places = [i for i, r in enumerate(out) if r.capacity == k and r.p is not None and not r.did_not_learn]
        for i, p in zip(places, holm([out[i].p or 0.0 for i in places]), strict=True):
            out[i] = replace(out[i], holm=float(p))
    return out


def _against(row: BenchmarkRow, base: BenchmarkRow | None) -> BenchmarkRow:
    """Fill in Welch's test against the baseline at the same capacity."""
    if base is None or (row.method, row.source) == (base.method, base.source) or min(row.n, base.n) < 2:
        return row
    test, tasks = welch(row.columns, base.columns), len(row.columns)
    effect = detectable_effect(min(row.n, base.n)) * spread([*row.columns, *base.columns]) / tasks**0.5
    return replace(
        row,
        difference=test.value,
        difference_low=test.low,
        difference_high=test.high,
        p=test.p,
        detectable=float(effect),
    )
