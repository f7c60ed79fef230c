"""Plan of a sweep: the runs that a request asks for. All mistakes are found here, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..algorithm import check, unmet
from ..base.console_log import single_notices
from ..base.files import safe_name
from ..base.parsing import without_n
from ..errors import UserError
from ..lag import read_lag
from ..mismatch import NONE, mismatch_text, read_mismatch
from ..spec import RunSpec
from ..store.record_schema import MAX_VERSIONS
from ..study import SweepRequest
from .methods_and_environments import (
    RequestedEnvironment,
    RequestedMethod,
    check_unique,
    hyper_parameters,
    method_label,
    resolve_environments,
    resolve_methods,
    under_mismatch,
)
from .run_identity import RunIds
from .runner_interface import check_device

MAX_RUNS = 100_000  # of one grid


@dataclass(frozen=True)
class PlannedRun:
    """Run of a plan: its id, label and complete spec."""

    run_id: str
    label: str  # the algorithm as the user named it
    spec: RunSpec

    @property
    def text(self) -> str:
        """Name for users."""
        return f"{self.label} {self.spec.env} K={self.spec.capacity} seed {self.spec.seed}"


@dataclass(frozen=True)
class Plan:
    """Runs of a sweep in a fixed order: seed by seed, so that every cell gets its first run early."""

    runs: tuple[PlannedRun, ...]
    name: str  # of the report folder
    title: str
    notes: tuple[str, ...] = ()  # methods of `ALGO=all` that are not defined on a task, and why

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def envs(self) -> list[str]:
        return list(dict.fromkeys(run.spec.env for run in self.runs))

    @property
    def capacities(self) -> list[int]:
        return list(dict.fromkeys(run.spec.capacity for run in self.runs))


def plan(request: SweepRequest, seeds: Sequence[int] | None = None) -> Plan:
    """Resolve a request to runs, with its own seeds unless others are given.

    Raises `UserError` for anything that cannot be run.
    """
    with single_notices():  # however many methods of it have settings of their own
        return _expand(resolve_axes(request, seeds))


@dataclass(frozen=True)
class GridAxes:
    """Axes of the grid, with the title of its report."""

    environments: Sequence[RequestedEnvironment]
    methods: Sequence[RequestedMethod]
    capacities: Sequence[int]
    forward: Sequence[int | None]
    seeds: Sequence[int]
    lag: str  # lag model for all runs; empty: the environment's
    mismatch: str  # mismatch model for all runs whose method names none
    title: str
    preset: str
    settings: Mapping[str, Any]  # of all runs, as in the request

    @property
    def name(self) -> str:
        """Name of the report's folder; with settings that are not checked yet, it need not exist."""
        usual = self.environments[0].lag
        rest: dict[str, Any] = {"settings": self.settings, "lag": self.lag or usual}
        rest |= {"forward": list(self.forward)} if self.forward != (None,) else {}
        rest |= {"mismatch": self.mismatch} if self.mismatch != NONE else {}
        return report_name({env.id: env.short for env in self.environments}, self.capacities, self.preset, rest, usual)


def resolve_axes(request: SweepRequest, seeds: Sequence[int] | None = None) -> GridAxes:
    """Resolve a request, with its own seeds unless others are given.

    Raises `UserError` for anything that cannot be run.
    """
    if not request.env:
        raise UserError("ENV is missing; give one or several environments, e.g. ENV=Hopper")
    lag = read_lag(request.lag).text if request.lag else ""
    capacities, forward = request.capacity or (1,), request.forward or (None,)
    seeds = request.seed_numbers if seeds is None else seeds
    runs_per_method = len(capacities) * len(forward) * len(seeds)
    # before anything is built for each
    _check_count(len(request.env) * runs_per_method * max(1, len(request.algorithm)))
    _check_capacities(capacities)
    if not seeds:
        raise UserError(f"SEEDS={request.seeds} must be at least 1")
    check_device(str(request.settings.get("device", "cpu")))
    environments = resolve_environments(request)
    settings = {key for env in environments for key in env.family.settings.settings()} | {"lag", "mismatch"}
    methods = resolve_methods(request.algorithm, settings)
    mismatches = [mismatch_text(read_mismatch(text)) for text in request.mismatch] or [NONE]
    check_unique(mismatches, "MISMATCH")
    if len(mismatches) > 1:
        methods = [under_mismatch(method, text) for text in mismatches for method in methods]
    check_unique([str(n) for n in forward], "N")
    if request.forward and (least := min(request.forward)) < 1:
        raise UserError(f"N={least} must be at least 1")
    _check_count(len(environments) * runs_per_method * len(methods))
    mismatch = mismatches[0] if len(mismatches) == 1 else NONE
    title = f"{', '.join(env.id for env in environments)}, K = {', '.join(map(str, capacities))} ({request.preset})"
    title = request.question or title
    return GridAxes(
        environments, methods, capacities, forward, seeds, lag, mismatch, title, request.preset, dict(request.settings)
    )


def report_name(
    envs: Mapping[str, str], capacities: Sequence[int], preset: str, rest: Mapping[str, Any], usual_lag: str
) -> str:
    """Name the report's folder: readable, and different for different questions (seeds and algorithms may be added).

    envs: id -> short name. rest: settings, lag model and forward lags. usual_lag: the lag model of the preset.
    """
    text = f"{'+'.join(envs.values())}-K{'+'.join(map(str, capacities))}-{preset}"
    return safe_name(text, [list(envs), list(capacities), rest], rest == {"settings": {}, "lag": usual_lag})


def _check_count(runs: int) -> None:
    """Raise `UserError` if a grid has more runs than one sweep takes."""
    if runs > MAX_RUNS:
        raise UserError(f"the grid has {runs:,} runs, more than {MAX_RUNS:,}; give fewer SEEDS, K, N, ENV or ALGO")


def _check_capacities(capacities: Sequence[int]) -> None:
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
        if capacity > MAX_VERSIONS:
            raise UserError(f"K={capacity} is more versions than any run has phases; give at most {MAX_VERSIONS:,}")
    check_unique([str(capacity) for capacity in capacities], "K")


def _expand(axes: GridAxes) -> Plan:
    """Make the runs of a grid, each checked by its method and its family."""
    ids = RunIds()
    settings = {(env.id, m.label): env.settings_for(m) for env in axes.environments for m in axes.methods}
    runs: list[PlannedRun] = []
    notes: dict[str, None] = {}
    for seed, env, capacity, n, method in product(
        axes.seeds, axes.environments, axes.capacities, axes.forward, axes.methods
    ):
        family, algorithm = env.family, method.algorithm(env.hyper.get(method.name, {}))
        if not method.explicit and (reason := unmet(algorithm, family.provides)) is not None:
            notes[f"{reason}, which {env.id} does not have"] = None
            continue
        cell = {
            "capacity": capacity,
            "lag": axes.lag or env.lag,
            "mismatch": axes.mismatch,
            "seed": seed,
            **({} if n is None else {family.axes["N"]: n}),
        }
        content = {"env": env.id, "algorithm": algorithm.name, "hyper": hyper_parameters(algorithm)}
        default = family.settings.from_dict({**content, **env.settings, **cell}, "SET")
        run_settings = settings[env.id, method.label]  # including the method's, with paths as the family resolves them
        method_settings = {key: run_settings.get(key, value) for key, value in method.settings.items()}
        spec = family.settings.from_dict({**content, **run_settings, **cell, **method_settings}, "ALGO")
        if not method.explicit and (reason := family.unsuitable_method(spec)) is not None:
            notes[f"K={capacity}: {reason}"] = None
            continue
        check(algorithm, spec, family.provides)
        family.check(family.on_this_machine(spec))
        spec = family.identified(spec)
        changes = {key: v for key, v in method.settings.items() if getattr(spec, key) != getattr(default, key)}
        label = method_label(algorithm, changes) + (f" N={n}" if len(axes.forward) > 1 else "")
        runs.append(PlannedRun(ids.of(spec, family), label, spec))
    labels: dict[str, str] = {}
    for run in runs:
        if (earlier := labels.get(run.run_id)) is not None:
            also = f", also as {run.label}" if run.label != earlier else ""  # they differ in what affects no number
            raise UserError(f"ALGO names {earlier} more than once{also}; a run is stored once")
        labels[run.run_id] = run.label
    return Plan(tuple(runs), axes.name, axes.title, tuple(notes))


def with_stored_labels(request: SweepRequest) -> SweepRequest:
    """Return the request with methods and lag model named as in stored runs, for example without options at their
    defaults; unchanged if it cannot be planned here, for lack of a plugin."""
    try:
        with single_notices():
            axes = resolve_axes(replace(request, paper={}))
            labels = dict.fromkeys(without_n(label) for label in _expand(axes).labels)
    except UserError:
        return request
    mismatch = () if len(request.mismatch) > 1 else request.mismatch  # several are in the labels
    return replace(request, algorithm=tuple(labels), lag=axes.lag or axes.environments[0].lag, mismatch=mismatch)


def plan_as_data(plan: Plan) -> list[dict[str, Any]]:
    """Return the plan as plain data (for `--json`)."""
    return [{"id": run.run_id, "label": run.label, "spec": json.loads(run.spec.to_json())} for run in plan.runs]
