"""Runs of one method in StaleBench: first those of the ladder, then the reported ones at the rates that it chose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from ..algorithm import ALGORITHMS
from ..base.console_log import LOGGER
from ..base.parsing import PluginChoice, parse_choice, split_list
from ..base.reference_results import PLACE, absent_results, results_path
from ..errors import UserError
from ..statistics.benchmark.benchmark_row import COMPLETE, REFERENCE, USER
from ..statistics.benchmark.benchmark_table import BenchmarkTable, benchmark_table
from ..statistics.benchmark.protocol import (
    MethodRuns,
    Protocol,
    ProtocolPlace,
    chosen_rate,
    is_complete,
    method_of,
    preview_rates,
    runs_by_row,
)
from ..statistics.method_labels import without_options
from ..store.store import MARKER, Store
from ..store.stored_run import StoredRun
from ..study import SweepRequest
from ..task import find_env
from .methods_and_environments import resolve_methods
from .plan import Plan, PlannedRun, plan
from .plan_execution import execute_plan, stored_runs_of
from .runner_interface import Runner
from .sweep_event_loop import Outcome, SweepListener

DIVERGED = "Diverged"  # class of a failure that is a result: the ladder goes on without that rate


def benchmark_method(protocol: Protocol, text: str) -> str:
    """Return the row that ALGO names: a width control, or the label of one method with its own options, unless that is
    a control at every capacity.

    Raises `UserError` for several methods, and for settings of runs, which the protocol fixes.
    """
    controls = [control.name for control in protocol.controls]
    if (name := text.strip()) in controls:
        if name in ALGORITHMS:
            raise UserError(f"ALGO={name} is the name of a width control; register your method under another one")
        return name
    names = split_list(text)
    if len(names) != 1 or names[0] == "all":
        raise UserError(f"ALGO={text!r}: a benchmark takes one method; give its name, e.g. ALGO=my_idea")
    settings = {*find_env(protocol.env[0])[1].settings.settings(), "lag"}
    (method,) = resolve_methods(names, settings)
    if method.settings:
        name = min(method.settings)
        rule = "the protocol chooses it" if name == "learning_rate" else f"stalebench {protocol.track} fixes it"
        raise UserError(f"ALGO={text}: {name} is a setting of runs, and {rule}; leave it out")
    rows = (name for name in controls if set(protocol.entry_methods(name).values()) == {method.label})
    return next(rows, method.label)


def ladder_plan(protocol: Protocol, name: str) -> Plan:
    """Plan the tuning runs of a method: every rate at every capacity."""
    cells = [(k, text, factor) for k, text in protocol.entry_methods(name).items() for factor in protocol.rates]
    return _plan(protocol, name, cells, protocol.tuning_seeds)


def report_plan(protocol: Protocol, name: str, rates: dict[int, float], look: int = 0) -> Plan:
    """Plan the reported runs of a method. rates: capacity -> factor of the learning rate. look: number of seeds to
    run, from the first; 0: all."""
    cells = [(k, text, rates[k]) for k, text in protocol.entry_methods(name).items() if k in rates]
    return _plan(protocol, name, cells, protocol.seeds[: look or None])


def _plan(protocol: Protocol, name: str, cells: Sequence[tuple[int, str, float]], seeds: Sequence[int]) -> Plan:
    """Plan the runs of some cells (capacity, method, factor), seed by seed. Raises `UserError` for a method that the
    track cannot run."""
    runs: list[PlannedRun] = []
    for k, text, factor in cells:
        choice = parse_choice(text)
        rate = {} if factor == 1 else {"learning_rate": protocol.rate(factor)}
        method = PluginChoice(choice.name, {**choice.options, **rate}).label
        request = SweepRequest(
            protocol.env, (method,), (k,), lag=protocol.lag, question=protocol.question, settings=protocol.settings
        )
        runs += plan(request, seeds).runs
    order = {seed: i for i, seed in enumerate(seeds)}
    title = f"stalebench {protocol.track} v{protocol.version}, {name}"
    return Plan(tuple(sorted(runs, key=lambda run: order[run.spec.seed])), protocol.name, title)


@functools.cache
def published_runs(name: str) -> tuple[StoredRun, ...]:
    """Read the published runs of a protocol, by its name; none, with a warning, where there is no bundle."""
    path = results_path("/".join([*PLACE, name]))
    if (path / MARKER).is_file():
        return tuple(Store(path).read_all())
    if text := absent_results():
        LOGGER.warning("there are no published runs of %s to compare with: %s", name, text)
    return ()


@dataclass
class BenchmarkRuns:
    """Available runs of a method, and how the missing ones ended."""

    name: str = ""  # of the row; empty: none
    runs: list[StoredRun] = field(default_factory=list)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)  # id -> {run, class, message, log_tail}; run: name
    interrupted: bool = False
    missing: int = 0
    divergences: dict[tuple[str, int], set[ProtocolPlace]] = field(default_factory=dict)  # as `Divergences`

    def add_failure(self, protocol: Protocol, run: PlannedRun, event: Mapping[str, Any]) -> None:
        """Record how a run failed."""
        self.failed[run.run_id] = {**event, "run": run.text}
        place = protocol.place_of_spec(run.spec.to_dict())
        if event["class"] == DIVERGED and place is not None:
            label = without_options(run.label, "learning_rate")
            self.divergences.setdefault((label, place.capacity), set()).add(place)


MakeRunner = Callable[[Plan], Runner]
Watch = Callable[[Plan, Collection[str]], AbstractContextManager[SweepListener]]


def run_method(
    protocol: Protocol,
    name: str,
    store: Store,
    make_runner: MakeRunner,
    watch: Watch,
    look: int = 0,
    restart: bool = False,
) -> BenchmarkRuns:
    """Run what is missing of a method, in two stages, and return its runs. Published runs are not run again.

    watch: called with a stage's plan and the ids of its available runs; returns the listener.
    look: number of seeds to run at the rates of PPO-clip, without a ladder; 0: the whole row.
    """
    result = BenchmarkRuns(name)

    def run_stage(stage: Plan) -> None:
        """Run what a stage lacks; its runs and failures go into `result`."""
        published = {run.id: run for run in published_runs(protocol.name)}
        new_runs = [run for run in stage.runs if run.run_id not in published]
        divergences = {} if restart else stored_divergences(new_runs, store)
        rest = replace(stage, runs=tuple(run for run in new_runs if run.run_id not in divergences))
        runs = [published[run.run_id] for run in stage.runs if run.run_id in published]
        outcome = Outcome()
        if rest.runs:
            outcome, finished = execute_plan(rest, store, make_runner(rest), functools.partial(watch, rest), restart)
            runs += finished
        failures = {**divergences, **outcome.failed}
        for run in new_runs:
            if run.run_id in failures:
                result.add_failure(protocol, run, failures[run.run_id])
        result.runs += runs
        result.interrupted |= outcome.interrupted
        result.missing += len(stage.runs) - len(runs)

    rates = preview_rates(protocol, published_runs(protocol.name))
    report_plan(protocol, name, rates, look)  # before anything starts: it names what the track cannot run
    if not look:
        ladder = ladder_plan(protocol, name)
        _check_code(protocol, ladder)
        run_stage(ladder)
        lost = [event for event in result.failed.values() if event["class"] == DIVERGED]
        result.missing -= len(lost)  # their rates are left out
        rates = _chosen_rates(protocol, name, result)
        result.missing += (len(protocol.capacity) - len(rates)) * len(protocol.env) * len(protocol.seeds)
    if not result.interrupted:
        run_stage(report_plan(protocol, name, rates, look))
    return result


def _check_code(protocol: Protocol, ladder: Plan) -> None:
    """Raise `UserError` if a published run takes the place of one to make: a table of both would be refused."""
    ids = {
        (run.label, run.spec["env"], run.spec["capacity"], run.seed): run.id for run in published_runs(protocol.name)
    }
    for run in ladder.runs:
        if ids.get((run.label, run.spec.env, run.spec.capacity, run.spec.seed), run.run_id) != run.run_id:
            raise UserError(
                f"ALGO={run.label}: the published runs of {protocol.name} were made with other code than yours; "
                "register your version under a name of its own, or make a preview (QUICK=1, ONE_RATE=1)"
            )


def stored_divergences(runs: Iterable[PlannedRun], store: Store) -> dict[str, dict[str, Any]]:
    """Return id -> failure of those runs that diverged in an earlier call: they would again."""
    failures = {run.run_id: store.failure(run.run_id) for run in runs if not store.is_done(run.run_id)}
    return {run_id: event for run_id, event in failures.items() if event and event["class"] == DIVERGED}


def missing_runs_of(
    protocol: Protocol, name: str, store: Store, look: int = 0, restart: bool = False
) -> list[PlannedRun]:
    """List the runs of a method that are neither stored nor published, nor known to diverge; if the ladder is not done,
    the reported ones are at the rates of PPO-clip. restart: list also those that diverged."""
    result, missing = BenchmarkRuns(name), list[PlannedRun]()

    def add_stage(stage: Plan) -> None:
        runs = _available_runs(stage, protocol, store)
        ids = {run.id for run in runs}
        rest = [run for run in stage.runs if run.run_id not in ids]
        divergences = {} if restart else stored_divergences(rest, store)
        result.runs += runs
        for run in rest:
            if run.run_id in divergences:
                result.add_failure(protocol, run, divergences[run.run_id])
            else:
                missing.append(run)

    rates = preview_rates(protocol, published_runs(protocol.name))
    if not look:
        add_stage(ladder_plan(protocol, name))
        rates |= _chosen_rates(protocol, name, result)
        rows = runs_by_row(protocol, [], result.divergences)
        rates = {
            k: rates[k]
            for k, text in protocol.entry_methods(name).items()
            if (text, k) not in rows or rows[text, k].diverged_rates < {*protocol.rates}
        }
    add_stage(report_plan(protocol, name, rates, look))
    return missing


def _available_runs(stage: Plan, protocol: Protocol, store: Store) -> list[StoredRun]:
    """Return the runs of a stage that are published or stored."""
    ids = {run.run_id for run in stage.runs}
    published = [run for run in published_runs(protocol.name) if run.id in ids]
    rest = ids - {run.id for run in published}
    return [*published, *(stored_runs_of(stage, store, rest) if store.root.is_dir() else [])]


def _chosen_rates(protocol: Protocol, name: str, result: BenchmarkRuns) -> dict[int, float]:
    rows = runs_by_row(protocol, result.runs, result.divergences)
    methods = protocol.entry_methods(name).items()
    rates = {k: chosen_rate(protocol, rows.get((text, k), MethodRuns())) for k, text in methods}
    return {k: rate for k, rate in rates.items() if rate is not None}


def table_of(
    protocol: Protocol,
    result: BenchmarkRuns | None,
    others: Mapping[str, Sequence[StoredRun]],
    store: Store,
    look: int = 0,
) -> tuple[BenchmarkTable, dict[str, Sequence[StoredRun]]]:
    """Return the table of all methods, and its runs by source: the published ones, the user's, and third parties' by
    name. The user's are those of `result`, and complete rows of the folder that no bundle has yet."""
    result = result or BenchmarkRuns()
    published = published_runs(protocol.name)
    sources: dict[str, Sequence[StoredRun]] = {REFERENCE: published}
    names = [name for name in protocol.entries if name != result.name]
    if folder_runs := _unpublished_rows(protocol, names, published, store):
        sources[COMPLETE] = folder_runs
    if result.name:
        sources[USER] = result.runs
    sources |= others
    table = benchmark_table(protocol, sources, look=look, name=result.name, divergences=result.divergences)
    return table, sources


def _unpublished_rows(
    protocol: Protocol, names: Sequence[str], published: Sequence[StoredRun], store: Store
) -> list[StoredRun]:
    """Return the stored runs of those rows that are complete and none of whose runs are published."""
    methods = {name: set(protocol.entry_methods(name).values()) for name in names}
    labels = {method_of(run) for run in published}
    names = [name for name in names if not methods[name] & labels]
    if not names or not store.root.is_dir():
        return []
    folder_runs = [run for run in store.read_all() if protocol.place_of(run) is not None]
    runs: dict[str, StoredRun] = {}
    for name in names:
        members = [run for run in folder_runs if method_of(run) in methods[name]]
        if is_complete(protocol, name, members):
            runs |= {run.id: run for run in members}
    return list(runs.values())
