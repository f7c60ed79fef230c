"""What a sweep is asked for, one axis at a time: the methods, and the settings of each family of tasks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from ..algorithm import ALGORITHMS, Algorithm
from ..base.parsing import PluginChoice, build, parse_choice
from ..base.plugins import is_builtin
from ..base.streams import global_generators_restored
from ..errors import UserError, nearest
from ..lag import read_lag
from ..simulator.methods import OTHER, entry_of
from ..store.study import USUAL_LAG, Question
from ..task import Task, find_env
from .names import label, no_duplicates


@dataclass(frozen=True)
class Method:
    """A method as it was asked for, apart: its own hyper-parameters, and settings of its runs.

    So each method can be tuned in one sweep: `ppo_clip[learning_rate=1e-4]`, and `ppo_clip[lag=fixed:0]` is a
    synchronous run beside stale ones. A name that is both is the method's.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    named: bool = True  # False: taken with others, and left out where a task cannot serve it

    @property
    def label(self) -> str:
        return label(self.algorithm(), self.settings)

    def algorithm(self, preset: Mapping[str, Any] = MappingProxyType({})) -> Algorithm:
        """With its hyper-parameters, those not given as the preset says or at their defaults."""
        return build(ALGORITHMS[self.name], {**preset, **self.options}, f"ALGO={self.name}")


@dataclass(frozen=True)
class Environment:
    """An environment, and what preset and question mean for its family."""

    id: str
    family: type[Task]
    settings: Mapping[str, Any]
    hyper: Mapping[str, Mapping[str, Any]]  # hyper-parameters by algorithm
    lag: str  # where the question names none

    @property
    def short(self) -> str:
        """Its name without the version, where that names this version and no other; or else its id."""
        plain = re.sub(r"-v\d+$", "", self.id)
        return plain if self.family.find(plain) == self.id else self.id


def methods(question: Question, settings: Iterable[str]) -> list[Method]:
    """The methods that are asked for: the core ones, all, those that are named, or all and variants of them.
    `settings` are those of all runs."""
    names = question.algorithm
    chosen = [_split(parse_choice(text), settings) for text in names if text != "all"]
    no_duplicates([method.label for method in chosen], "ALGO")
    if names and "all" not in names:
        return chosen
    others = [name for name in ALGORITHMS if names or is_core(ALGORITHMS[name])]
    taken = {method.label for method in chosen}
    return [m for m in (Method(name, named=False) for name in others) if m.label not in taken] + chosen


def is_core(cls: type[Algorithm]) -> bool:
    """Whether a sweep that names no method runs it: some of those that come with the package, and no plugin beside."""
    return cls.core and is_builtin(cls, "algorithms") and entry_of(cls).family != OTHER


def _split(choice: PluginChoice, known: Iterable[str]) -> Method:
    own_names, known = {f.name for f in fields(ALGORITHMS[choice.name])}, set(known)
    for key in choice.options:
        if key not in own_names | known:
            raise UserError(f"ALGO={choice.name}: unknown option {key!r}; {nearest(key, own_names, known)}")
    own = {k: v for k, v in choice.options.items() if k in known and k not in own_names}
    if isinstance(own.get("lag"), str):
        own["lag"] = read_lag(own["lag"]).text
    return Method(choice.name, {k: v for k, v in choice.options.items() if k not in own}, own)


def environments(question: Question) -> list[Environment]:
    """The environments that are asked for, each usable. Raises `UserError`."""
    found = [find_env(env) for env in question.env]
    no_duplicates([env for env, _ in found], "ENV")
    asked = [Environment(env, family, *_settings(question, family)) for env, family in found]
    for env, family in found:
        # an id that no built-in family lists may turn out to be unusable: find out now
        if env not in family.ids or not is_builtin(family, "envs"):
            _try(env, family)
    return asked


def _settings(question: Question, family: type[Task]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], str]:
    """(run settings, hyper-parameters by algorithm, usual lag model) that preset and question mean for this family."""
    presets = family.all_presets()
    if question.preset not in presets:
        raise UserError(f"PRESET={question.preset!r} is unknown; {nearest(question.preset, presets)}")
    known = family.settings.settings()
    for key in question.settings:
        if key not in known:
            raise UserError(f"SET: unknown option {key!r} of {family.name}; {nearest(key, known)}")
    if question.forward and "N" not in family.axes:
        raise UserError(
            "N counts minibatches per generation round of a language task or chain; elsewhere give SET=minibatches=..."
        )
    settings = dict(family.completed({**presets[question.preset], **question.settings}))
    hyper, lag = dict(settings.pop("hyper", {})), settings.pop("lag", USUAL_LAG)
    return settings, hyper, lag


def _try(env: str, family: type[Task]) -> None:
    """Raise `UserError` where the family cannot serve the id after all."""
    try:
        with warnings.catch_warnings(), global_generators_restored():
            warnings.simplefilter("ignore")  # they are said again in the log of each run
            family.try_out(env)
    except UserError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        raise UserError(f"ENV={env} cannot be made: {type(error).__name__}: {line}") from error
