"""Table of StaleBench: one row per method and capacity of a track, from stored runs alone, and the verdict on a method.

`BenchmarkTable` is all that a page or a verdict shows; `benchmark_table` makes it, `to_json` is its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...base.text import fixed_width, number, plural
from ...store.stored_run import StoredRun
from ..method_labels import display_label
from ..significance_and_power import ALPHA
from .benchmark_row import REFERENCE, USER, BenchmarkRow, with_scores, with_tests
from .protocol import BASELINE, MethodRuns, Protocol, chosen_rate, count_runs, look_rates, runs_by_row

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
    protocol: Protocol, sources: Mapping[str, Iterable[StoredRun]], *, look: int = 0, gaps: bool = False
) -> BenchmarkTable:
    """Make the table of a track. sources: name -> runs, of which `reference` and `yours` make the same rows.

    look: seeds of `yours`, if they are a look at the rates of PPO-clip; 0: they are a row.
    gaps: rates at which a run of `yours` diverged are left out of the ladder.
    """
    reference = list(sources.get(REFERENCE, ()))
    ids = {run.id for run in reference}
    user_runs = list(sources.get(USER, ()))
    if not look or ids.issuperset(run.id for run in user_runs):  # a look has published runs at equal rates
        user_runs = [run for run in user_runs if run.id not in ids]
    rows: list[BenchmarkRow] = []
    entry_runs_by_row = runs_by_row(protocol, [*reference, *([] if look else user_runs)])
    user_runs_by_row = runs_by_row(protocol, user_runs)
    for name in protocol.entries:
        methods = protocol.entry_methods(name)
        from_user = any((label, k) in user_runs_by_row for k, label in methods.items()) and not look
        rows += _rows(protocol, name, USER if from_user else REFERENCE, entry_runs_by_row, gaps=gaps and from_user)
    entry_labels = {label for name in protocol.entries for label in protocol.entry_methods(name).values()}
    for label in dict.fromkeys(label for label, _ in user_runs_by_row):
        if look or label not in entry_labels:
            rates = look_rates(protocol, reference) if look else None
            rows += _rows(protocol, label, USER, user_runs_by_row, rates, look, gaps)
    for source in [name for name in sources if name not in (REFERENCE, USER)]:
        bundle_runs_by_row = runs_by_row(protocol, sources[source])
        for label in dict.fromkeys(label for label, _ in bundle_runs_by_row):
            rows += _rows(protocol, label, source, bundle_runs_by_row, gaps=True)
    entry_sources = (REFERENCE,) if look else (REFERENCE, USER)
    entry_rows = [row for row in rows if row.method in protocol.entries and row.source in entry_sources]
    runs_total = count_runs(protocol) * len(protocol.entries)
    return BenchmarkTable(
        track=protocol.track,
        version=protocol.version,
        digest=protocol.digest,
        question=protocol.question,
        envs=protocol.env,
        capacities=protocol.capacity,
        seeds=len(protocol.seeds),
        rows=tuple(with_tests(rows)),
        runs_done=runs_total - sum(row.missing for row in entry_rows),
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
    for k, label in protocol.entry_methods(name).items():
        members = by_row.get((label, k), MethodRuns())
        rate = rates[k] if rates else chosen_rate(protocol, members, gaps)
        by_env = [{} if rate is None else members.report.get((env, rate), {}) for env in protocol.env]
        tuning_runs = sum(map(len, members.tuning.values()))
        runs_per_k = count_runs(protocol, look) // len(protocol.capacity)
        row = BenchmarkRow(
            method=name,
            label=protocol.title_of(name) or display_label(name),
            track=protocol.track,
            capacity=k,
            source=source,
            n=min(map(len, by_env)),
            missing=max(0, runs_per_k - sum(map(len, by_env)) - (0 if look else tuning_runs)),
            rate=rate,
        )
        rows.append(with_scores(protocol, row, by_env, rows[0] if rows else None) if row.n else row)
    return rows


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
    lines += [line for row in rows if row.score is not None for line in _sentences(table, row)]
    if any(row.between_cpus for row in rows):
        lines.append(f"these runs and those of {BASELINE_NAME} are of different kinds of CPU")
    if any(row.did_not_learn for row in rows):
        lines.append(f"did not learn: below half of {BASELINE_NAME}'s score at K={table.capacities[0]}")
    if missing := sum(row.missing for row in rows):
        lines.append(f"partial: {plural(missing, 'run')} of this method missing")
    if table.runs_done < table.runs_total:
        lines.append(f"the table of all methods is partial: {table.runs_done} of {table.runs_total} runs")
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
        word = "loses" if change <= 0 else "gains"
        ends = "" if row.retained_low is None else f"; keeps {row.retained_low:.0%} to {row.retained_high:.0%}"
        lines.append(f"K={k}: {word} {abs(change):.0%} of its score without lag ({outcome}){ends}")
    return lines


def rank(table: BenchmarkTable, row: BenchmarkRow) -> tuple[int, int] | None:
    """Return (place, number of rows) by score among the rows of one capacity that learnt; None for one that did not."""
    if row.did_not_learn or row.score is None:
        return None
    scores = [r.score for r in table.rows if r.capacity == row.capacity and r.score is not None and not r.did_not_learn]
    return 1 + sum(score > row.score for score in scores), len(scores)
