"""From what the user asked to the runs it means. Everything wrong with the question is found here, before anything
is written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from .algorithm import ALGORITHMS, Algorithm, check
from .errors import UserError, nearest
from .lag import parse_lag
from .parsing import AlgorithmChoice, build, canonical_json, parse_algorithm
from .plugins import source_hash
from .spec import PRESETS, SETTINGS, RunSpec
from .study import Question
from .task import Task, find_env

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
    capacities = question.capacity or (1,)
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
    _no_duplicates([str(c) for c in capacities], "K")
    if question.forward:
        raise UserError(
            "N counts minibatches per generation round of a language task; for others SET=minibatches=..."
        )
    if question.seeds < 1:
        raise UserError(f"SEEDS={question.seeds} must be at least 1")
    if question.preset not in PRESETS:
        raise UserError(f"PRESET={question.preset!r} is unknown; {nearest(question.preset, PRESETS)}")
    for key in question.settings:
        if key not in SETTINGS:
            raise UserError(f"SET: unknown option {key!r}; {nearest(key, SETTINGS)}")
    settings = {**PRESETS[question.preset], **question.settings}
    _check_device(str(settings.get("device", "cpu")))
    found = [find_env(env) for env in question.env]
    _no_duplicates([env for env, _ in found], "ENV")
    for env, family in found:
        if env not in family.ids:  # an id the family does not list may turn out to be unusable: find out now
            _try(env, family)
    choices = [parse_algorithm(text) for text in question.algorithm or tuple(ALGORITHMS)]
    algorithms = [_resolved(choice) for choice in choices]
    labels = [_label(algorithm) for algorithm in algorithms]
    _no_duplicates(labels, "ALGO")
    seeds = range(question.seeds) if seeds is None else seeds
    if (count := len(seeds) * len(found) * len(capacities) * len(algorithms)) > MOST_RUNS:
        raise UserError(f"the grid has {count:,} runs, more than {MOST_RUNS:,}; give fewer SEEDS")
    hashes = {cls: source_hash(cls) for cls in (*map(type, algorithms), *(family for _, family in found))}
    runs = []
    for seed in seeds:
        for env, family in found:
            for capacity in capacities:
                for label, algorithm in zip(labels, algorithms, strict=True):
                    content: dict[str, Any] = {
                        "env": env,
                        "algorithm": algorithm.name,
                        "hyper": _hyper(algorithm),
                    }
                    content |= {"capacity": capacity, "lag": question.lag, "seed": seed, **settings}
                    spec = RunSpec.from_dict(content, "SET")
                    parse_lag(spec.lag, spec.capacity)
                    check(algorithm, spec)
                    run_id = spec.run_id(hashes[type(algorithm)], hashes[family])
                    runs.append(PlannedRun(run_id, label, spec))
    return Plan(tuple(runs), _name(question, found, capacities), _title(question, found, capacities))


def _try(env: str, family: type[Task]) -> None:
    """Make one environment and close it. Raises `UserError` when that fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are said again in the log of each run
            family().make(env, 1, 1).close()
    except UserError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(f"ENV={env} cannot be made: {type(error).__name__}: {line}") from error


def _resolved(choice: AlgorithmChoice) -> Algorithm:
    """The method with its hyper-parameters, those not given at their defaults."""
    return build(ALGORITHMS[choice.name], choice.options, f"ALGO={choice.name}")


def _hyper(algorithm: Algorithm) -> dict[str, Any]:
    """All hyper-parameters of the method."""
    return {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}


def _label(algorithm: Algorithm) -> str:
    """What a method is called in tables: its name and whatever differs from its defaults. One method has one
    label, however it was typed."""
    plain, default = _hyper(algorithm), _hyper(type(algorithm)())
    changed = {key: value for key, value in plain.items() if value != default[key]}
    return AlgorithmChoice(algorithm.name, changed).label


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise UserError(f"DEVICE={device!r} is unknown; give cpu or cuda")
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            f"DEVICE={device}, but torch {torch.__version__} sees no GPU on this machine; give DEVICE=cpu"
        )
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise UserError(f"DEVICE={device}, but this machine has {torch.cuda.device_count()} GPU(s)")


def _no_duplicates(values: list[str], what: str) -> None:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise UserError(f"{what} names {', '.join(twice)} more than once")


def _name(question: Question, found: list[tuple[str, Any]], capacities: tuple[int, ...]) -> str:
    """Readable, and different for different questions (seeds and algorithms may grow in place)."""
    envs = "+".join(re.sub(r"-v\d+$", "", env) for env, _ in found)
    slug = re.sub(r"[^\w+.-]", "_", f"{envs}-K{'+'.join(map(str, capacities))}-{question.preset}")[:80]
    rest = {"settings": dict(question.settings), "lag": question.lag}
    if rest == {"settings": {}, "lag": "uniform"} and len(slug) < 80:
        return slug
    exact = [[env for env, _ in found], list(capacities), rest]
    return f"{slug}-{hashlib.sha256(canonical_json(exact).encode()).hexdigest()[:6]}"


def _title(question: Question, found: list[tuple[str, Any]], capacities: tuple[int, ...]) -> str:
    envs = ", ".join(env for env, _ in found)
    return question.question or f"{envs}, K = {', '.join(map(str, capacities))} ({question.preset})"


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings_line(spec: RunSpec) -> str:
    """The few numbers that say how big a run is."""
    return (
        f"{spec.phases} phases of {spec.num_envs} x {spec.num_steps} steps = {spec.phases * spec.batch_size:,} steps, "
        f"{spec.epochs} epochs x {spec.minibatches} minibatches"
    )


def dump(plan: Plan) -> list[dict[str, Any]]:
    """The plan as plain data (for `--json`)."""
    return [
        {"id": run.run_id, "label": run.label, "spec": json.loads(run.spec.to_json())} for run in plan.runs
    ]
