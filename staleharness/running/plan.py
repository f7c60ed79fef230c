"""Plan of a sweep: the runs that a question asks for. All mistakes are found here, before anything is written.

Also finds runs at K = 1 with a plan's other settings, the user's own or published ones, to compare it with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..algorithm import check, unmet
from ..base.console_log import single_notices
from ..base.parsing import without_n
from ..errors import UserError
from ..spec import RunSpec
from ..study import Question
from .grid_axes import GridAxes, resolve_axes
from .identity import RunIds
from .methods_and_environments import hyper_parameters, method_label


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


def plan(question: Question, seeds: Sequence[int] | None = None) -> Plan:
    """Resolve a question to runs, of its own seeds unless others are given.

    Raises `UserError` for anything that cannot be run.
    """
    with single_notices():  # however many methods of it have settings of their own
        return _expand(resolve_axes(question, seeds))


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
        run_settings = settings[env.id, method.label]  # the method's among them, with paths as the family resolves them
        method_settings = {key: run_settings.get(key, value) for key, value in method.settings.items()}
        spec = family.settings.from_dict({**content, **run_settings, **cell, **method_settings}, "ALGO")
        check(algorithm, spec, family.provides)
        family.check(family.on_this_machine(spec))
        spec = family.identified(spec)
        changes = {key: v for key, v in method.settings.items() if getattr(spec, key) != getattr(default, key)}
        label = method_label(algorithm, changes) + (f" N={n}" if len(axes.forward) > 1 else "")
        runs.append(PlannedRun(ids.of(spec, family), label, spec))
    labels: dict[str, str] = {}
    for run in runs:
        if (earlier := labels.get(run.run_id)) is not None:
            also = f", also as {run.label}" if run.label != earlier else ""  # they differ in what no number depends on
            raise UserError(f"ALGO names {earlier} more than once{also}; a run is stored once")
        labels[run.run_id] = run.label
    return Plan(tuple(runs), axes.name, axes.title, tuple(notes))


def with_stored_labels(question: Question) -> Question:
    """Return the question with methods and lag model named as in stored runs, for example without options at their
    defaults; unchanged if it cannot be planned here, for lack of a plugin."""
    try:
        with single_notices():
            axes = resolve_axes(replace(question, paper={}))
            labels = dict.fromkeys(without_n(label) for label in _expand(axes).labels)
    except UserError:
        return question
    mismatch = () if len(question.mismatch) > 1 else question.mismatch  # several are in the labels
    return replace(question, algorithm=tuple(labels), lag=axes.lag or axes.environments[0].lag, mismatch=mismatch)


def plan_as_data(plan: Plan) -> list[dict[str, Any]]:
    """Return the plan as plain data (for `--json`)."""
    return [{"id": run.run_id, "label": run.label, "spec": json.loads(run.spec.to_json())} for run in plan.runs]
