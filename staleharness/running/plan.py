"""From what the user asked to the runs it means. Everything wrong with the question is found here, before anything
is written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from ..algorithm import ALGORITHMS, Algorithm, check, unmet
from ..base.parsing import AlgorithmChoice, build, canonical_json, parse_algorithm
from ..base.plugins import source_hash
from ..errors import UserError, nearest
from ..lag import file_hash, read_lag
from ..spec import RunSpec
from ..store.study import Question
from ..task import Task, find_env

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
    question = replace(question, lag=read_lag(question.lag).text)
    capacities = question.capacity or (1,)
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
    _no_duplicates([str(c) for c in capacities], "K")
    if question.seeds < 1:
        raise UserError(f"SEEDS={question.seeds} must be at least 1")
    _check_device(str(question.settings.get("device", "cpu")))
    found = [find_env(env) for env in question.env]
    _no_duplicates([env for env, _ in found], "ENV")
    chosen = [_settings(question, family) for _, family in found]
    for env, family in found:
        if env not in family.ids:  # an id the family does not list may turn out to be unusable: find out now
            _try(env, family)
    known = {key for _, family in found for key in family.settings.settings()} | {"lag"}
    named = question.algorithm not in ((), ("all",))
    choices = [_split(parse_algorithm(text), known) for text in question.algorithm if named]
    if not named:
        everything = [name for name in ALGORITHMS if question.algorithm or ALGORITHMS[name].core]
        choices = [_split(AlgorithmChoice(name), known) for name in everything]
    _no_duplicates([_label(_resolved(choice), own) for choice, own in choices], "ALGO")
    seeds = range(question.seeds) if seeds is None else seeds
    forward: tuple[int | None, ...] = question.forward or (None,)
    _no_duplicates([str(n) for n in forward], "N")
    count = len(seeds) * len(found) * len(capacities) * len(choices) * len(forward)
    if count > MOST_RUNS:
        raise UserError(f"the grid has {count:,} runs, more than {MOST_RUNS:,}; give fewer SEEDS")
    runs: list[PlannedRun] = []
    skipped: dict[str, None] = {}
    for seed in seeds:
        for (env, family), (settings, hyper) in zip(found, chosen, strict=True):
            for capacity in capacities:
                for n in forward:
                    for choice, own in choices:
                        algorithm = _resolved(choice, hyper.get(choice.name, {}))
                        if not named and (why := unmet(algorithm, family.provides)) is not None:
                            skipped[f"{why}, which {env} does not have"] = None
                            continue
                        content: dict[str, Any] = {
                            "env": env,
                            "algorithm": algorithm.name,
                            "hyper": _hyper(algorithm),
                        }
                        content |= {"capacity": capacity, "lag": question.lag, "seed": seed, **settings}
                        content |= {} if n is None else {family.axes["N"]: n}
                        plain = family.settings.from_dict(content, "SET")
                        spec = family.settings.from_dict({**content, **own}, "ALGO")
                        check(algorithm, spec, family.provides)
                        family.check(spec)
                        spec = family.identified(spec)
                        run_id = spec.run_id(
                            source_hash(type(algorithm)), source_hash(family), file_hash(spec.lag)
                        )
                        differs = {
                            key: v for key, v in own.items() if getattr(spec, key) != getattr(plain, key)
                        }
                        label = _label(algorithm, differs) + (f" N={n}" if len(forward) > 1 else "")
                        runs.append(PlannedRun(run_id, label, spec))
    places = Counter(run.run_id for run in runs)
    _no_duplicates(
        [run.label for run in runs if places[run.run_id] > 1 and run.spec.seed == seeds[0]], "ALGO"
    )
    name, title = _name(question, found, capacities), _title(question, found, capacities)
    return Plan(tuple(runs), name, title, tuple(skipped))


def _settings(question: Question, family: type[Task]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """(run settings, hyper-parameters by algorithm) that preset and question mean for this family."""
    presets = family.all_presets()
    if question.preset not in presets:
        raise UserError(f"PRESET={question.preset!r} is unknown; {nearest(question.preset, presets)}")
    known = family.settings.settings()
    for key in question.settings:
        if key not in known:
            raise UserError(f"SET: unknown option {key!r} of {family.name}; {nearest(key, known)}")
    if question.forward and "N" not in family.axes:
        raise UserError(
            "N counts minibatches per generation round of a language task; for others SET=minibatches=..."
        )
    settings = {**presets[question.preset], **question.settings}
    hyper = dict(settings.pop("hyper", {}))
    return settings, hyper


def _try(env: str, family: type[Task]) -> None:
    """Raise `UserError` where the family cannot serve the id after all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are said again in the log of each run
            family.try_out(env)
    except UserError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(f"ENV={env} cannot be made: {type(error).__name__}: {line}") from error


def _resolved(choice: AlgorithmChoice, preset: Mapping[str, Any] = MappingProxyType({})) -> Algorithm:
    """The method with its hyper-parameters, those not given as the preset says or at their defaults."""
    return build(ALGORITHMS[choice.name], {**preset, **choice.options}, f"ALGO={choice.name}")


def _split(choice: AlgorithmChoice, known: Iterable[str]) -> tuple[AlgorithmChoice, dict[str, Any]]:
    """What stands in the brackets, apart: the method's own hyper-parameters, and settings of its runs.

    So each method can be tuned in one sweep: `ppo_clip[learning_rate=1e-4]`, and `ppo_clip[lag=fixed:0]` is a
    synchronous run beside stale ones. A name that is both is the method's.
    """
    names = {f.name for f in fields(ALGORITHMS[choice.name])}
    own = {k: v for k, v in choice.options.items() if k in known and k not in names}
    if isinstance(own.get("lag"), str):
        own["lag"] = read_lag(own["lag"]).text
    return AlgorithmChoice(choice.name, {k: v for k, v in choice.options.items() if k not in own}), own


def _hyper(algorithm: Algorithm) -> dict[str, Any]:
    """All hyper-parameters of the method."""
    return {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}


def _label(algorithm: Algorithm, own: Mapping[str, Any] = MappingProxyType({})) -> str:
    """What a method is called in tables: its name and whatever differs from its defaults, and settings of its `own`.
    One method has one label, however it was typed."""
    plain, default = _hyper(algorithm), _hyper(type(algorithm)())
    changed = {key: value for key, value in plain.items() if value != default[key]}
    return AlgorithmChoice(algorithm.name, {**changed, **own}).label


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
    rest: dict[str, Any] = {"settings": dict(question.settings), "lag": question.lag}
    rest |= {"forward": list(question.forward)} if question.forward else {}
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


def dump(plan: Plan) -> list[dict[str, Any]]:
    """The plan as plain data (for `--json`)."""
    return [
        {"id": run.run_id, "label": run.label, "spec": json.loads(run.spec.to_json())} for run in plan.runs
    ]
