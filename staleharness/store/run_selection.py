"""Selection of stored runs: one by its id or folder, or many by environment, capacity, method and settings."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.parsing import is_empty, parse_assignments, split_list, user_path, whole_number, without_n
from ..base.reference_results import results_path
from ..base.text_formatting import listing, plural
from ..errors import UserError, nearest, shorten
from ..study import plain_env
from .bundle_reader import is_packed
from .locks_and_leases import MARKER
from .record_schema import is_id
from .run_grid import Cell, flat_settings
from .store import Store
from .stored_run import StoredRun, with_newer_settings

Filter = str | int | Iterable[str | int] | None  # "1,8" as typed, 8, [1, 8]; None and "all" select everything
Settings = str | Mapping[str, Any] | None  # "lag=oldest,epochs=2" as typed, {"lag": "oldest", "seed": [0, 1]}
MAX_NAMES = 3  # of runs, in an error line
REMEDY = "give the id of a run, or its folder results/runs/<id>"


def filter_runs(runs: Iterable[StoredRun], is_selected: CellFilter, where: Settings = None) -> list[StoredRun]:
    """Select stored runs by cell and settings.

    A run that is older than a setting counts with the value that reproduces it; a list in `where` selects any of its
    values. Raises `UserError` for a setting that no run has, and an empty `where`.
    """
    runs = list(runs)
    settings = read_settings(where)
    specs = [flat_settings(run.spec) for run in with_newer_settings(runs)]
    names = {name for spec in specs for name in spec}
    for name in settings:
        if names and name not in names:
            raise UserError(f"WHERE: no run here has a setting {name!r}; {nearest(name, names)}")
    return [
        run
        for run, spec in zip(runs, specs, strict=True)
        if is_selected(run.label, run.spec["env"], run.spec["capacity"]) and has_settings(spec, settings)
    ]


def read_settings(where: Settings) -> dict[str, Any]:
    """Read the settings of a filter. Raises `UserError`."""
    if isinstance(where, str) and is_empty(where):
        raise UserError(f"WHERE={where!r} is empty; give NAME=VALUE, or leave it out for all runs")
    return parse_assignments(where, "WHERE") if isinstance(where, str) else dict(where or {})


def has_settings(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a flat spec (`flat_settings`) has the settings, each the selected value or one of a list."""
    return all(name in spec and _is_one_of(spec[name], value) for name, value in settings.items())


@dataclass(frozen=True)
class CellFilter:
    """Selected environments, capacities and labels; an empty set selects all."""

    envs: frozenset[str]
    capacities: frozenset[int]
    labels: frozenset[str]

    def __call__(self, label: str, env: str, capacity: int) -> bool:
        return (
            (not self.envs or bool(_spellings(env) & self._lower))
            and (not self.capacities or capacity in self.capacities)
            and (not self.labels or bool({label, without_n(label)} & self.labels))
        )

    @functools.cached_property
    def _lower(self) -> set[str]:
        return {env.lower() for env in self.envs}

    def check(self, cells: Iterable[Cell]) -> None:
        """Raise `UserError` for a name that no cell has. Without any cell there is nothing to compare with."""
        if not (cells := list(cells)):
            return
        envs, labels, capacities = {c.env for c in cells}, {c.label for c in cells}, {c.capacity for c in cells}
        spellings = set[str]().union(*map(_spellings, envs))
        for env in sorted(env for env in self.envs if env.lower() not in spellings):
            raise UserError(f"ENV: no run here is of {env!r}; {nearest(env, envs)}")
        for label in sorted(self.labels - labels - set(map(without_n, labels))):
            raise UserError(f"ALGO: no run here is of {label!r}; {nearest(label, labels)}")
        for k in sorted(self.capacities - capacities):
            raise UserError(f"K: no run here has {k}; known: {', '.join(map(str, sorted(capacities)))}")


def cell_filter(env: Filter = None, k: Filter = None, algo: Filter = None) -> CellFilter:
    """Read filters of environments (with or without their version), capacities and algorithms (as tables name them,
    with or without ` N=...`). Raises `UserError` for a capacity that is no number, and an empty filter."""
    capacities = frozenset(whole_number(number, "K") for number in _names(k, "K"))
    return CellFilter(frozenset(_names(env, "ENV")), capacities, frozenset(_names(algo, "ALGO")))


def _spellings(env: str) -> set[str]:
    return {plain_env(env), env.lower()}


def _is_one_of(value: Any, selection: Any) -> bool:
    """Return whether a setting has the selected value, or one of a list of them."""
    values = selection if isinstance(selection, list | tuple | set | range) and value != selection else [selection]
    return any(value == v or str(value) == str(v) for v in values)


def _names(values: Filter, option: str) -> list[str]:
    """Return the names in a filter, an empty list for all. Raises `UserError` for an empty filter."""
    if values is None or (isinstance(values, str) and values == "all"):
        return []
    if isinstance(values, str):
        names = [] if is_empty(values) else split_list(values)
    else:
        names = [str(v) for v in (values if isinstance(values, Iterable) else [values])]
    if not names:
        raise UserError(f"{option}={values!r} is empty; name one or several, or leave it out for all")
    return names


def find_run(text: str, out: str, argument: str = "RUN") -> StoredRun:
    """Return the finished run that `text` names; an id is looked up in the results folder `out`.

    argument: its name, for the error line. Raises `UserError` that names the nearest run.
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
            f"the ids of {plural(len(matches), 'run')} in {store.root} begin with {text!r}; give more digits"
        )
    if not matches:
        raise UserError(
            f"{argument}={shorten(text)!r}: there is no finished run with that id in {store.root}; "
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
