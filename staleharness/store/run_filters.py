"""Selection of stored runs by environment, capacity, method and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.parsing import is_empty, parse_assignments, split_list, whole_number
from ..errors import UserError, nearest
from ..study import plain_env
from .run_grid import flat_settings
from .stored_run import StoredRun, with_newer_settings

Filter = str | int | Iterable[str | int] | None  # "1,8" as typed, 8, [1, 8]; None and "all" select everything
Settings = str | Mapping[str, Any] | None  # "lag=oldest,epochs=2" as typed, {"lag": "oldest", "seed": [0, 1]}


def select_runs(
    runs: Iterable[StoredRun], env: Filter = None, k: Filter = None, algo: Filter = None, where: Settings = None
) -> list[StoredRun]:
    """Select stored runs by environment (with or without its version), capacity, algorithm (as tables name it, with or
    without ` N=...`) and settings.

    A run that is older than a setting counts with the value that reproduces it; a list in `where` selects any of its
    values. Raises `UserError` for a capacity that is no number, a setting that no run has, and an empty filter.
    """
    runs = list(runs)
    is_selected = cell_filter(env, k, algo)
    if isinstance(where, str) and is_empty(where):
        raise UserError(f"WHERE={where!r} is empty; give NAME=VALUE, or leave it out for all runs")
    settings = parse_assignments(where, "WHERE") if isinstance(where, str) else dict(where or {})
    specs = [flat_settings(run.spec) for run in with_newer_settings(runs)]
    names = {name for spec in specs for name in spec}
    for name in settings:
        if names and name not in names:
            raise UserError(f"WHERE: no run here has a setting {name!r}; {nearest(name, names)}")
    return [
        run
        for run, spec in zip(runs, specs, strict=True)
        if is_selected(run.label, run.spec["env"], run.spec["capacity"])
        and all(name in spec and _is_one_of(spec[name], v) for name, v in settings.items())
    ]


def cell_filter(env: Filter = None, k: Filter = None, algo: Filter = None) -> Callable[[str, str, int], bool]:
    """Return whether a run's label, environment and capacity are selected, as a function. Raises `UserError`."""
    envs = {name.lower() for name in _names(env, "ENV")}
    capacities = {whole_number(number, "K") for number in _names(k, "K")}
    labels = set(_names(algo, "ALGO"))

    def is_selected(label: str, place: str, capacity: int) -> bool:
        return (
            (not envs or bool({plain_env(place), place.lower()} & envs))
            and (not capacities or capacity in capacities)
            and (not labels or bool({label, _without_n(label)} & labels))
        )

    return is_selected


def _without_n(label: str) -> str:
    return label.partition(" N=")[0]


def _is_one_of(value: Any, selection: Any) -> bool:
    """Return whether a setting has the selected value, or one of a list of them."""
    values = selection if isinstance(selection, list | tuple | set | range) and value != selection else [selection]
    return any(value == v or str(value) == str(v) for v in values)


def _names(values: Filter, option: str) -> list[str]:
    """Return the names in a filter, none for all. Raises `UserError` for an empty filter."""
    if values is None or (isinstance(values, str) and values == "all"):
        return []
    if isinstance(values, str):
        names = [] if is_empty(values) else split_list(values)
    else:
        names = [str(v) for v in (values if isinstance(values, Iterable) else [values])]
    if not names:
        raise UserError(f"{option}={values!r} is empty; name one or several, or leave it out for all")
    return names
