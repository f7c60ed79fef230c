"""`staleharness export tensorboard|wandb|csv`: stored runs in the formats of other tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UserError
from .shared.arguments import Help, JsonOption, PluginOption, ResultsFolder, RunFilters


@dataclass(frozen=True, kw_only=True)
class Command(JsonOption, PluginOption, ResultsFolder, RunFilters):
    """Write stored runs for other tools, each run under its own id: exporting again changes nothing."""

    kind: Annotated[str, Help("tensorboard|wandb|csv")]
    """Format: event files, W&B runs (offline; `wandb sync` uploads them), or metrics.csv and runs.csv."""
    to: Annotated[str | None, Help("FOLDER", "OUT/exports/KIND")] = None
    """Folder to write to."""


def handle(command: Command) -> int:
    """Export the runs that match, in the order of their ids. Raises `UserError` before anything is written."""
    from ..api import load_plugins
    from ..base.files import make_subfolder
    from ..base.text_formatting import plural, printable
    from ..exporters.exporter import EXPORTERS
    from ..store.store import Store

    load_plugins(command.plugin)
    exporter = EXPORTERS[command.kind]
    exporter.check()
    store = Store(command.out)
    runs = command.select(store, f"OUT={command.out}")
    to = command.to
    folder = make_subfolder(store.root, "exports", command.kind) if to is None else _target_folder(to)
    paths = exporter.write(runs, folder)
    if command.json:
        content = {"kind": command.kind, "folder": str(folder), "runs": [r.id for r in runs]}
        print(json.dumps({**content, "files": [str(p) for p in paths]}, sort_keys=True))
    else:
        print(printable(f"exported {plural(len(runs), 'run')}: {exporter.then.format(folder=folder)}"))
    return 0


def _target_folder(to: str) -> Path:
    from ..base.parsing import user_path
    from ..store.results_folder_checks import check_apart

    folder = user_path(to)
    check_apart(folder, f"TO={to}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"TO={to} is a file; give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"TO={folder} cannot be made: {error.strerror}") from error
    return folder
