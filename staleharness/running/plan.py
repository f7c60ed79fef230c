"""From what the user asked to the runs it means. Everything wrong with the question is found here, before anything
is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..algorithm import Algorithm, check, unmet
from ..errors import UserError
from ..lag import read_lag
from ..spec import RunSpec
from ..store.record_schema import MOST_VERSIONS
from ..store.study import Question
from .choices import Environment, Method, environments, methods
from .devices import check_device
from .identity import RunIds
from .names import folder_name, hyper, label, no_duplicates, title

MOST_RUNS = 100_000  # of one grid


@dataclass(frozen=True)
class PlannedRun:
    run_id: str
    label: str  # the algorithm as the user named it
    spec: RunSpec


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep in a fixed order: seed by seed, so that every cell gets its first run early."""

    runs: tuple[PlannedRun, ...]
    name: str  # of the report folder
    title: str
    skipped: tuple[str, ...] = ()  # methods of `ALGO=all` that are not defined on a task, and why

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
    """Resolve a question to runs, of the seeds 0 ... `question.seeds` - 1 unless others are given.

    Raises `UserError` for whatever cannot be run.
    """
    if not question.env:
        raise UserError("ENV is missing; give one or several environments, e.g. ENV=Hopper")
    if question.lag:
        question = replace(question, lag=read_lag(question.lag).text)
    capacities = question.capacity or (1,)
    forward: tuple[int | None, ...] = question.forward or (None,)
    cells = len(capacities) * len(forward) * (question.seeds if seeds is None else len(seeds))
    _check_count(len(question.env) * cells * max(1, len(question.algorithm)))  # before anything is made of so many
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
        if capacity > MOST_VERSIONS:
            raise UserError(f"K={capacity} is more versions than any run has phases; give at most {MOST_VERSIONS:,}")
    no_duplicates([str(c) for c in capacities], "K")
    if question.seeds < 1:
        raise UserError(f"SEEDS={question.seeds} must be at least 1")
    check_device(str(question.settings.get("device", "cpu")))
    found = environments(question)
    _one_kind(found)
    known = {key for env in found for key in env.family.settings.settings()} | {"lag"}
    chosen = methods(question, known)
    seeds = range(question.seeds) if seeds is None else seeds
    no_duplicates([str(n) for n in forward], "N")
    _check_count(len(found) * cells * len(chosen))
    ids = RunIds()
    runs: list[PlannedRun] = []
    skipped: dict[str, None] = {}
    for seed, env, capacity, n, method in product(seeds, found, capacities, forward, chosen):
        algorithm = method.algorithm(env.hyper.get(method.name, {}))
        if not method.named and (why := unmet(algorithm, env.family.provides)) is not None:
            skipped[f"{why}, which {env.id} does not have"] = None
            continue
        cell = {"capacity": capacity, "lag": question.lag or env.lag, "seed": seed, **env.settings}
        cell |= {} if n is None else {env.family.axes["N"]: n}
        suffix = f" N={n}" if len(forward) > 1 else ""
        runs.append(_planned(env, method, algorithm, cell, suffix, ids))
    places = Counter(run.run_id for run in runs)
    first = [run.label for run in runs if places[run.run_id] > 1 and run.spec.seed == seeds[0]]
    no_duplicates(first, "ALGO")
    name = folder_name(question, {env.id: env.short for env in found}, capacities, found[0].lag)
    words = title(question, [env.id for env in found], capacities)
    return Plan(tuple(runs), name, words, tuple(skipped))


def _check_count(runs: int) -> None:
    """Raise `UserError` where a grid has more runs than one sweep takes."""
    if runs > MOST_RUNS:
        raise UserError(f"the grid has {runs:,} runs, more than {MOST_RUNS:,}; give fewer SEEDS, K, N, ENV or ALGO")


def as_stored(question: Question) -> Question:
    """The question with its methods and its lag model named as stored runs name them: without options that stand at
    their defaults, say. As it is where it cannot be planned here, for want of a plugin."""
    try:
        planned = plan(replace(question, paper={}))
        usual = environments(question)[0].lag
    except UserError:
        return question
    labels = dict.fromkeys(label.partition(" N=")[0] for label in planned.labels)
    return replace(question, algorithm=tuple(labels), lag=read_lag(question.lag).text if question.lag else usual)


def _one_kind(found: Sequence[Environment]) -> None:
    """Raise `UserError` where environments have other settings and scores than each other."""
    kinds = {env.family.kind: env for env in reversed(found)}
    if len(kinds) > 1:
        named = " and ".join(f"{env.id} ({kind})" for kind, env in reversed(kinds.items()))
        raise UserError(f"ENV names tasks of different kinds, {named}; run a sweep for each kind")


def _planned(
    env: Environment, method: Method, algorithm: Algorithm, cell: dict[str, Any], suffix: str, ids: RunIds
) -> PlannedRun:
    """One run of the grid, checked by its method and its family. Raises `UserError`."""
    family = env.family
    content = {"env": env.id, "algorithm": algorithm.name, "hyper": hyper(algorithm), **cell}
    plain = family.settings.from_dict(content, "SET")
    spec = family.settings.from_dict({**content, **method.settings}, "ALGO")
    check(algorithm, spec, family.provides)
    family.check(spec)
    spec = family.identified(spec)
    differs = {key: v for key, v in method.settings.items() if getattr(spec, key) != getattr(plain, key)}
    return PlannedRun(ids.of(spec, family), label(algorithm, differs) + suffix, spec)


def dump(plan: Plan) -> list[dict[str, Any]]:
    """The plan as plain data (for `--json`)."""
    return [{"id": run.run_id, "label": run.label, "spec": json.loads(run.spec.to_json())} for run in plan.runs]
