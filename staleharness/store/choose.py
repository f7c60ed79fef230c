"""Which stored runs a command that reads results is about: filters as people type them."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.parsing import split_list, whole_number
from .store import StoredRun
from .study import plain_env


def chosen(runs: Iterable[StoredRun], env: str | None, k: str | None, algo: str | None) -> list[StoredRun]:
    """The runs of these environments, capacities and algorithms (as tables name them, with or without ` N=...`);
    what is not given, or `all`, takes all. Raises `UserError` for a capacity that is no number."""
    env, k, algo = ("" if asked in (None, "all") else asked for asked in (env, k, algo))
    envs = {plain_env(name) for name in split_list(env)}
    capacities = {whole_number(number, "K") for number in split_list(k)}
    labels = set(split_list(algo))
    return [
        run
        for run in runs
        if (not envs or {plain_env(run.spec["env"]), run.spec["env"].lower()} & envs)
        and (not capacities or run.spec["capacity"] in capacities)
        and (not labels or {run.record["label"], run.record["label"].partition(" N=")[0]} & labels)
    ]
