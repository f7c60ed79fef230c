"""From what the user asked to the runs it means. Everything wrong with the question is found here, before anything
is written."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .algorithm import ALGORITHMS, Algorithm, check
from .errors import UserError, nearest
from .lag import parse_lag
from .plugins import source_hash
from .spec import (
    PRESETS,
    SETTINGS,
    AlgorithmChoice,
    RunSpec,
    build,
    canonical_json,
    parse_algorithm,
    parse_assignment,
    read_toml,
    split_list,
)
from .task import find_env


@dataclass(frozen=True)
class Question:
    """A sweep as asked: a grid and settings. Also the shape of a spec file (TOML)."""

    env: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()  # empty: every registered one
    capacity: tuple[int, ...] = ()
    seeds: int = 3
    preset: str = "quick"
    lag: str = "uniform"
    question: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


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


def ask(
    env: str | None = None,
    k: str | None = None,
    algo: str | None = None,
    seeds: str | None = None,
    steps: str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    device: str | None = None,
    settings: str | None = None,
    spec_file: str | None = None,
) -> Question:
    """Flags (as typed) over a spec file over defaults. Raises `UserError`."""
    base = Question()
    if spec_file is not None:
        content = read_toml(Path(spec_file))
        content = {
            key: [v] if key in ("env", "algorithm", "capacity") and not isinstance(v, list) else v
            for key, v in content.items()
        }
        base = build(Question, content, f"spec file {spec_file}")
    asked = {f.name: getattr(base, f.name) for f in fields(Question)}
    if env is not None:
        asked["env"] = tuple(split_list(env))
    if algo is not None:
        asked["algorithm"] = () if algo.strip() == "all" else tuple(split_list(algo))
    if k is not None:
        asked["capacity"] = tuple(whole_number(part, "K") for part in split_list(k))
    if seeds is not None:
        asked["seeds"] = whole_number(seeds, "SEEDS")
    if preset is not None:
        asked["preset"] = preset
    if lag is not None:
        asked["lag"] = lag
    extra = dict(asked["settings"])
    if settings is not None:
        extra |= dict(parse_assignment(part, "SET") for part in split_list(settings))
    if steps is not None:
        extra["steps"] = whole_number(steps, "STEPS")
    if device is not None:
        extra["device"] = device
    asked["settings"] = extra
    return Question(**asked)


def plan(question: Question) -> Plan:
    """Resolve a question to runs. Raises `UserError` for whatever cannot be run."""
    if not question.env:
        raise UserError("ENV is missing; give one or several environments, e.g. ENV=Hopper")
    capacities = question.capacity or (1,)
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
    _no_duplicates([str(c) for c in capacities], "K")
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
            family().make(env, 1, 1).close()
    choices = [parse_algorithm(text) for text in question.algorithm or tuple(ALGORITHMS)]
    _no_duplicates([choice.label for choice in choices], "ALGO")
    resolved = [(choice, _hyper(choice)) for choice in choices]
    runs = []
    for seed in range(question.seeds):
        for env, family in found:
            for capacity in capacities:
                for choice, (hyper, algorithm) in resolved:
                    content = {"env": env, "algorithm": choice.name, "hyper": hyper, "capacity": capacity}
                    content |= {"lag": question.lag, "seed": seed, **settings}
                    spec = RunSpec.from_dict(content, "SET")
                    parse_lag(spec.lag, spec.capacity)
                    check(algorithm, spec)
                    runs.append(
                        PlannedRun(
                            spec.run_id(source_hash(type(algorithm)), source_hash(family)), choice.label, spec
                        )
                    )
    return Plan(tuple(runs), _name(question, found, capacities), _title(question, found, capacities))


def _hyper(choice: AlgorithmChoice) -> tuple[dict[str, Any], Algorithm]:
    """All hyper-parameters of the method, defaults filled in, and the method itself."""
    cls = ALGORITHMS[choice.name]
    algorithm = build(cls, choice.options, f"ALGO={choice.name}")
    return {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}, algorithm


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


def whole_number(text: str, what: str) -> int:
    cleaned = text.strip().replace("_", "")
    if not re.fullmatch(r"[+-]?\d+", cleaned):
        raise UserError(f"{what}={text!r} is not a whole number")
    return int(cleaned)


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
