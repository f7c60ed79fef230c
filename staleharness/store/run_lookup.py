"""Finished run by what a user types: the folder of the run, its id, or the first digits of the id."""

from __future__ import annotations

from ..base.parsing import user_path
from ..base.reference_results import results_path
from ..base.text import listing, plural
from ..errors import UserError, nearest, shorten
from .bundle_reader import is_packed
from .locks import MARKER
from .record_schema import is_id
from .store import Store
from .stored_run import StoredRun

MAX_NAMES = 3  # of runs, in an error line
REMEDY = "give the id of a run, or its folder results/runs/<id>"


def find_run(text: str, out: str, argument: str = "RUN") -> StoredRun:
    """Return the finished run that `text` names; an id is looked up in the results folder `out`.

    argument: its name, for the error line. Raises `UserError` with the nearest run.
    """
    path = user_path(text)
    home, name = path.resolve().parent.parent, path.resolve().name
    if is_id(name) and (path.is_dir() or is_packed(home)):  # a bundle has no folders of runs
        return _in_store(Store(home), name, argument)
    if path.is_dir():
        inside = Store(path).read_all() if (path / MARKER).is_file() else []
        hint = _examples([run.id for run in inside], "it") if inside else REMEDY
        raise UserError(f"{argument}={shorten(text)} is not the folder of a run; {hint}")
    if path.exists():
        raise UserError(f"{argument}={shorten(text)} is a file; {REMEDY}")
    if path.name != text:
        folder = next(parent for parent in path.parents if parent.exists())
        names = [child.name for child in folder.iterdir() if is_id(child.name)] if folder.is_dir() else []
        absent = f"there is no folder {folder / path.relative_to(folder).parts[0]}"
        hint = absent if folder != path.parent else _nearest(path.name, names, str(folder))
        raise UserError(f"{argument}={shorten(text)} does not exist; {hint}")
    store = Store(results_path(out))
    store.check_readable(f"OUT={out}")
    return _in_store(store, text, argument)


def _in_store(store: Store, text: str, argument: str) -> StoredRun:
    """Return the run of the folder whose id begins with `text`. Raises `UserError`."""
    store.check_readable()
    if is_id(text) and (run := store.read(text)) is not None:
        return run
    if is_id(text) and store.attempts(text):
        raise UserError(f"{argument}={text} is not finished; `staleharness status` says how far it is")
    runs = {run.id: run for run in store.read_all()}
    matches = [run_id for run_id in runs if run_id.startswith(text)]
    if len(matches) > 1:
        raise UserError(
            f"the ids of {plural(len(matches), 'run')} in {store.root} begin with {text!r}; give more of the id"
        )
    if not matches:
        raise UserError(
            f"{argument}={shorten(text)!r}: there is no finished run of that id in {store.root}; "
            f"{_nearest(text, list(runs), 'it')}"
        )
    return runs[matches[0]]


def _nearest(name: str, ids: list[str], where: str) -> str:
    """Return the end of an error line: the id nearest to a name, or the first of all ids."""
    hint = nearest(name, ids)
    return hint if hint.startswith("did you mean") else _examples(ids, where)


def _examples(ids: list[str], where: str) -> str:
    """Return the end of an error line: the first of the ids."""
    if not ids:
        return f"{where} holds no finished run"
    hint = " (`staleharness status`)" if len(ids) > MAX_NAMES else ""
    return f"{where} holds {listing(sorted(ids), MAX_NAMES)}{hint}"
