"""Runs of one method in StaleBench: first those of the ladder, then the reported ones at the rates that it chose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.console_log import LOGGER
from ..base.parsing import PluginChoice, parse_choice, split_list
from ..base.reference_results import PLACE, absent_results, results_path
from ..errors import UserError
from ..statistics.benchmark.benchmark_row import REFERENCE, USER
from ..statistics.benchmark.protocol import (
    BASELINE,
    MethodRuns,
    Protocol,
    chosen_rate,
    look_rates,
    method_of,
    runs_by_row,
)
from ..store.store import MARKER, Store
from ..store.stored_run import StoredRun
from ..study import Question
from ..task import find_env
from .methods_and_environments import resolve_methods
from .plan import Plan, PlannedRun, plan
from .plan_execution import execute_plan, stored_runs_of
from .runner_interface import Runner
from .sweep_event_loop import Outcome, SweepListener

DIVERGED = "Diverged"  # class of a failure that is a result: the ladder goes on without that rate


def benchmark_method(protocol: Protocol, text: str) -> str:
    """Return the row that ALGO names: a width control, or the label of one method with its own options.

    Raises `UserError` for several methods, and for settings of runs, which the protocol fixes.
    """
    if text.strip() in (control.name for control in protocol.controls):
        return text.strip()
    names = split_list(text)
    if len(names) != 1 or names[0] == "all":
        raise UserError(f"ALGO={text!r}: a benchmark takes one method; give its name, e.g. ALGO=my_idea")
    settings = {*find_env(protocol.env[0])[1].settings.settings(), "lag"}
    (method,) = resolve_methods(names, settings)
    if method.settings:
        name = min(method.settings)
        rule = "the protocol chooses it" if name == "learning_rate" else f"stalebench {protocol.track} fixes it"
        raise UserError(f"ALGO={text}: {name} is a setting of runs, and {rule}; leave it out")
    return method.label


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
        question = Question(
            protocol.env, (method,), (k,), lag=protocol.lag, question=protocol.question, settings=protocol.settings
        )
        runs += plan(question, seeds).runs
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

    runs: list[StoredRun] = field(default_factory=list)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)  # id -> {label, class, message}
    interrupted: bool = False
    missing: int = 0

    @property
    def diverged(self) -> bool:
        """True if a rate of the ladder, or a reported run, diverged."""
        return any(event["class"] == DIVERGED for event in self.failed.values())


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
    result = BenchmarkRuns()

    def run_stage(stage: Plan) -> None:
        """Run what a stage lacks; its runs and failures go into `result`."""
        published = {run.id: run for run in published_runs(protocol.name)}
        rest = replace(stage, runs=tuple(run for run in stage.runs if run.run_id not in published))
        runs = [published[run.run_id] for run in stage.runs if run.run_id in published]
        outcome = Outcome()
        if rest.runs:
            outcome, new_runs = execute_plan(rest, store, make_runner(rest), functools.partial(watch, rest), restart)
            runs += new_runs
        labels = {run.run_id: run.label for run in rest.runs}
        for run_id, event in outcome.failed.items():
            result.failed[run_id] = {"label": labels[run_id], "class": event["class"], "message": event["message"]}
        result.runs += runs
        result.interrupted |= outcome.interrupted
        result.missing += len(stage.runs) - len(runs)

    rates = look_rates(protocol, published_runs(protocol.name))
    report_plan(protocol, name, rates, look)  # before anything starts: it names what the track cannot run
    if not look:
        ladder = ladder_plan(protocol, name)
        _check_code(protocol, ladder)
        run_stage(ladder)
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


def missing_runs_of(protocol: Protocol, name: str, store: Store, look: int = 0) -> list[PlannedRun]:
    """List the runs of a method that are neither stored nor published; if the ladder is not done, the reported ones are
    at the rates of PPO-clip."""
    stages = [] if look else [ladder_plan(protocol, name)]
    runs = [run for stage in stages for run in _available_runs(stage, protocol, store)]
    rates = look_rates(protocol, published_runs(protocol.name))
    rates |= {} if look else _chosen_rates(protocol, name, BenchmarkRuns(runs))
    stages.append(report_plan(protocol, name, rates, look))
    ids = {run.id for run in [*runs, *_available_runs(stages[-1], protocol, store)]}
    return [run for stage in stages for run in stage.runs if run.run_id not in ids]


def _available_runs(stage: Plan, protocol: Protocol, store: Store) -> list[StoredRun]:
    """Return the runs of a stage that are published or stored."""
    ids = {run.run_id for run in stage.runs}
    published = [run for run in published_runs(protocol.name) if run.id in ids]
    rest = ids - {run.id for run in published}
    return [*published, *(stored_runs_of(stage, store, rest) if store.root.is_dir() else [])]


def _chosen_rates(protocol: Protocol, name: str, result: BenchmarkRuns) -> dict[int, float]:
    rows = runs_by_row(protocol, result.runs)
    methods = protocol.entry_methods(name).items()
    rates = {k: chosen_rate(protocol, rows.get((text, k), MethodRuns()), gaps=result.diverged) for k, text in methods}
    return {k: rate for k, rate in rates.items() if rate is not None}


def third_party_runs(protocol: Protocol, path: Path | None) -> dict[str, list[StoredRun]]:
    """Read a third party's bundle or results folder, by its name, and check it: every run follows the protocol to the
    last setting, and none that it asks for is missing, except where a learning rate was given up. Methods whose runs
    are all copies of published ones, id and metrics, are left out with a warning: they would count twice.

    Raises `UserError` for the first thing that is wrong.
    """
    if path is None:
        return {}
    where = f"ADD={path}"
    store = Store(results_path(str(path)))
    store.check_readable(where)
    if (source := store.root.resolve().name) in (REFERENCE, USER):
        raise UserError(f"{where}: the page already uses the name {source!r} for other rows; rename the folder")
    runs = store.read_all()
    settings = {env: _settings_of(protocol, env) for env in protocol.env}
    for run in runs:
        if difference := _difference(protocol, run, settings):
            raise UserError(
                f"{where}: run {run.id} ({run.label}) does not follow {protocol.name} ({protocol.digest}): {difference}"
            )
    published = {(run.id, run.record["metrics_sha256"]) for run in published_runs(protocol.name)}
    others = {method_of(run) for run in runs if (run.id, run.record["metrics_sha256"]) not in published}
    if copies := sorted({method_of(run) for run in runs} - others):
        text = f"{where}: {', '.join(copies)} {'is a copy' if len(copies) == 1 else 'are copies'} of published rows"
        if not others:
            raise UserError(f"{text}, and the bundle holds nothing else")
        LOGGER.warning("%s, left out", text)
    runs = [run for run in runs if method_of(run) in others]
    rows = runs_by_row(protocol, runs)
    for label in sorted({label for label, _ in rows}):
        for k in protocol.capacity:
            members = rows.get((label, k), MethodRuns())
            rate = chosen_rate(protocol, members, gaps=True)
            if rate is None:
                raise UserError(
                    f"{where}: {label} at K={k} lacks tuning runs at every learning rate; one rate needs all seeds, "
                    f"{', '.join(map(str, protocol.tuning_seeds))}"
                )
            by_seed = [members.report.get((env, rate), {}) for env in protocol.env]
            missing = sorted({*protocol.seeds} - set[int].intersection(*map(set, by_seed)))
            if missing:
                raise UserError(
                    f"{where}: {label} at K={k} lacks seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} at "
                    f"the learning rate that its tuning runs choose, {protocol.rate(rate):g}"
                )
    if not rows:
        raise UserError(f"{where} holds no run")
    return {source: runs}


def _difference(protocol: Protocol, run: StoredRun, settings: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the first difference of a run's settings from those of the protocol, in words."""
    spec = run.spec
    if spec["env"] not in protocol.env:
        return f"env={spec['env']} is not one of {', '.join(protocol.env)}"
    if spec["capacity"] not in protocol.capacity:
        return f"K={spec['capacity']} is not one of {', '.join(map(str, protocol.capacity))}"
    before = find_env(spec["env"])[1].settings.before()  # of settings added since the run
    for key, rule in settings[spec["env"]].items():
        value = spec.get(key, before.get(key, rule))
        if value != rule:
            return f"{key}={value}, but the protocol says {rule}"
    if protocol.place_of(run) is None:
        return f"seed {spec['seed']} with learning_rate={spec['learning_rate']:g} is not part of the protocol"
    return None


def _settings_of(protocol: Protocol, env: str) -> dict[str, Any]:
    """Return all settings of a run of the protocol except those that its cell and its method decide."""
    runs = report_plan(protocol, BASELINE, {protocol.capacity[0]: 1.0}, look=1).runs
    spec = next(r.spec for r in runs if r.spec.env == env)
    cell_settings = {"env", "algorithm", "hyper", "capacity", "seed", "learning_rate"}
    return {key: value for key, value in spec.to_dict().items() if key not in cell_settings}


def all_sources(
    protocol: Protocol, result: BenchmarkRuns | None, others: Mapping[str, Sequence[StoredRun]]
) -> dict[str, Sequence[StoredRun]]:
    """Return the runs of a table by their source: the published ones, the user's, and third parties' by name."""
    sources: dict[str, Sequence[StoredRun]] = {REFERENCE: published_runs(protocol.name)}
    if result is not None:
        sources[USER] = result.runs
    return {**sources, **others}
