"""`staleharness report`: table and report, rebuilt. Trains nothing, and does not need the runs' plugins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .shared.arguments import PluginOption, Presentation, ResultsFolder, RunFilters, no_run

if TYPE_CHECKING:
    from ..store.stored_run import StoredRun


@dataclass(frozen=True)
class Command(PluginOption, ResultsFolder, Presentation, RunFilters):
    """Rebuild the table and report from stored results; --env, --k, --algo, --where select runs. Trains nothing."""


def handle(command: Command) -> int:
    from ..api import load, load_plugins
    from ..base.files import safe_name
    from ..statistics.results import Results
    from ..store.run_grid import Cell, cell_of, flat_settings
    from ..store.run_selection import cell_filter, filter_runs, has_settings, read_settings
    from ..store.run_states import failed_runs
    from ..store.store import Store
    from .shared.train_and_report import check_presentation, publish

    load_plugins(command.plugin)
    check_presentation(command)
    store = Store(command.out)
    store.check_readable()  # this folder, where the report goes; published ones elsewhere are not written to
    all_runs = load(command.out)
    is_selected, settings = cell_filter(command.env, command.k, command.algo), read_settings(command.where)
    all_failures = failed_runs(store)
    is_selected.check([*map(cell_of, all_runs), *(Cell(f["label"], f["capacity"], f["env"]) for f, _ in all_failures)])
    selection = filter_runs(all_runs, is_selected, command.where)
    if not selection:
        raise no_run(f"OUT={command.out}", all_runs)
    if len({(cell_of(run), run.seed) for run in selection}) < len(selection):
        from ..running.rerun_comparison import without_expired  # which loads plugins

        selection = without_expired(selection)
    runs = Results.of(selection).without_doubtful()
    if not runs:
        raise UserError(f"OUT={command.out}: no setting tells the runs that match apart, so that all are left out")
    parts = [part for part in (command.env, command.k and f"K{command.k}", command.algo, command.where) if part]
    parts += [part for part in (command.score, command.normalise) if part != "auto"]
    name = safe_name("-".join(["report", *(parts or ["all"])]), parts)
    title = f"Stored runs in {command.out}"
    failures = [
        failure
        for failure, spec in all_failures
        if is_selected(failure["label"], failure["env"], failure["capacity"])
        and has_settings(flat_settings(spec), settings)
    ]
    expected = [*map(_place, runs), *failures] if failures else []
    table, page = publish(command, store, name, title, runs, expected, failures, is_final=True)
    if command.json and table is not None:
        print(json.dumps({"table": table.rows, "notes": table.notes, "report": str(page)}, sort_keys=True))
    return 0


def _place(run: StoredRun) -> dict[str, Any]:
    from ..store.run_grid import cell_of

    cell = cell_of(run)
    return {"label": cell.label, "env": cell.env, "capacity": cell.capacity, "seed": run.seed, "problem": None}
