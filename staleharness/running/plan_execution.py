"""Execution of a plan: chooses a runner, checks checkpoints, and runs what is not stored yet.

Also finds runs at K = 1, the user's own or published ones, that share a plan's other settings, to compare it with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ..algorithm import ALGORITHMS
from ..base.console_log import LOGGER
from ..base.plugins import OWN_FILE
from ..base.process_launch import without_main_module
from ..errors import UserError, shorten
from ..store.bundle_reader import unchecked_ids
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..store.study_runs import published_bundles
from ..task import find_env
from ..training import checkpoint
from .checkpoint_recovery import fingerprint_changes
from .forecast import similar_runs
from .plan import Plan, PlannedRun
from .run_identity import run_id
from .run_record import fingerprint
from .runner_interface import Runner, resource_request
from .runners import make_runner
from .supervision import limits_from_environment
from .sweep_event_loop import Outcome, SweepListener, sweep

SPARE = 1.25  # times the memory of similar runs, if another machine has to grant it


def runner_for(
    plan: Plan,
    store: Store,
    jobs: str | None = None,
    runner: str = "local",
    runs_per_gpu: str | None = None,
    memory: str | None = None,
    slurm: str = "",
) -> Runner:
    """Make the runner from JOBS, RUNNER, RUNS_PER_GPU, MEMORY and SLURM as typed; start nothing. Raises `UserError`."""
    if runner == "local":
        _check_here(plan, store)
    spec = max((run.spec for run in plan.runs), key=lambda spec: (spec.threads, spec.capacity))
    if slurm and runner != "slurm":
        raise UserError(f"SLURM={shorten(slurm)!r} is for RUNNER=slurm; give RUNNER=slurm with it")
    request = replace(resource_request(spec, jobs, runs_per_gpu, memory), slurm=slurm)
    if memory is None and (runner != "local" or jobs is None) and (similar := similar_runs(spec, store)):
        if runner == "local":
            request = replace(request, memory=similar.memory or None)
        elif similar.where == "stored":
            request = replace(request, memory=int(SPARE * similar.memory) or None)
    return make_runner(runner, request)


def _check_here(plan: Plan, store: Store) -> None:
    """Raise `UserError` if this machine cannot execute a run that is not stored yet."""
    for run in plan.runs:
        try:
            find_env(run.spec.env)[1].check_here(run.spec)
        except UserError:
            if not store.is_done(run.run_id):
                raise


def check_checkpoints(runs: Iterable[PlannedRun], store: Store) -> None:
    """Raise `UserError` if checkpoints of the runs do not fit this machine, as far as small files tell (a worker reads
    the checkpoints themselves). Writes nothing."""
    misfits = []
    for run in runs:
        attempt = store.latest_attempt(run.run_id)
        newest = checkpoint.newest_first(attempt)
        if newest and (changes := fingerprint_changes(attempt, fingerprint(run.spec))):
            misfits.append((checkpoint.phase_of(newest[0]), run.text, "; ".join(changes), attempt))
    if misfits:
        phase, name, reason, attempt = max(misfits)
        count = "1 run has" if len(misfits) == 1 else f"{len(misfits)} runs have"
        raise UserError(
            f"{count} checkpoints that cannot be used here: {name} is at phase {phase}, made with other software "
            f"or hardware ({reason}); continue it there, or start over with --restart (make: RESTART=1), which keeps "
            f"the checkpoints in {attempt}"
        )


def execute_plan(
    plan: Plan,
    store: Store,
    runner: Runner,
    watch: Callable[[Collection[str]], AbstractContextManager[SweepListener]],
    restart: bool = False,
) -> tuple[Outcome, list[StoredRun]]:
    """Run what is missing; return how each run ended, and all stored runs of the plan.

    watch: called with the ids of stored runs if something has to run; returns the listener. restart: start a run over
    if none of its checkpoints fits, and keep them; otherwise that raises `UserError`.
    """
    _check_importable(plan)
    limits = limits_from_environment()
    runs = stored_runs_of(plan, store)
    ids = {run.id for run in runs}
    if not restart and not runner.multi_machine:
        check_checkpoints([run for run in plan.runs if run.run_id not in ids], store)
    store.open_for_writing()
    _warn_of_keep(plan, runs)
    if len(runs) == len(plan.runs):
        return Outcome(skipped=[run.run_id for run in plan.runs]), runs
    with watch(ids) as listener, without_main_module():
        outcome = sweep(plan.runs, store, runner, listener, limits, ids, restart)
    runs += stored_runs_of(plan, store, outcome.done)
    return outcome, sorted(runs, key=lambda run: run.id)


def _check_importable(plan: Plan) -> None:
    """Raise `UserError` for a method of the script that calls, which workers do not execute."""
    for name in dict.fromkeys(run.spec.algorithm for run in plan.runs):
        if ALGORITHMS[name].__module__ == "__main__":
            raise UserError(f"ALGO={name} is defined in the script itself, which workers do not execute; {OWN_FILE}")


def _warn_of_keep(plan: Plan, runs: Iterable[StoredRun]) -> None:
    """Log if stored runs were made with another `keep`, which is not part of their ids: they are not made again."""
    specs = {run.run_id: run.spec for run in plan.runs}
    keeps = [({**specs[run.id].before(), **run.spec}.get("keep"), getattr(specs[run.id], "keep", None)) for run in runs]
    if others := sum(earlier != now for earlier, now in keeps):
        text = "%s stored with another keep= and will not be made again; to do so, move its folder in runs/ away"
        LOGGER.warning(text, "1 run is" if others == 1 else f"each of {others} runs is")


def stored_runs_of(plan: Plan, store: Store, only: Collection[str] | None = None) -> list[StoredRun]:
    """Read the stored runs of a plan, or those with ids in `only`, with the plan's labels (an earlier sweep may have
    used others)."""
    labels = {run.run_id: run.label for run in plan.runs if only is None or run.run_id in only}
    return [replace(run, record={**run.record, "label": labels[run.id]}) for run in store.read_all(labels)]


@dataclass(frozen=True)
class LagReference:
    """Runs at K = 1 to compare a sweep with."""

    user_runs: list[StoredRun]  # of the user's results folder
    published: list[StoredRun]  # of methods without runs of the user
    bundles: list[str]  # bundles of the published runs

    @property
    def settings(self) -> dict[str, list[str]]:
        """Published rows, as a table's settings name them."""
        algorithms = sorted({run.label for run in self.published})
        machines = sorted({str(run.record["fingerprint"].get("cpu")) for run in self.published})
        return {"algorithms": algorithms, "bundles": self.bundles, "machines": machines}


def synchronous_reference(plan: Plan, store: Store) -> LagReference:
    """Find runs at K = 1 that equal the plan's in every other setting, of methods that it has at K > 1 only; they have
    the plan's labels (an earlier sweep may have used others)."""
    synchronous = {(run.label, run.spec.env) for run in plan.runs if run.spec.capacity == 1}
    places: dict[str, tuple[str, str]] = {}
    for run in plan.runs:
        if (place := (run.label, run.spec.env)) not in synchronous:
            try:
                spec = replace(run.spec, capacity=1)
                places[run_id(spec, find_env(spec.env)[1])] = place
            except UserError:
                continue  # a lag model that needs more than one version

    def with_label(run: StoredRun) -> StoredRun:
        return replace(run, record={**run.record, "label": places[run.id][0]})

    user_runs = [with_label(run) for run in store.read_all(places)] if places else []
    user_places = {places[run.id] for run in user_runs}
    ids = {key for key, place in places.items() if place not in user_places}
    published: list[tuple[StoredRun, str]] = []
    for bundle in published_bundles():
        if not ids:
            break
        if ids_in_bundle := ids & unchecked_ids(bundle):
            published += [(with_label(run), bundle.name) for run in Store(bundle).read_all(sorted(ids_in_bundle))]
            ids -= ids_in_bundle
    return LagReference(user_runs, [run for run, _ in published], sorted({bundle for _, bundle in published}))
