"""Carrying out a plan: what is stored counts, what is missing runs, and table and report show the result."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.parsing import whole_number
from ..errors import UserError
from .arguments import Shown, Sweep

if TYPE_CHECKING:
    from ..running.plan import Plan
    from ..running.sweep import Outcome
    from ..store.store import Store, StoredRun

MOST_JOBS = 1024


def jobs_for(given: str | None, planned: Plan) -> int:
    """How many runs at a time: as asked, or as many as the cores bear. Raises `UserError`."""
    from ..running.devices import usable_cores

    if given is None:
        return max(1, usable_cores() // planned.runs[0].spec.threads)
    jobs = whole_number(given, "JOBS")
    if jobs < 1:
        raise UserError(f"JOBS={jobs} must be at least 1")
    if jobs > MOST_JOBS:
        raise UserError(f"JOBS={jobs} is more than {MOST_JOBS}")
    return jobs


def execute(command: Shown, planned: Plan, store: Store, jobs: int) -> int:
    from ..running.sweep import sweep
    from .display import listener_for
    from .present import show

    store.open_for_writing()
    stored = read_planned(store, planned)
    if len(stored) < len(planned.runs):
        _say_plan(planned, len(stored), jobs)
        listener: Any = listener_for(len(planned.runs), len(stored))
        try:
            outcome = sweep(planned.runs, store, jobs, listener)
        finally:
            listener.close()
        stored = read_planned(store, planned)
    else:
        outcome = _all_done(planned)
    return show(command, planned, store, stored, outcome)


def read_planned(store: Store, planned: Plan) -> list[StoredRun]:
    """What is stored of the plan, under the labels it has there (an earlier sweep may have used another)."""
    labels = {run.run_id: run.label for run in planned.runs}
    return [replace(run, record={**run.record, "label": labels[run.id]}) for run in store.read_all(labels)]


def _all_done(planned: Plan) -> Outcome:
    from ..running.sweep import Outcome

    return Outcome(skipped=[run.run_id for run in planned.runs])


def _say_plan(planned: Plan, done: int, jobs: int) -> None:
    sizes = (planned.labels, "algorithm"), (planned.envs, "environment"), (planned.capacities, "capacity")
    grid = " x ".join(_counted(len(names), what) for names, what in sizes)
    waiting = f"{len(planned.runs) - done} of {len(planned.runs)} runs to do, {jobs} at a time"
    print(f"{planned.title}: {grid}; {waiting}", file=sys.stderr)
    print(f"each run: {planned.runs[0].spec.size}", file=sys.stderr)
    for why in planned.skipped:
        print(f"left out: {why}", file=sys.stderr)


def _counted(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


def dry(command: Sweep, planned: Plan, store: Store, jobs: int) -> int:
    from ..running.estimate import estimate

    done = {run.id for run in read_planned(store, planned)}
    missing = [run for run in planned.runs if run.run_id not in done]
    guess = estimate(missing, store, jobs)
    _say_plan(planned, len(done), jobs)
    for run in planned.runs:
        state = "done" if run.run_id in done else "to do"
        line = (
            f"{run.run_id}  {state:5}  {run.label} {run.spec.env} K={run.spec.capacity} seed {run.spec.seed}"
        )
        print(line, file=sys.stderr if command.json else sys.stdout)
    print(guess.text, file=sys.stderr if command.json else sys.stdout)
    if command.json:
        from ..running.plan import dump

        cells = [{**cell, "done": cell["id"] in done} for cell in dump(planned)]
        print(
            json.dumps(
                {"dry": True, "plan": cells, "seconds": guess.seconds, "bytes": guess.bytes}, sort_keys=True
            )
        )
    return 0
