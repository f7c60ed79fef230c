"""Which stored runs somebody wants to see: filters as people type them, and as programs give them."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.parsing import split_list, whole_number
from .stored_run import StoredRun
from .study import plain_env

Wanted = (
    str | int | Iterable[str | int] | None
)  # `"1,8"` as typed, 8, [1, 8]; None, "" and "all" for everything


def chosen(
    runs: Iterable[StoredRun], env: Wanted = None, k: Wanted = None, algo: Wanted = None
) -> list[StoredRun]:
    """The runs of these environments (with or without their version), capacities and algorithms (as tables name them,
    with or without ` N=...`). Raises `UserError` for a capacity that is no number."""
    envs = {plain_env(name) for name in _names(env)}
    capacities = {whole_number(number, "K") for number in _names(k)}
    labels = set(_names(algo))
    return [
        run
        for run in runs
        if (not envs or {plain_env(run.spec["env"]), run.spec["env"].lower()} & envs)
        and (not capacities or run.spec["capacity"] in capacities)
        and (not labels or {run.label, run.label.partition(" N=")[0]} & labels)
    ]


def _names(wanted: Wanted) -> list[str]:
    if wanted is None or (isinstance(wanted, str) and wanted == "all"):
        return []
    if isinstance(wanted, str):
        return split_list(wanted)
    return [str(w) for w in (wanted if isinstance(wanted, Iterable) else [wanted])]
