"""Selection of stored runs by environment, capacity, method and settings."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.parsing import is_empty, parse_assignments, split_list, whole_number, without_n
from ..errors import UserError, nearest
from ..study import plain_env
from .run_grid import Cell, flat_settings
from .stored_run import StoredRun, with_newer_settings

Filter = str | int | Iterable[str | int] | None  # "1,8" as typed, 8, [1, 8]; None and "all" select everything
Settings = str | Mapping[str, Any] | None  # "lag=oldest,epochs=2" as typed, {"lag": "oldest", "seed": [0, 1]}


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
