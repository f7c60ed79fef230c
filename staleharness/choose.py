"""Which stored runs a command that reads results is about: filters as people type them."""

from __future__ import annotations

from collections.abc import Iterable

from .parsing import split_list, whole_number
from .store import StoredRun
from .study import plain_env


def chosen(runs: Iterable[StoredRun], env: str | None, k: str | None, algo: str | None) -> list[StoredRun]:
    """The runs of these environments, capacities and algorithms (as tables name them, with or without ` N=...`);
    what is not given takes all. Raises `UserError` for a capacity that is no number."""
    envs = {plain_env(name) for name in split_list(env or "")}
    capacities = {whole_number(number, "K") for number in split_list(k or "")}
    labels = set(split_list(algo or ""))
    return [
        run
        for run in runs
        if (not envs or {plain_env(run.spec["env"]), run.spec["env"].lower()} & envs)
        and (not capacities or run.spec["capacity"] in capacities)
        and (not labels or {run.record["label"], run.record["label"].partition(" N=")[0]} & labels)
    ]
