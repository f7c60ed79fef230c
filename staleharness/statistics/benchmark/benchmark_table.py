"""Table of StaleBench: one row per method and capacity of a track, from stored runs alone.

`BenchmarkTable` is all that a page or a verdict shows; `benchmark_table` makes it, `to_json` is its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...store.stored_run import StoredRun
from ..method_labels import display_label
from .benchmark_row import REFERENCE, USER, BenchmarkRow, with_scores, with_tests
from .protocol import MethodRuns, Protocol, chosen_rate, count_runs, look_rates, runs_by_row


@dataclass(frozen=True)
class BenchmarkTable:
    """Rows of a track, with what a reader must know of the protocol."""

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


def benchmark_table(
    protocol: Protocol, sources: Mapping[str, Iterable[StoredRun]], *, look: int = 0, gaps: bool = False
) -> BenchmarkTable:
    """Make the table of a track. sources: name -> runs, of which `reference` and `yours` make the same rows.

    look: seeds of `yours`, if they are a look at the rates of PPO-clip; 0: they are a row.
    gaps: of `yours`, rates at which a run diverged are left out of the ladder.
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
