"""`staleharness verify`: stored runs made again and compared bit for bit."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ..errors import UserError
from .shared.arguments import Help, JsonOption, PluginOption, RunFilters

if TYPE_CHECKING:
    from ..running.rerun_comparison import RerunComparison
    from ..store.store import StoredRun


@dataclass(frozen=True, kw_only=True)
class Command(JsonOption, PluginOption, RunFilters):
    """Rerun stored runs here and compare the results phase by phase: a machine of the same kind gives the same bits."""

    source: Annotated[str, Help("RUN|FOLDER")]
    """The folder of one run (results/runs/...), a results folder, or a published bundle."""
    n: Annotated[str, Help("N|all", "3")] = "3"
    """Number of runs of a folder to rerun, the quickest first."""
    jobs: Annotated[str | None, Help("N", "one per core")] = None
    """Runs at a time."""
    out: Annotated[str | None, Help("FOLDER", "a temporary folder")] = None
    """Folder for the reruns; they stay there, so that the same command resumes."""


def handle(command: Command) -> int:
    from ..api import load_plugins
    from ..base.text_formatting import plural, printable
    from ..running.plan import Plan
    from ..running.plan_execution import execute_plan, runner_for, stored_runs_of
    from ..running.rerun_comparison import compare, replan
    from ..store.store import Store
    from .shared.progress_display import listener_for

    load_plugins(command.plugin)
    runs = _select(command)
    copies = {run.id: replan(run) for run in runs}
    plan = Plan(tuple({p.run_id: p for p in copies.values()}.values()), "verify", f"verify {command.source}")
    watch = functools.partial(listener_for, len(plan.runs))
    stream = sys.stderr if command.json else sys.stdout
    own_folder = None if command.out is None else contextlib.nullcontext(command.out)
    with own_folder or tempfile.TemporaryDirectory(prefix="staleharness-verify-") as folder:
        store = Store(folder)
        earlier_runs = {run.id: run for run in stored_runs_of(plan, store)}
        for run in runs:
            rerun = earlier_runs.get(copies[run.id].run_id)
            # another execution would not take the same time to the last digit
            if rerun is not None and rerun.record["seconds"] == run.record["seconds"]:
                raise UserError(
                    f"OUT={folder} holds run {run.id} itself or a copy of it, not a rerun; give another OUT"
                )
        outcome, reruns = execute_plan(plan, store, runner_for(plan, store, command.jobs), watch, restart=True)
        rerun_by_id = {run.id: run for run in reruns}
        verdicts: list[RerunComparison] = []
        for run in runs:
            name = f"{run.id}  {copies[run.id].text}"
            if (rerun := rerun_by_id.get(copies[run.id].run_id)) is not None:
                verdicts.append(compare(run, rerun))
                print(f"{name}: " + "\n".join(map(printable, verdicts[-1].text.split("\n"))), file=stream)
            elif failure := outcome.failed.get(copies[run.id].run_id):
                print(printable(f"{name}: FAILED: {failure['class']}: {failure['message']}"), file=stream)
    identical, near = sum(v.identical for v in verdicts), sum(v.holds and not v.identical for v in verdicts)
    missing, different = len(runs) - len(verdicts), len(verdicts) - identical - near
    print(
        f"{identical} of {plural(len(runs), 'run')} identical bit for bit, {near} within the bound on another kind of "
        f"machine, {different} different, {missing} not rerun",
        file=stream,
    )
    if command.json:
        print(json.dumps({"runs": [_plain(v) for v in verdicts], "missing": missing}, sort_keys=True))
    if outcome.interrupted:
        return 130
    return 1 if different or missing else 0


def _select(command: Command) -> Sequence[StoredRun]:
    """Select the stored runs to make again, the quickest first. Raises `UserError` where none matches."""
    from ..base.parsing import whole_number
    from ..base.reference_results import results_path
    from ..lag import read_lag
    from ..store.run_selection import find_run
    from ..store.store import MARKER, Store

    path = results_path(command.source)
    place = path.resolve()
    if place.parent.name == "runs" and not (path / MARKER).exists():
        for name in ("env", "k", "algo", "where"):
            if getattr(command, name) is not None:
                raise UserError(
                    f"{command.source} is one run, and {name.upper()} chooses among those of a folder; leave it out"
                )
        runs = [find_run(str(path), "")]
    else:
        runs = list(command.select(Store(path), command.source))
    if not (runs := [run for run in runs if not read_lag(str(run.spec["lag"])).real]):
        raise UserError(
            f"{command.source} holds no run that can be rerun: processes race in a run with LAG=async, so only the "
            "trace beside its record replays it"
        )
    runs = sorted(runs, key=lambda run: (run.record["seconds"]["total"], run.id))
    if command.n == "all":
        return runs
    if (limit := whole_number(command.n, "N")) < 1:
        raise UserError(f"N={limit} must be at least 1, or all")
    return runs[:limit]


def _plain(verdict: RerunComparison) -> dict[str, object]:
    return {
        "id": verdict.run.id,
        "same": verdict.identical,
        "holds": verdict.holds,
        "equal_phases": verdict.phases,
        "first_difference": verdict.first,
        "apart": verdict.difference,
        "made_with": verdict.machine_changes,
        "code": verdict.code,
    }
