"""Training of a grid and its results: plan, run what is missing, print the table, write the report, exit code."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ... import api
from ...base.files import make_subfolder
from ...base.table_formatting import table_width
from ...base.text_formatting import listing, plural, printable
from ...errors import UserError, nearest
from ...statistics.results import Results
from ...statistics.scores import AUTO, NORMALISATIONS, SCORES, fixed_scale, resolve_auto
from ...statistics.table import Table, plain
from .arguments import GridOptions, Presentation, Resources

if TYPE_CHECKING:
    from ...running.plan import Plan, PlannedRun
    from ...running.plan_execution import LagReference
    from ...running.runner_interface import Runner
    from ...running.sweep_event_loop import Outcome, SweepListener
    from ...store.store import Store, StoredRun


def plan_grid(command: GridOptions, seeds: Sequence[int] | None = None) -> Plan:
    """Plan the runs of a grid, with these seeds in place of its own if given. Raises `UserError`."""
    names = {field.name for field in fields(GridOptions)} - {"out", "set", "seeds"}
    arguments = {name: getattr(command, name) for name in names}
    return api.plan(**arguments, settings=command.set, seeds=command.seeds if seeds is None else seeds)


def runner_of(command: Resources, plan: Plan, store: Store) -> Runner:
    """Create the runner for a plan. Raises `UserError`."""
    from ...running.plan_execution import runner_for

    resources = command.jobs, command.runner, command.runs_per_gpu, command.memory, command.slurm
    return runner_for(plan, store, *resources)


def execute(command: Presentation, plan: Plan, store: Store, runner: Runner, restart: bool = False) -> int:
    """Run what is missing with live progress, publish the results, and return the exit code."""
    from ...running.forecast import estimate
    from ...running.plan_execution import execute_plan
    from .progress_display import listener_for

    def watch(done: Collection[str]) -> AbstractContextManager[SweepListener]:
        print_plan(plan, len(done), runner.capacity)
        guess = estimate([run for run in plan.runs if run.run_id not in done], store, runner.capacity or 1)
        if guess.seconds is not None and runner.capacity:
            print(guess.text, file=sys.stderr)
        return listener_for(len(plan.runs), done)

    outcome, runs = execute_plan(plan, store, runner, watch, restart)
    return show(command, plan, store, runs, outcome)


def print_plan(plan: Plan, done: int, jobs: int, stream: TextIO | None = None) -> None:
    """Print the size of the sweep, by default on stderr. jobs: runs at a time, 0 where not known yet."""
    from ...running.forecast import blind_notes, idle_setting_notes, lag_notes

    stream = stream or sys.stderr
    sizes = (plan.labels, "algorithm"), (plan.envs, "environment"), (plan.capacities, "capacity")
    grid = " x ".join(plural(len(names), noun) for names, noun in sizes)
    concurrency = jobs or "as many as fit"
    to_do = f"{len(plan.runs) - done} of {plural(len(plan.runs), 'run')} to do, {concurrency} at a time"
    print(f"{plan.title}: {grid}; {to_do}", file=stream)
    runs_of_size = Counter(run.spec.size for run in plan.runs)
    for size, count in runs_of_size.items():
        print(f"{'each run' if len(runs_of_size) == 1 else plural(count, 'run')}: {size}", file=stream)
    for reason in plan.notes:
        print(f"left out: {reason}", file=stream)
    for line in [*lag_notes(plan), *idle_setting_notes(plan), *blind_notes(plan)]:
        print(f"note: {line}", file=stream)


def check_presentation(command: Presentation) -> None:
    """Raise `UserError` for an unknown scale or score."""
    for name, value, choices in (
        ("NORMALISE", command.normalise, ("auto", *NORMALISATIONS)),
        ("SCORE", command.score, ("auto", *SCORES)),
    ):
        if value not in choices:
            raise UserError(f"{name}={value!r} is unknown; {nearest(value, choices)}")


def show(command: Presentation, plan: Plan, store: Store, runs: list[StoredRun], outcome: Outcome) -> int:
    """Publish table and report of the stored runs and return the exit code: 0 if all runs are stored."""
    from ...running.plan_execution import synchronous_reference

    expected = [_expected(run, outcome) for run in plan.runs]
    failed_runs = [run for run in plan.runs if run.run_id in outcome.failed]
    failures = [{**outcome.failed[run.run_id], "id": run.run_id, **_expected(run, outcome)} for run in failed_runs]
    reference = synchronous_reference(plan, store) if runs else None
    results = Results.of(runs)
    table, page = publish(command, store, plan.name, plan.title, results, expected, failures, reference)
    for run, failure in zip(failed_runs, failures, strict=True):
        print_failure(store, run.run_id, run.text, failure)
    if outcome.interrupted:
        left = len(plan.runs) - len(runs)
        print(f"stopped with {plural(left, 'run')} to go; the same command resumes: {command_line()}", file=sys.stderr)
    if command.json:
        states = {"done": outcome.done, "failed": sorted(outcome.failed), "skipped": outcome.skipped}
        content = {"table": table.rows, "notes": table.notes, "settings": table.settings} if table else {"table": []}
        print(json.dumps({"runs": states, **content, "report": str(page) if page else None}, sort_keys=True))
    if outcome.interrupted:
        return 130
    if {failure["class"] for failure in failures} == {UserError.__name__}:
        return 2  # a user error that planning cannot detect
    return 1 if len(runs) < len(plan.runs) else 0


def print_failure(store: Store, run_id: str, name: str, failure: Mapping[str, Any]) -> None:
    """Print on stderr which run failed, why, and where its log is."""
    print(printable(f"failed: {name}: {failure['class']}: {failure['message']}"), file=sys.stderr)
    if (log := store.latest_attempt(run_id) / "log.txt").is_file():
        print(f"        log: {log}", file=sys.stderr)


def _expected(run: PlannedRun, outcome: Outcome) -> dict[str, Any]:
    spec, failure = run.spec, outcome.failed.get(run.run_id)
    place = {"label": run.label, "capacity": spec.capacity, "env": spec.env, "seed": spec.seed}
    return {**place, "problem": failure["class"] if failure else None}


def publish(
    command: Presentation,
    store: Store,
    name: str,
    title: str,
    results: Results,
    expected: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    reference: LagReference | None = None,
    is_final: bool = False,
) -> tuple[Table | None, Path | None]:
    """Compute (or find) the table, print it, and write the report if something changed. The last line says what lag
    costs, relative to the runs at K = 1 of these results or of `reference`."""
    from ...pages import report
    from ...statistics import aggregate as stats

    try:
        if reference:
            results = Results.of([*results, *reference.user_runs, *reference.published])
        grid = results.grid  # raises if there is none, before a folder is made
        folder = make_subfolder(store.root, "reports", name)
        score, usual = resolve_auto(results, command.score, command.normalise)
        is_fixed = command.normalise == AUTO and usual == "minmax"  # of returns, unless another scale is asked for
        scale = fixed_scale(grid, score) if is_fixed else command.normalise
        table = stats.cached_table(folder, grid, expected, score=command.score, normalise=scale)
        table = replace(table, notes=[*_reference_notes(table, is_fixed, reference), *table.notes])
        if reference and reference.published:
            table = replace(table, settings=table.settings | {"published": reference.settings})
    except UserError as error:
        if is_final or len(results) >= len(expected):
            raise
        print(f"no table yet: {error}", file=sys.stderr)
        return None, None
    if not results:
        print("no run has finished yet, so there is no table", file=sys.stderr)
        return table, None
    stream = sys.stderr if command.json else sys.stdout
    print(plain(table, table_width(stream)), file=stream)
    page = report.write(folder, results, table, failures, command_line(), title)
    print(f"report: {page}", file=stream)
    for sentence in table.answers:
        print(printable(sentence), file=stream)
    return table, page


def _reference_notes(table: Table, is_fixed: bool, reference: LagReference | None) -> list[str]:
    """Notes on a task without the fixed scale that `is_fixed` asks for, on published rows, and on methods without
    runs at K = 1."""
    notes = []
    if is_fixed and table.settings["normalise"] == "raw":
        notes.append(f"{table.settings['envs'][0]} has no reference score, so returns are not normalised")
    if reference and reference.published:
        where = f"{', '.join(reference.bundles)}, made on {' and '.join(reference.settings['machines'])}"
        notes.append(
            f"*: published runs of these settings at K = 1 ({where}), not yours; bits differ between kinds of "
            "processor. The same command with K=1 makes your own"
        )
    cells = {(r["algorithm"], r["capacity"] == 1) for r in table.rows if r["n_runs"]}
    if lacking := sorted(label for label, synchronous in cells if not synchronous and (label, True) not in cells):
        notes.append(
            f"no share retained for {listing(lacking, 4)}: no run at K = 1 to compare with; add K=1 to make it"
        )
    return notes


def command_line() -> str:
    return shlex.join(["staleharness", *sys.argv[1:]])
