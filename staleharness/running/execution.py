"""Carrying out a plan: what is stored counts, what is missing runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from ..base.processes import nothing_of_main
from ..errors import UserError, shorten
from ..simulator import checkpoint
from ..store.store import Store, StoredRun
from ..task import find_env
from .attempt import fingerprint_changes
from .demand import demand
from .fingerprint import fingerprint
from .limits import from_environment
from .plan import Plan, PlannedRun
from .precedents import precedents
from .runner import Runner, make_runner
from .sweep import Listener, Outcome, sweep

SPARE = 1.25  # of the memory that runs like these took, where another machine has to grant it


def runner_for(
    planned: Plan,
    store: Store,
    jobs: str | None = None,
    runner: str = "local",
    runs_per_gpu: str | None = None,
    memory: str | None = None,
    slurm: str = "",
) -> Runner:
    """Who carries the runs out, how many at a time: JOBS, RUNNER, RUNS_PER_GPU, MEMORY and SLURM as typed. Starts
    nothing. Raises `UserError`."""
    if runner == "local":
        _check_here(planned, store)
    spec = max((run.spec for run in planned.runs), key=lambda spec: spec.threads)
    if slurm and runner != "slurm":
        raise UserError(f"SLURM={shorten(slurm)!r} is for RUNNER=slurm; give RUNNER=slurm with it")
    asked = replace(demand(spec, jobs, runs_per_gpu, memory), slurm=slurm)
    if memory is None and (runner != "local" or jobs is None) and (known := precedents(spec, store)):
        if runner == "local":
            asked = replace(asked, memory=known.memory or None)
        elif known.where == "stored":
            asked = replace(asked, memory=int(SPARE * known.memory) or None)
    return make_runner(runner, asked)


def _check_here(planned: Plan, store: Store) -> None:
    """Raise `UserError` where this machine cannot carry out a run that is not stored yet."""
    for run in planned.runs:
        try:
            find_env(run.spec.env)[1].check_here(run.spec)
        except UserError:
            if not store.is_done(run.run_id):
                raise


def check_checkpoints(runs: Iterable[PlannedRun], store: Store) -> None:
    """Raise `UserError` where runs have checkpoints that were made with something else than what is here, as far as
    small files tell (a worker looks into the checkpoints themselves). Writes nothing."""
    elsewhere = []
    for run in runs:
        attempt = store.latest_attempt(run.run_id)
        if newest := checkpoint.newest_first(attempt):
            elsewhere += [
                (checkpoint.phase_of(newest[0]), describe(run), "; ".join(changes), attempt)
                for changes in [fingerprint_changes(attempt, fingerprint(run.spec))]
                if changes
            ]
    if elsewhere:
        phase, name, changes, attempt = max(elsewhere)
        count = "1 run has" if len(elsewhere) == 1 else f"{len(elsewhere)} runs have"
        raise UserError(
            f"{count} checkpoints that cannot be used here: {name} is at phase {phase}, made with something else "
            f"({changes}); run it there, or start over beside it with --restart (make: RESTART=1), which keeps it in "
            f"{attempt}"
        )


def carry_out(
    planned: Plan,
    store: Store,
    runner: Runner | int,
    watch: Callable[[int], AbstractContextManager[Listener]],
    restart: bool = False,
) -> tuple[Outcome, list[StoredRun]]:
    """Run what is missing; how each run ended, and what is stored then. A number instead of a runner: that many
    processes at a time on this machine. `watch` is called where there is something to run, with the number of runs that
    are stored already, and gives who hears of the progress. restart: start over, beside them, where no checkpoint of a
    run fits. Raises `UserError` where that is so otherwise."""
    limits = from_environment()
    stored = stored_of(planned, store)
    ids = {run.id for run in stored}
    if not restart and (isinstance(runner, int) or not runner.shared):
        check_checkpoints([run for run in planned.runs if run.run_id not in ids], store)
    store.open_for_writing()
    if len(stored) == len(planned.runs):
        return Outcome(skipped=[run.run_id for run in planned.runs]), stored
    with watch(len(stored)) as listener, nothing_of_main():
        outcome = sweep(planned.runs, store, runner, listener, limits, ids, restart)
    made = stored_of(planned, store, outcome.done)
    return outcome, sorted([*stored, *made], key=lambda run: run.id)


def stored_of(planned: Plan, store: Store, only: Collection[str] | None = None) -> list[StoredRun]:
    """What is stored of the plan, or of some of its runs, under the labels it has there (an earlier sweep may have
    used another)."""
    labels = {run.run_id: run.label for run in planned.runs if only is None or run.run_id in only}
    return [replace(run, record={**run.record, "label": labels[run.id]}) for run in store.read_all(labels)]


def describe(run: PlannedRun) -> str:
    """What a person calls the run."""
    return f"{run.label} {run.spec.env} K={run.spec.capacity} seed {run.spec.seed}"
