"""`staleharness report`: table and report again. Trains nothing, and needs no plugin of the runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from .shared.arguments import Help, Presentation, RunFilters, no_run

if TYPE_CHECKING:
    from ..store.stored_run import StoredRun


@dataclass(frozen=True)
class Command(Presentation, RunFilters):
    """Make the table and report again from stored results; --env, --k, --algo, --where select runs. Trains nothing."""

    out: Annotated[str, Help("FOLDER", "results")] = "results"
    """Folder with results."""
    plugin: Annotated[str | None, Help("PATH,...")] = None
    """Plugin files or folders with figures to load besides the built-in ones."""


def handle(command: Command) -> int:
    from ..api import load, load_plugins
    from ..base.files import safe_name
    from ..store.run_filters import cell_filter
    from ..store.run_states import failed_runs
    from ..store.store import Store
    from .shared.train_and_report import check_presentation, publish

    load_plugins(command.plugin)
    check_presentation(command)
    store = Store(command.out)
    store.check_readable()  # here, where the report goes; what is published elsewhere is not written to
    all_runs = load(command.out)
    runs = all_runs.select(env=command.env, k=command.k, algo=command.algo, where=command.where).without_doubtful()
    if not runs:
        raise no_run(f"OUT={command.out}", all_runs)
    parts = [part for part in (command.env, command.k and f"K{command.k}", command.algo, command.where) if part]
    name = safe_name("-".join(["report", *(parts or ["all"])]), parts)
    title = f"Stored runs in {command.out}"
    failures = failed_runs(store, cell_filter(command.env, command.k, command.algo)) if command.where is None else []
    expected = [*map(_place, runs), *failures] if failures else []
    table, page = publish(command, store, name, title, runs, expected, failures)
    if command.json and table is not None:
        print(json.dumps({"table": table.rows, "notes": table.notes, "report": str(page)}, sort_keys=True))
    return 0


def _place(run: StoredRun) -> dict[str, Any]:
    from ..store.run_grid import cell_of

    cell = cell_of(run)
    return {"label": cell.label, "env": cell.env, "capacity": cell.capacity, "seed": run.seed, "problem": None}
