"""From a grid as typed to its runs, and those to a table, a report and an exit code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from ...api import plan
from ...running.forecast import estimate, lag_notes
from ...running.plan_execution import execute_plan, runner_for, stored_runs_of
from ...running.sweep_loop import SweepListener
from .arguments import Grid, Room, Shown
from .display import listener_for
from .present import show

if TYPE_CHECKING:
    from ...running.plan import Plan
    from ...running.runner import Runner
    from ...store.store import Store


def planned_of(command: Grid, seeds: Sequence[int] | None = None) -> Plan:
    """The runs that were asked for, of the seeds given here where there are any. Raises `UserError`."""
    return plan(
        env=command.env,
        k=command.k,
        algo=command.algo,
        seeds=command.seeds if seeds is None else seeds,
        steps=command.steps,
        preset=command.preset,
        lag=command.lag,
        n=command.n,
        model=command.model,
        data=command.data,
        device=command.device,
        settings=command.set,
        spec=command.spec,
        plugin=command.plugin,
    )


def runner_of(command: Room, planned: Plan, store: Store) -> Runner:
    """Who carries them out, as asked. Raises `UserError`."""
    room = command.jobs, command.runner, command.runs_per_gpu, command.memory, command.slurm
    return runner_for(planned, store, *room)


def execute(command: Shown, planned: Plan, store: Store, runner: Runner, restart: bool = False) -> int:
    """Run what is missing under a person's eyes, show what there is then, and return the exit code."""

    @contextlib.contextmanager
    def watch(done: int) -> Iterator[SweepListener]:
        say_plan(planned, done, runner.capacity)
        held = {run.id for run in stored_runs_of(planned, store)}
        guess = estimate([run for run in planned.runs if run.run_id not in held], store, runner.capacity or 1)
        if guess.seconds is not None and runner.capacity:
            print(guess.text, file=sys.stderr)
        listener = listener_for(len(planned.runs), done)
        try:
            yield listener
        finally:
            listener.close()

    outcome, stored = execute_plan(planned, store, runner, watch, restart)
    return show(command, planned, store, stored, outcome)


def say_plan(planned: Plan, done: int, jobs: int, stream: TextIO | None = None) -> None:
    """How big the sweep is, on stderr where no stream is given; `jobs` at a time, 0 where that is not known yet."""
    stream = stream or sys.stderr
    sizes = (planned.labels, "algorithm"), (planned.envs, "environment"), (planned.capacities, "capacity")
    grid = " x ".join(_counted(len(names), what) for names, what in sizes)
    most = jobs or "as many as fit"
    waiting = f"{len(planned.runs) - done} of {len(planned.runs)} runs to do, {most} at a time"
    print(f"{planned.title}: {grid}; {waiting}", file=stream)
    print(f"each run: {planned.runs[0].spec.size}", file=stream)
    for why in planned.notes:
        print(f"left out: {why}", file=stream)
    for line in lag_notes(planned):
        print(f"note: {line}", file=stream)


def _counted(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"
