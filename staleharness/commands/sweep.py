"""`staleharness sweep`: train what is missing of a grid, then show table and report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from .shared.arguments import SWITCH, Grid, Room, Shown

if TYPE_CHECKING:
    from ..running.plan import Plan
    from ..running.runner import Runner
    from ..store.store import Store


@dataclass(frozen=True)
class Command(Shown, Room, Grid):
    """Train every algorithm x environment x capacity x seed that is not stored yet, then show the table and report."""

    dry: Annotated[bool, SWITCH] = False
    """Only say what would run, how long it would take and how much disk, as far as stored runs tell; starts and loads
    nothing."""
    list: Annotated[bool, SWITCH] = False
    """With --dry: list every run, one per line."""
    probe: Annotated[bool, SWITCH] = False
    """With --dry: measure the speed here for a few seconds where no stored run tells it."""


def handle(command: Command) -> int:
    from ..statistics.normalise import check_scale
    from ..store.store import Store
    from ..task import find_env
    from .shared.execute import execute, planned_of, runner_of
    from .shared.present import check_shown

    check_shown(command)
    planned = planned_of(command)
    score = find_env(planned.envs[0])[1].score if command.score == "auto" else command.score
    check_scale(command.normalise, score, planned.envs, planned.labels, planned.capacities)
    store = Store(command.out)
    store.check()
    runner = runner_of(command, planned, store)
    if command.dry or command.list or command.probe:
        return _dry(command, planned, store, runner)
    return execute(command, planned, store, runner, command.restart)


def _dry(command: Command, planned: Plan, store: Store, runner: Runner) -> int:
    """Say what there is to run, and what it takes."""
    from ..running.forecast import estimate, lag_notes
    from ..running.plan import plan_as_data
    from ..running.plan_execution import check_checkpoints, describe_run, stored_runs_of
    from .shared.execute import say_plan

    stream = sys.stderr if command.json else sys.stdout
    jobs = runner.capacity  # 0 where only the runner's machines can tell
    done = {run.id for run in stored_runs_of(planned, store)}
    if not command.restart and not runner.multi_machine:
        check_checkpoints([run for run in planned.runs if run.run_id not in done], store)
    guess = estimate([run for run in planned.runs if run.run_id not in done], store, jobs or 1, command.probe)
    say_plan(planned, len(done), jobs, stream)
    for run in planned.runs if command.list else ():
        print(f"{run.run_id}  {'done' if run.run_id in done else 'to do':5}  {describe_run(run)}", file=stream)
    print(guess.text if jobs or not guess.seconds else f"{guess.text}, one at a time", file=stream)
    if command.json:
        cells = [{**cell, "done": cell["id"] in done} for cell in plan_as_data(planned)]
        content = {"dry": True, "plan": cells, "seconds": guess.seconds, "bytes": guess.bytes}
        content |= {"checkpoint_bytes": guess.checkpoints, "notes": lag_notes(planned)}
        print(json.dumps(content, sort_keys=True))
    return 0
