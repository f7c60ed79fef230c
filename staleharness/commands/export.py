"""`staleharness export tensorboard|wandb|csv`: stored runs for other tools. The files of a run stay the truth."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import UserError, nearest
from .shared.arguments import SWITCH, Chosen, place, value

if TYPE_CHECKING:
    from ..store.store import StoredRun


@dataclass(frozen=True)
class Kind:
    """An exporter: its room, with `write(runs, folder) -> paths`; the extra it needs; what to do with the result."""

    room: str
    extra: str | None
    next: str

    def writer(self) -> Callable[[Sequence[StoredRun], Path], list[Path]]:
        write: Callable[[Sequence[StoredRun], Path], list[Path]]
        write = importlib.import_module(f"staleharness.exporters.{self.room}").write
        return write


KINDS = {
    "csv": Kind("long_csv", None, "{folder}/metrics.csv, {folder}/runs.csv"),
    "tensorboard": Kind("event_files", "tensorboard", "tensorboard --logdir {folder}"),
    "wandb": Kind("wandb_runs", "wandb", "nothing was sent; wandb sync {folder}/wandb/offline-run-*"),
}


@dataclass(frozen=True, kw_only=True)
class Command(Chosen):
    """Stored runs for other tools, each run under its own id: exporting again changes nothing."""

    kind: Annotated[str, place("tensorboard|wandb|csv")]
    """What to write: event files, W&B runs (offline; `wandb sync` sends them), or metrics.csv and runs.csv."""
    out: Annotated[str, value("FOLDER", "results")] = "results"
    """Folder with results."""
    to: Annotated[str | None, value("FOLDER", "OUT/exports/KIND")] = None
    """Where to write."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    """Export the runs that match, in the order of their ids. Raises `UserError` before anything is written."""
    from ..base.files import user_path
    from ..base.text import plural, printable
    from ..store.choose import chosen
    from ..store.store import Store

    if command.kind not in KINDS:
        raise UserError(f"export {command.kind!r} is unknown; {nearest(command.kind, KINDS)}")
    kind = KINDS[command.kind]
    if kind.extra is not None and importlib.util.find_spec(kind.extra) is None:
        raise UserError(
            f"export {command.kind} needs the extra {kind.extra}: make setup EXTRAS={kind.extra}, "
            f"or pip install 'staleharness[{kind.extra}]'"
        )
    store = Store(command.out)
    store.check_readable()
    stored = store.read_all()
    runs = chosen(stored, command.env, command.k, command.algo)
    if not runs:
        raise UserError(f"OUT={command.out} holds no finished run{' that matches' if stored else ''}")
    folder = store.root / "exports" / command.kind if command.to is None else user_path(command.to)
    if command.to == "" or (folder.exists() and not folder.is_dir()):
        raise UserError(f"TO={command.to} is {'empty' if command.to == '' else 'a file'}; give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"TO={folder} cannot be made: {error.strerror}") from error
    paths = kind.writer()(runs, folder)
    if command.json:
        found = {"kind": command.kind, "folder": str(folder), "runs": [r.id for r in runs]}
        print(json.dumps({**found, "files": [str(p) for p in paths]}, sort_keys=True))
    else:
        print(printable(f"exported {plural(len(runs), 'run')}: {kind.next.format(folder=folder)}"))
    return 0
