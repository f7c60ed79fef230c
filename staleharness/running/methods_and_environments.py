"""Axes of a sweep's grid: a question parsed, resolved against plugins and presets, and checked, in that order."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from ..algorithm import ALGORITHMS, Algorithm
from ..base.options import values_before
from ..base.parsing import PluginChoice, parse_choice
from ..base.plugins import is_builtin
from ..base.streams import global_generators_restored
from ..base.typed_values import build
from ..errors import UserError, nearest, shorten, type_and_message
from ..lag import read_lag
from ..mismatch import NONE, mismatch_text, read_mismatch
from ..study import USUAL_LAG, SweepRequest
from ..task import Task, find_env
from ..training.method_descriptions import OTHER, entry_of

LANGUAGE_ONLY = ("model", "data")  # options of a sweep that only language tasks have
AXES = {name: name.upper() for name in ("env", "algo", "k", "n", "seeds", "lag", "mismatch", "preset")}
AXES |= {"algorithm": "ALGO", "capacity": "K", "seed": "SEEDS"}  # names that are no settings -> variables of a sweep
SAMPLING = ("temperature", "top_p", "top_k")  # options of a mismatch model that are settings in other systems


@dataclass(frozen=True)
class RequestedMethod:
    """A method as requested, with its own hyper-parameters and settings for its runs kept separate.

    Each method can thus be tuned in the same sweep: `ppo_clip[learning_rate=1e-4]`, and `ppo_clip[lag=fixed:0]` is a
    synchronous run beside stale ones. An option that is both belongs to the method.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    explicit: bool = True  # False: one of a group, left out for tasks that cannot serve it

    @property
    def label(self) -> str:
        return method_label(self.algorithm(), self.settings)

    def algorithm(self, preset: Mapping[str, Any] = MappingProxyType({})) -> Algorithm:
        """Build the algorithm; hyper-parameters not requested have the preset's value or their default."""
        return build(ALGORITHMS[self.name], {**preset, **self.options}, f"ALGO={self.name}")


@dataclass(frozen=True)
class RequestedEnvironment:
    """An environment with the settings that preset and question imply for its family."""

    id: str
    family: type[Task]
    options: Mapping[str, Any]  # of preset and request, before the settings that follow from them
    settings: Mapping[str, Any]
    hyper: Mapping[str, Mapping[str, Any]]  # hyper-parameters by algorithm
    lag: str  # lag model, unless request or method names another

    def settings_for(self, method: RequestedMethod) -> Mapping[str, Any]:
        """Return the settings of a method's runs: its own and those that follow from them included, `lag` not."""
        if not method.settings:
            return self.settings
        settings = self.family.completed({**self.options, **method.settings})
        return {key: value for key, value in settings.items() if key not in ("hyper", "lag")}

    @property
    def short(self) -> str:
        """Name without the version if that means this version, otherwise the id."""
        plain = re.sub(r"-v\d+$", "", self.id)
        return plain if self.family.find(plain) == self.id else self.id


def check_unique(values: Sequence[str], axis: str) -> None:
    """Raise `UserError` if an axis of the grid names something twice."""
    repeats = sorted(value for value, count in Counter(values).items() if count > 1)
    if repeats:
        raise UserError(f"{axis} names {', '.join(repeats)} more than once")


def resolve_methods(names: Sequence[str], settings: Iterable[str]) -> list[RequestedMethod]:
    """Return the core methods if none is named, otherwise those named; "all" adds all others. `settings`: names of
    the runs' settings."""
    settings = set(settings)
    methods = [_parse_method(text, settings) for text in names if text != "all"]
    check_unique([method.label for method in methods], "ALGO")
    if names and "all" not in names:
        return methods
    group = [name for name in ALGORITHMS if names or is_core(ALGORITHMS[name])]
    labels = {method.label for method in methods}
    return [m for m in (RequestedMethod(name, explicit=False) for name in group) if m.label not in labels] + methods


def is_core(cls: type[Algorithm]) -> bool:
    """Return whether a sweep that names no method runs it; plugins are never core."""
    return cls.core and is_builtin(cls, "algorithms") and entry_of(cls).family != OTHER


def _parse_method(text: str, settings: Collection[str]) -> RequestedMethod:
    choice = parse_choice(text)
    name, options = choice.name, choice.options
    parameters = {f.name for f in fields(ALGORITHMS[name])}
    for key in options:
        if key not in parameters and key not in settings:
            raise UserError(f"ALGO={name}: unknown option {key!r}; {nearest(key, parameters, settings)}")
    run_settings = {k: v for k, v in options.items() if k in settings and k not in parameters}
    if isinstance(run_settings.get("lag"), str):
        run_settings["lag"] = read_lag(run_settings["lag"]).text
    if isinstance(run_settings.get("mismatch"), str):
        run_settings["mismatch"] = mismatch_text(read_mismatch(run_settings["mismatch"]))
    return RequestedMethod(name, {k: v for k, v in options.items() if k not in run_settings}, run_settings)


def under_mismatch(method: RequestedMethod, mismatch: str) -> RequestedMethod:
    """Return the method under one of several mismatch models. Raises `UserError` for a method that names its own."""
    if "mismatch" in method.settings:
        raise UserError(f"MISMATCH names several models, and {method.label} has its own; give one of the two")
    if mismatch == NONE:
        return method
    return replace(method, settings={**method.settings, "mismatch": mismatch})


def method_label(algorithm: Algorithm, settings: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the label in tables: the name, options that differ from the defaults, and settings of its runs. Each
    method has one label, however it was typed; an option added `later` is left out at `before`."""
    default = {**hyper_parameters(type(algorithm)()), **values_before(algorithm)}
    changes = {key: value for key, value in hyper_parameters(algorithm).items() if value != default[key]}
    return PluginChoice(algorithm.name, {**changes, **settings}).label


def hyper_parameters(algorithm: Algorithm) -> dict[str, Any]:
    return {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}


def resolve_environments(request: SweepRequest) -> list[RequestedEnvironment]:
    """Return the environments with their settings. Raises `UserError` for one that cannot be used here, and for
    families of different kinds."""
    families = [find_env(env) for env in request.env]
    check_unique([env for env, _ in families], "ENV")
    environments = [_with_settings(env, family, request) for env, family in families]
    for env, family in families:
        if env not in family.ids or not is_builtin(family, "envs"):
            _try_out(env, family)  # no built-in family lists the id: find out now whether it can be used
    kinds = {env.family.kind: env.id for env in reversed(environments)}
    if len(kinds) > 1:
        names = " and ".join(f"{env} ({kind})" for kind, env in reversed(kinds.items()))
        raise UserError(f"ENV names tasks of different kinds, {names}; run a sweep for each kind")
    return environments


def _with_settings(env: str, family: type[Task], request: SweepRequest) -> RequestedEnvironment:
    """Return an environment with the settings of preset and request. Raises `UserError` for one that its family
    lacks."""
    presets = family.all_presets()
    if request.preset not in presets:
        raise UserError(f"PRESET={request.preset!r} is unknown; {nearest(request.preset, presets)}")
    names = family.settings.settings()
    for key, value in request.settings.items():
        if key in LANGUAGE_ONLY and key not in names:
            raise UserError(f"{key.upper()}={shorten(str(value))} is for language tasks; {env} has none")
        if key in SAMPLING and key not in names and family.mismatch:
            raise UserError(
                f"SET: no option {key!r} of {env}; a sampler that differs from the trainer's policy is "
                f"MISMATCH=sampling[{key}={shorten(str(value))}]"
            )
        if key not in names:
            remedy = nearest(key, (name for name in names if not name.endswith("_digest")))
            if variable := AXES.get(key.lower()):
                remedy = f"give {variable}={shorten(str(value))}"
            raise UserError(f"SET: unknown option {key!r} of {env}; {remedy}")
    if request.forward and "N" not in family.axes:
        raise UserError(
            "N counts minibatches per generation round of a language task or chain; elsewhere give SET=minibatches=..."
        )
    options = {**presets[request.preset], **request.settings}
    settings = dict(family.completed(options))
    hyper, lag = dict(settings.pop("hyper", {})), settings.pop("lag", USUAL_LAG)
    return RequestedEnvironment(env, family, options, settings, hyper, lag)


def _try_out(env: str, family: type[Task]) -> None:
    """Raise `UserError` if the family cannot serve the id."""
    try:
        with warnings.catch_warnings(), global_generators_restored():
            warnings.simplefilter("ignore")  # the log of each run repeats them
            family.try_out(env)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"ENV={env} cannot be made: {type_and_message(error)}") from error
