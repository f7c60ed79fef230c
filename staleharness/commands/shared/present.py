"""Results as a person gets them: the table on standard output, the report on disk, and an exit code that says whether
it is all."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.files import make_subfolder
from ...base.text import printable
from ...errors import UserError, nearest
from ...statistics.normalise import NORMALISATIONS
from ...statistics.results import Results
from ...statistics.scores import SCORES
from ...statistics.table import plain, render
from .arguments import Shown

if TYPE_CHECKING:
    from ...running.plan import Plan, PlannedRun
    from ...running.sweep_loop import Outcome
    from ...statistics.table import Table
    from ...store.store import Store, StoredRun


def check_shown(command: Shown) -> None:
    """Raise `UserError` for a scale or a score that is none."""
    for what, value, known in (
        ("NORMALISE", command.normalise, ("auto", *NORMALISATIONS)),
        ("SCORE", command.score, ("auto", *SCORES)),
    ):
        if value not in known:
            raise UserError(f"{what}={value!r} is unknown; {nearest(value, known)}")


def show(command: Shown, planned: Plan, store: Store, stored: list[StoredRun], outcome: Outcome) -> int:
    """Table and report of what there is, and an exit code that says whether it is all."""
    from ...running.plan_execution import describe_run

    expected = [_expected(run, outcome) for run in planned.runs]
    failures = [
        {**event, "id": run.run_id, **_expected(run, outcome)}
        for run in planned.runs
        if (event := outcome.failed.get(run.run_id))
    ]
    table, page = publish(command, store, planned.name, planned.title, Results.of(stored), expected, failures)
    for run in planned.runs:
        if failure := outcome.failed.get(run.run_id):
            words = f"failed: {describe_run(run)}: {failure['class']}: {failure['message']}"
            print(printable(words), file=sys.stderr)
            print(f"        log: {store.latest_attempt(run.run_id) / 'log.txt'}", file=sys.stderr)
    if outcome.interrupted:
        left = len(planned.runs) - len(stored)
        print(f"stopped with {left} runs to go; the same command resumes: {command_line()}", file=sys.stderr)
    if command.json:
        runs = {"done": outcome.done, "failed": sorted(outcome.failed), "skipped": outcome.skipped}
        held = {"table": table.rows, "notes": table.notes, "settings": table.settings} if table else {"table": []}
        print(json.dumps({"runs": runs, **held, "report": str(page) if page else None}, sort_keys=True))
    if outcome.interrupted:
        return 130
    if {failure["class"] for failure in failures} == {UserError.__name__}:
        return 2  # what was asked for was a mistake that no plan can see
    return 1 if len(stored) < len(planned.runs) else 0


def _expected(run: PlannedRun, outcome: Outcome) -> dict[str, Any]:
    spec, failure = run.spec, outcome.failed.get(run.run_id)
    place = {"label": run.label, "capacity": spec.capacity, "env": spec.env, "seed": spec.seed}
    return {**place, "problem": failure["class"] if failure else None}


def publish(
    command: Shown,
    store: Store,
    name: str,
    title: str,
    results: Results,
    expected: list[dict[str, Any]],
    failures: list[dict[str, Any]],
) -> tuple[Table | None, Path | None]:
    """Compute (or find) the table, print it, and write the report where something changed."""
    from ...pages import report
    from ...statistics import aggregate as stats

    try:
        grid = results.grid  # which may be none: then no folder is made
        folder = make_subfolder(store.root, "reports", name)
        table = stats.cached_table(folder, grid, expected, score=command.score, normalise=command.normalise)
    except UserError as error:
        if len(results) >= len(expected):
            raise
        print(f"no table yet: {error}", file=sys.stderr)
        return None, None
    if not results:
        print("no run has finished yet, so there is no table", file=sys.stderr)
        return table, None
    if sys.stdout.isatty() and not command.json:
        from rich.console import Console

        console = Console()
        console.print(table.headline, style="bold", highlight=False, markup=False)
        console.print(render(table, console.width))
        for note in table.notes:
            console.print(f"note: {note}", highlight=False, markup=False)
    else:
        print(plain(table), file=sys.stderr if command.json else sys.stdout)
    page = report.write(folder, results, table, failures, command_line(), title)
    print(f"report: {page}", file=sys.stderr if command.json else sys.stdout)
    return table, page


def command_line() -> str:
    return shlex.join(["staleharness", *sys.argv[1:]])
