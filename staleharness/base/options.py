"""The options of a plugin are the fields of a frozen dataclass, and making an instance checks them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from ..errors import UserError, nearest
from .parsing import type_hints


def later(default: Any, *, before: Any) -> Any:
    """Declare a field of a spec or a plugin that was added after runs were stored: `name: type = later(...)`.

    `before` is the value that means what those runs did. A run whose field has this value has the id that it had
    without the field. The default may change, `before` may not.
    """
    return field(default=default, metadata={"before": before})


def values_before(cls: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that were added `later`, each with its value `before`."""
    return {f.name: f.metadata["before"] for f in fields(cls) if "before" in f.metadata}


def changed(instance: Any) -> frozenset[str]:
    """Return the names of the fields that were added `later` and do not stand at `before`."""
    return frozenset(name for name, before in values_before(instance).items() if getattr(instance, name) != before)


def without_retired(values: Mapping[str, Any], retired: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return stored values without the fields that exist no more. Raises `UserError` where one of them does not have
    its constant in `retired`, the only value that the code still means."""
    for key in values.keys() & retired:
        if values[key] != retired[key]:
            raise UserError(f"{where}: {key}={values[key]!r} is no longer supported; {key} is always {retired[key]!r}")
    return {key: value for key, value in values.items() if key not in retired}


TYPES = (bool, int, float, str)  # of an option; or a `Literal`


@dataclass(frozen=True)
class Options:
    """What an algorithm and a lag model have in common: a name, and options of type `bool`, `int`, `float`, `str` or
    `Literal`. Making an instance checks them: `UserError` names the field and what would be right."""

    name: ClassVar[str] = ""  # set by registration
    retired: ClassVar[Mapping[str, Any]] = {}
    """Options that were removed, and the value that each had: it stays in the ids of runs."""

    def __post_init__(self) -> None:
        for key, hint in type(self).hyper_parameter_types().items():
            value = getattr(self, key)
            _check_type(f"{self.title() or type(self).__name__}: {key}", value, hint)
            if hint is float:
                object.__setattr__(self, key, float(value))  # 2 and 2.0 are one run, with one id

    @classmethod
    def check_class(cls, where: str) -> None:
        """Raise `UserError` where the class is not written as its kind has to be; `where` names it."""
        own = [key for key, hint in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
        if own and "__dataclass_fields__" not in vars(cls):
            raise UserError(
                f"{where} has the field {own[0]} and is no dataclass; write @dataclass(frozen=True) above it"
            )
        try:
            types = cls.hyper_parameter_types()
        except Exception as error:
            raise UserError(f"{where}: the type of a field is unknown: {error}") from error
        for key, hint in types.items():
            if hint not in TYPES and get_origin(hint) is not Literal:
                shown = hint.__name__ if isinstance(hint, type) else str(hint)
                raise UserError(f"{where}: {key} is of type {shown}; a field is a bool, int, float, str or a Literal")

    @classmethod
    def title(cls) -> str:
        """What the plugin is called in an error line."""
        return cls.name

    @classmethod
    def hyper_parameters(cls) -> dict[str, Any]:
        """Name -> default of each of the plugin's own options."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @classmethod
    def hyper_parameter_types(cls) -> dict[str, Any]:
        """Name -> `bool`, `int`, `float`, `str` or `Literal[...]` of each option."""
        hints = type_hints(cls)
        return {f.name: hints[f.name] for f in fields(cls)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """An instance with some options changed. Raises `UserError` for a bad name or value."""
        known = cls.hyper_parameter_types()
        for key in options:
            if key not in known:
                raise UserError(f"{cls.title()} has no hyper-parameter {key!r}; {nearest(key, known)}")
        return cls(**options)

    def require(self, key: str, holds: bool, condition: str) -> None:
        """Raise `UserError` unless the option `key` is as `condition` says; for `__post_init__`."""
        if not holds:
            raise UserError(f"{self.title()}: {key} must be {condition}, not {getattr(self, key)!r}")


def _check_type(where: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UserError(f"{where} must be one of {', '.join(map(str, get_args(hint)))}, not {value!r}")
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise UserError(f"{where} must be a number, not {value!r}")
    elif type(value) is not hint:
        raise UserError(f"{where} must be of type {hint.__name__}, not {value!r}")
