"""Table of StaleBench: one row per method and capacity of a track, from stored runs alone, and the verdict on a method.

`BenchmarkTable` is all that a page or a verdict shows; `benchmark_table` makes it, `to_json` is its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...base.table_formatting import fixed_width
from ...base.text_formatting import number, plural
from ...store.stored_run import StoredRun
from ..method_labels import display_label
from ..significance_and_power import ALPHA, results_key
from .benchmark_row import COMPLETE, REFERENCE, USER, BenchmarkRow, with_scores, with_tests
from .protocol import BASELINE, Divergences, MethodRuns, Protocol, chosen_rate, count_runs, preview_rates, runs_by_row

HEAD = ["K", "score", "95 %", "kept", "- PPO-clip", "95 %", "p (Holm)", "TV", "ESS", "rate", "n"]
BASELINE_NAME = "PPO-clip"


@dataclass(frozen=True)
class BenchmarkTable:
    """Rows of a track, with what a reader must know about the protocol."""

    track: str
    version: int
    digest: str  # of the protocol
    question: str
    envs: tuple[str, ...]
    capacities: tuple[int, ...]
    seeds: int  # reported runs of each environment that the protocol asks for
    rows: tuple[BenchmarkRow, ...]
    runs_done: int  # runs that are there, those of the user included
    runs_total: int  # runs that the protocol asks for
    look: int = 0  # seeds of a look at one rate, which is no result; 0: none

    def row(self, method: str, capacity: int, source: str | None = None) -> BenchmarkRow | None:
        """Return the row of a method, of any source unless one is given."""
        rows = (row for row in self.rows if (row.method, row.capacity) == (method, capacity))
        return next((row for row in rows if source in (None, row.source)), None)

    @property
    def methods(self) -> list[tuple[str, str]]:
        """(method, source) of all rows: those that learnt, by their score at the largest capacity, then the others."""
        keys = dict.fromkeys((row.method, row.source) for row in self.rows)
        order = {
            (row.method, row.source): (row.did_not_learn, row.score is None, -(row.score or 0.0))
            for row in self.rows
            if row.capacity == self.capacities[-1]
        }
        return sorted(keys, key=lambda key: order.get(key, (True, True, 0.0)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def benchmark_table(
    protocol: Protocol,
    sources: Mapping[str, Iterable[StoredRun]],
    *,
    look: int = 0,
    name: str | None = None,
    divergences: Divergences | None = None,
) -> BenchmarkTable:
    """Make the table of a track. sources: name -> runs; `reference`, `complete` and `yours` make the same rows.

    look: seeds of `yours`, if they are a look at the rates of PPO-clip; 0: they are a row. name: of that row, which the
    table has even without a run. divergences: places of runs of `yours` that diverged.
    """
    reference, folder_runs = list(sources.get(REFERENCE, ())), list(sources.get(COMPLETE, ()))
    ids = {run.id for run in reference}
    user_runs = list(sources.get(USER, ()))
    if not look or ids.issuperset(run.id for run in user_runs):  # a look has published runs at equal rates
        user_runs = [run for run in user_runs if run.id not in ids]
    rows: list[BenchmarkRow] = []
    new_runs = folder_runs if look else [*folder_runs, *user_runs]  # of rows that are to be published
    places = {} if look else divergences
    new_by_row, entry_runs_by_row = (
        runs_by_row(protocol, runs, places) for runs in (new_runs, [*reference, *new_runs])
    )
    user_runs_by_row = runs_by_row(protocol, user_runs, divergences)
    for entry in protocol.entries:
        from_user = any((label, k) in new_by_row for k, label in protocol.entry_methods(entry).items())
        rows += _rows(protocol, entry, USER if from_user else REFERENCE, entry_runs_by_row)
    entry_labels = {label for entry in protocol.entries for label in protocol.entry_methods(entry).values()}
    names = [name] if name else list(dict.fromkeys(label for label, _ in user_runs_by_row))
    for label in names:
        if look and (user_runs_by_row or label not in protocol.entries):
            rows += _rows(protocol, label, USER, user_runs_by_row, preview_rates(protocol, reference), look)
        elif not look and label not in (protocol.entries if name else entry_labels):
            rows += _rows(protocol, label, USER, entry_runs_by_row)  # some of its runs may be a control's
    for source in [source for source in sources if source not in (REFERENCE, COMPLETE, USER)]:
        bundle_runs_by_row = runs_by_row(protocol, sources[source])
        for label in dict.fromkeys(label for label, _ in bundle_runs_by_row):
            rows += _rows(protocol, label, source, bundle_runs_by_row, gaps=True)
    missing = {  # a control may have the runs of a method at some K, which count once
        (protocol.entry_methods(row.method)[row.capacity], row.capacity): row.missing
        for row in rows
        if row.method in protocol.entries and row.kind in ("method", "control")
    }
    runs_total = count_runs(protocol) * len(missing)
    return BenchmarkTable(
        track=protocol.track,
        version=protocol.version,
        digest=protocol.digest,
        question=protocol.question,
        envs=protocol.env,
        capacities=protocol.capacity,
        seeds=len(protocol.seeds),
        rows=tuple(with_tests(rows)),
        runs_done=runs_total - sum(missing.values()),
        runs_total=runs_total,
        look=look,
    )


def _rows(
    protocol: Protocol,
    name: str,
    source: str,
    by_row: Mapping[tuple[str, int], MethodRuns],
    rates: Mapping[int, float] | None = None,
    look: int = 0,
    gaps: bool = False,
) -> list[BenchmarkRow]:
    """Return the rows of one method at every capacity, without the fields that depend on other methods. by_row: as
    `runs_by_row` returns. rates: of a look."""
    rows: list[BenchmarkRow] = []
    title, foreign = protocol.title_of(name), source not in (REFERENCE, USER)
    kind = "preview" if look else "added" if foreign else "control" if title else "method"
    for k, label in protocol.entry_methods(name).items():
        members = by_row.get((label, k), MethodRuns())
        rate = rates[k] if rates else chosen_rate(protocol, members, gaps)
        by_env = [{} if rate is None else members.report.get((env, rate), {}) for env in protocol.env]
        failures = {place for place in members.divergences if not place.tuning and place.factor == rate}
        missing = len(protocol.env) * (look or len(protocol.seeds)) - sum(map(len, by_env)) - len(failures)
        divergences = len({place.seed for place in failures})
        if not look and len(members.diverged_rates) == len(protocol.rates):
            missing, divergences = 0, len(protocol.seeds)
        absent = [] if look else _tuning_gaps(protocol, members)
        if not gaps:  # else they are as the third party left them
            missing += sum(count for factor, count in absent if factor not in members.diverged_rates)
        row = BenchmarkRow(
            method=name,
            label=title or display_label(name),
            track=protocol.track,
            capacity=k,
            source=source,
            n=min(map(len, by_env)),
            missing=max(0, missing),
            divergences=divergences,
            gaps=tuple(
                factor for factor, _ in absent if rate is not None and (gaps or factor in members.diverged_rates)
            ),
            rate=rate,
            kind=kind,
        )
        has_score = row.n and not divergences
        rows.append(with_scores(protocol, row, by_env, rows[0] if rows else None) if has_score else row)
    return rows


def _tuning_gaps(protocol: Protocol, members: MethodRuns) -> list[tuple[float, int]]:
    """List (factor of the rate, number of its tuning runs that are absent) where any is."""
    counts = [(f, sum(len(members.tuning.get((env, f), {})) for env in protocol.env)) for f in protocol.rates]
    total = len(protocol.env) * len(protocol.tuning_seeds)
    return [(factor, total - count) for factor, count in counts if count < total]


def verdict(table: BenchmarkTable, method: str, source: str) -> str:
    """Return the verdict on a method as lines that fit on a screen."""
    title, *others = remarks(table, method, source)
    rows = [row for row in table.rows if (row.method, row.source) == (method, source)]
    return "\n".join([title, "", *fixed_width(HEAD, [_cells(row) for row in rows]), "", *others])


def remarks(table: BenchmarkTable, method: str, source: str) -> list[str]:
    """Return the results on a method in sentences, the first of which names it."""
    rows = [row for row in table.rows if (row.method, row.source) == (method, source)]
    name = rows[0].label if rows else method
    lines = [f"stalebench {table.track} v{table.version} (protocol {table.digest}): {name}"]
    if table.look and source == USER:
        seeds = f"{table.look} seeds at the learning rates of {BASELINE_NAME}, none tuned"
        lines.append(f"a preview, not a result: {seeds}")
    for row in rows:
        lines += _sentences(table, row) if row.score is not None else []
        lines += _troubles(table, row)
    if any(row.between_cpus for row in rows):
        lines.append(f"these runs and those of {BASELINE_NAME} are of different kinds of CPU")
    if any(row.did_not_learn for row in rows):
        lines.append(f"did not learn: below half of {BASELINE_NAME}'s score at K={table.capacities[0]}")
    if missing := sum(row.missing for row in rows):
        lines.append(f"partial: {plural(missing, 'run')} of this method missing")
    if table.runs_done < table.runs_total:
        lines.append(f"the table of all methods is partial: {table.runs_done} of {table.runs_total} runs")
    return lines


def _troubles(table: BenchmarkTable, row: BenchmarkRow) -> list[str]:
    """Return in words where runs of a row diverged, or where a bundle has no tuning runs."""
    k, lines = row.capacity, []
    if row.gaps:
        reason = "diverged at" if row.source in (REFERENCE, USER) else "has no tuning runs at"
        rates = ", ".join(f"x{factor:.2g}" for factor in row.gaps)
        lines.append(f"K={k}: {reason} learning rate {rates}, which the choice left out")
    if row.divergences:
        seeds = table.look if row.kind == "preview" else table.seeds
        where = "at every learning rate" if row.rate is None else f"on {row.divergences} of {plural(seeds, 'seed')}"
        lines.append(f"K={k}: diverged {where}: no score and no rank")
    return lines


def _cells(row: BenchmarkRow) -> list[str]:
    rate = "" if row.rate is None else f"x{row.rate:.2g}"
    return [
        str(row.capacity),
        number(row.score),
        _interval(row.low, row.high),
        "" if row.retained is None else f"{row.retained:.0%}",
        "" if row.difference is None else f"{row.difference:+.2f}",
        _interval(row.difference_low, row.difference_high),
        _p(row.holm),
        number(row.tv),
        number(row.ess),
        rate,
        str(row.n),
    ]


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "<.0001" if p < 1e-4 else f"{p:.4f}".lstrip("0") if p < 1 else "1"


def _sentences(table: BenchmarkTable, row: BenchmarkRow) -> list[str]:
    """Return the results of a row's tests in words."""
    k, lines = row.capacity, []
    if place := rank(table, row):
        lines.append(f"K={k}: rank {place[0]} of {place[1]} by score")
    if row.equals_baseline:
        lines.append(f"K={k}: the same results as {BASELINE_NAME}")
    elif (p := row.holm) is not None and row.method != BASELINE:  # none of a method that did not learn
        if p < ALPHA:
            side = "above" if (row.difference or 0.0) > 0 else "below"
            words = f"{side} {BASELINE_NAME} by {abs(row.difference or 0.0):.2f} (p {_p(p)})"
        else:
            words = (
                f"no significant difference from {BASELINE_NAME} (p {_p(p)}); with 80 % power {row.n} seeds detect a "
                f"difference of {row.detectable or 0:.2f}"
            )
        lines.append(f"K={k}: {words}")
    if row.loss_p is not None and row.retained is not None:
        outcome = f"p {_p(row.loss_p)}" + ("" if row.loss_p < ALPHA else ", not significant")
        change = row.retained - 1
        share = f"{'loses' if change <= 0 else 'gains'} {abs(change):.0%}" if round(change, 2) else "keeps 100%"
        ends = "" if row.retained_low is None else f"; keeps {row.retained_low:.0%} to {row.retained_high:.0%}"
        lines.append(f"K={k}: {share} of its score without lag ({outcome}){ends}")
    return lines


def rank(table: BenchmarkTable, row: BenchmarkRow) -> tuple[int, int] | None:
    """Return (place, number of rows) by score among the complete rows of methods at one capacity that learnt, of equal
    results once; None for another row, and for a width control, a preview or an added row."""

    def counts(r: BenchmarkRow) -> bool:
        return r.kind == "method" and not r.missing and r.score is not None and not r.did_not_learn

    if not counts(row) or row.score is None:
        return None
    scores = {results_key(r.columns): r.score or 0.0 for r in table.rows if r.capacity == row.capacity and counts(r)}
    return 1 + sum(score > row.score for score in scores.values()), len(scores)
