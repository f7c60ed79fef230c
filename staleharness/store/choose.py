"""Which stored runs somebody wants to see: filters as people type them, and as programs give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.parsing import is_empty, parse_assignments, split_list, whole_number
from ..errors import UserError, nearest
from .cells import flat
from .stored_run import StoredRun, up_to_date
from .study import plain_env

Wanted = str | int | Iterable[str | int] | None  # `"1,8"` as typed, 8, [1, 8]; None and "all" for everything
Settings = str | Mapping[str, Any] | None  # "lag=oldest,epochs=2" as typed, {"lag": "oldest", "epochs": 2}


def chosen(
    runs: Iterable[StoredRun], env: Wanted = None, k: Wanted = None, algo: Wanted = None, where: Settings = None
) -> list[StoredRun]:
    """The runs, as they are stored, of these environments (with or without their version), capacities and algorithms
    (as tables name them, with or without ` N=...`), `where` settings have these values. A run that is older than a
    setting has the value that means what it did. Raises `UserError` for a capacity that is no number, a setting that no
    run has, and a filter that is empty."""
    runs = list(runs)
    envs = {plain_env(name) for name in _names(env, "ENV")}
    capacities = {whole_number(number, "K") for number in _names(k, "K")}
    labels = set(_names(algo, "ALGO"))
    if isinstance(where, str) and is_empty(where):
        raise UserError(f"WHERE={where!r} is empty; give NAME=VALUE, or leave it out for all runs")
    settings = parse_assignments(where, "WHERE") if isinstance(where, str) else dict(where or {})
    specs = [flat(run.spec) for run in up_to_date(runs)]
    _check_known(settings, specs)
    return [
        run
        for run, spec in zip(runs, specs, strict=True)
        if (not envs or {plain_env(run.spec["env"]), run.spec["env"].lower()} & envs)
        and (not capacities or run.spec["capacity"] in capacities)
        and (not labels or {run.label, run.label.partition(" N=")[0]} & labels)
        and _has(spec, settings)
    ]


def _check_known(settings: Mapping[str, Any], specs: Iterable[Mapping[str, Any]]) -> None:
    known = {name for spec in specs for name in spec}
    for name in settings:
        if known and name not in known:
            raise UserError(f"WHERE: no run here has a setting {name!r}; {nearest(name, known)}")


def _has(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return all(
        name in spec and (spec[name] == value or str(spec[name]) == str(value)) for name, value in settings.items()
    )


def _names(wanted: Wanted, where: str) -> list[str]:
    """The names that are wanted; none for all. Raises `UserError` where the filter is empty."""
    if wanted is None or (isinstance(wanted, str) and wanted == "all"):
        return []
    if isinstance(wanted, str):
        names = [] if is_empty(wanted) else split_list(wanted)
    else:
        names = [str(w) for w in (wanted if isinstance(wanted, Iterable) else [wanted])]
    if not names:
        raise UserError(f"{where}={wanted!r} is empty; name one or several, or leave it out for all")
    return names
