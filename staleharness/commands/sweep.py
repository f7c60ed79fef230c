"""`staleharness sweep`: train the missing runs of a grid, then show the table and report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from .shared.arguments import SWITCH, GridOptions, Presentation, Resources

if TYPE_CHECKING:
    from ..running.plan import Plan
    from ..running.runner_interface import Runner
    from ..store.store import Store


@dataclass(frozen=True)
class Command(Presentation, Resources, GridOptions):
    """Train every algorithm x environment x capacity x seed that is not stored yet, then show the table and report."""

    dry: Annotated[bool, SWITCH] = False
    """Only print what would run, and how much time and disk it would take, as far as stored runs tell. Starts nothing
    and loads no weights; the configuration of a hub model and GSM8K's problems are fetched if not cached."""
    list: Annotated[bool, SWITCH] = False
    """With --dry, list every run, one per line."""
    probe: Annotated[bool, SWITCH] = False
    """With --dry, measure the speed here for a few seconds if no stored run tells it."""


def handle(command: Command) -> int:
    from ..statistics.scores import check_scale
    from ..store.store import Store
    from ..task import find_env
    from .shared.train_and_report import check_presentation, execute, plan_grid, runner_of

    check_presentation(command)
    plan = plan_grid(command)
    score = find_env(plan.envs[0])[1].score if command.score == "auto" else command.score
    check_scale(command.normalise, score, plan.envs, plan.labels, plan.capacities)
    store = Store(command.out)
    store.check()
    runner = runner_of(command, plan, store)
    if command.dry or command.list or command.probe:
        return _dry(command, plan, store, runner)
    return execute(command, plan, store, runner, command.restart)


def _dry(command: Command, plan: Plan, store: Store, runner: Runner) -> int:
    """Say what there is to run, and what it takes."""
    from ..running.forecast import estimate, lag_notes
    from ..running.plan import plan_as_data
    from ..running.plan_execution import check_checkpoints, stored_runs_of
    from .shared.train_and_report import print_plan

    stream = sys.stderr if command.json else sys.stdout
    jobs = runner.capacity  # 0 where only the runner's machines can tell
    done = {run.id for run in stored_runs_of(plan, store)}
    missing = [run for run in plan.runs if run.run_id not in done]
    if not command.restart and not runner.multi_machine:
        check_checkpoints(missing, store)
    guess = estimate(missing, store, jobs or 1, command.probe)
    print_plan(plan, len(done), jobs, stream)
    for run in plan.runs if command.list else ():
        print(f"{run.run_id}  {'done' if run.run_id in done else 'to do':5}  {run.text}", file=stream)
    print(guess.text if jobs or not guess.seconds else f"{guess.text}, one at a time", file=stream)
    if command.json:
        cells = [{**cell, "done": cell["id"] in done} for cell in plan_as_data(plan)]
        content = {"dry": True, "plan": cells, "seconds": guess.seconds, "bytes": guess.bytes}
        content |= {"checkpoint_bytes": guess.checkpoints, "notes": lag_notes(plan)}
        print(json.dumps(content, sort_keys=True))
    return 0
