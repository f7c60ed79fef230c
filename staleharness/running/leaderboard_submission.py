"""Rows of StaleBench that were made elsewhere: read from a bundle or a results folder, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.console_log import LOGGER
from ..base.reference_results import results_path
from ..errors import UserError
from ..statistics.benchmark.benchmark_row import COMPLETE, REFERENCE, USER
from ..statistics.benchmark.protocol import (
    BASELINE,
    MethodRuns,
    Protocol,
    chosen_rate,
    is_complete,
    method_of,
    runs_by_row,
)
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..task import find_env
from .benchmark_runs import published_runs, report_plan


def third_party_runs(protocol: Protocol, path: Path | None) -> dict[str, list[StoredRun]]:
    """Read a third party's bundle or results folder, by its name, and check it: every run follows the protocol to the
    last setting, and none that it asks for is missing, except where a learning rate was given up. Methods whose runs
    are all copies of published ones, id and metrics, are left out with a warning: they would count twice. So are, where
    another row is complete, runs that are none: previews, or those of earlier code.

    Raises `UserError` for the first thing that is wrong.
    """
    if path is None:
        return {}
    where = f"ADD={path}"
    store = Store(results_path(str(path)))
    store.check_readable(where)
    if (source := store.root.resolve().name) in (REFERENCE, COMPLETE, USER):
        raise UserError(f"{where}: the page already uses the name {source!r} for other rows; rename the folder")
    runs = store.read_all()
    settings = {env: _settings_of(protocol, env) for env in protocol.env}
    for run in runs:
        if difference := _difference(protocol, run, settings):
            raise UserError(
                f"{where}: run {run.id} ({run.label}) does not follow {protocol.name} ({protocol.digest}): {difference}"
            )
    published = {(run.id, run.record["metrics_sha256"]) for run in published_runs(protocol.name)}
    others = {method_of(run) for run in runs if (run.id, run.record["metrics_sha256"]) not in published}
    if copies := sorted({method_of(run) for run in runs} - others):
        text = f"{where}: {', '.join(copies)} {'is a copy' if len(copies) == 1 else 'are copies'} of published rows"
        if not others:
            raise UserError(f"{text}, and the bundle holds nothing else")
        LOGGER.warning("%s, left out", text)
    runs = _complete_rows(protocol, where, [run for run in runs if method_of(run) in others])
    rows = runs_by_row(protocol, runs)
    for label in sorted({label for label, _ in rows}):
        for k in protocol.capacity:
            members = rows.get((label, k), MethodRuns())
            rate = chosen_rate(protocol, members, gaps=True)
            if rate is None:
                raise UserError(
                    f"{where}: {label} at K={k} lacks tuning runs at every learning rate; one rate needs all seeds, "
                    f"{', '.join(map(str, protocol.tuning_seeds))}"
                )
            by_seed = [members.report.get((env, rate), {}) for env in protocol.env]
            missing = sorted({*protocol.seeds} - set[int].intersection(*map(set, by_seed)))
            if missing:
                raise UserError(
                    f"{where}: {label} at K={k} lacks seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} at "
                    f"the learning rate that its tuning runs choose, {protocol.rate(rate):g}"
                )
    if not rows:
        raise UserError(f"{where} holds no run")
    return {source: runs}


def _complete_rows(protocol: Protocol, where: str, runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the runs of the complete rows, one version of the code of each; all runs where no row is complete."""
    complete: list[StoredRun] = []
    for label in sorted({method_of(run) for run in runs}):
        members = [run for run in runs if method_of(run) == label]
        versions = [[run for run in members if run.code == code] for code in sorted({run.code for run in members})]
        if is_complete(protocol, label, members, gaps=True):
            complete += members
            continue
        rows = [version for version in versions if is_complete(protocol, label, version, gaps=True)]
        complete += rows[0] if len(rows) == 1 else members if rows else []  # two rows of one method are refused
    ids = {run.id for run in complete}
    if rest := [run for run in runs if run.id not in ids]:
        if not complete:
            return list(runs)
        names = ", ".join(sorted({method_of(run) for run in rest}))
        LOGGER.warning("%s: %d runs of %s are no complete row, left out", where, len(rest), names)
    return complete


def _difference(protocol: Protocol, run: StoredRun, settings: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the first difference of a run's settings from those of the protocol, in words."""
    spec = run.spec
    if spec["env"] not in protocol.env:
        return f"env={spec['env']} is not one of {', '.join(protocol.env)}"
    if spec["capacity"] not in protocol.capacity:
        return f"K={spec['capacity']} is not one of {', '.join(map(str, protocol.capacity))}"
    before = find_env(spec["env"])[1].settings.before()  # of settings added since the run
    for key, rule in settings[spec["env"]].items():
        value = spec.get(key, before.get(key, rule))
        if value != rule:
            return f"{key}={value}, but the protocol says {rule}"
    if protocol.place_of(run) is None:
        return f"seed {spec['seed']} with learning_rate={spec['learning_rate']:g} is not part of the protocol"
    return None


def _settings_of(protocol: Protocol, env: str) -> dict[str, Any]:
    """Return all settings of a run of the protocol except those that its cell and its method decide."""
    runs = report_plan(protocol, BASELINE, {protocol.capacity[0]: 1.0}, look=1).runs
    spec = next(r.spec for r in runs if r.spec.env == env)
    cell_settings = {"env", "algorithm", "hyper", "capacity", "seed", "learning_rate"}
    return {key: value for key, value in spec.to_dict().items() if key not in cell_settings}
