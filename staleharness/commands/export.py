"""`staleharness export tensorboard|wandb|csv`: stored runs for other tools. The files of a run stay the truth."""

from __future__ import annotations

import json

from ..base.files import user_path
from ..base.text import plural, printable
from ..errors import UserError
from ..exporters.registry import EXPORTERS
from ..statistics.results import Results
from ..store.store import Store
from .arguments import Export


def export(command: Export) -> int:
    """Export the runs that match, in the order of their ids. Raises `UserError` before anything is written."""
    exporter = EXPORTERS[command.kind]
    exporter.check()
    store = Store(command.out)
    store.check_readable()
    stored = Results.of(store.read_all())
    runs = stored.select(env=command.env, k=command.k, algo=command.algo)
    if not runs:
        raise UserError(f"OUT={command.out} holds no finished run{' that matches' if stored else ''}")
    folder = store.root / "exports" / command.kind if command.to is None else user_path(command.to)
    if command.to == "" or (folder.exists() and not folder.is_dir()):
        raise UserError(f"TO={command.to} is {'empty' if command.to == '' else 'a file'}; give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"TO={folder} cannot be made: {error.strerror}") from error
    paths = exporter.write(runs, folder)
    if command.json:
        found = {"kind": command.kind, "folder": str(folder), "runs": [r.id for r in runs]}
        print(json.dumps({**found, "files": [str(p) for p in paths]}, sort_keys=True))
    else:
        print(printable(f"exported {plural(len(runs), 'run')}: {exporter.then.format(folder=folder)}"))
    return 0
