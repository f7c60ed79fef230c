"""The options of a plugin are the fields of a frozen dataclass, and making an instance checks them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from ..errors import UserError, nearest
from .parsing import type_hints

TYPES = (bool, int, float, str)  # of an option; or a `Literal`


@dataclass(frozen=True)
class Options:
    """What an algorithm and a lag model have in common: a name, and options of type `bool`, `int`, `float`, `str` or
    `Literal`. Making an instance checks them: `UserError` names the field and what would be right."""

    name: ClassVar[str] = ""  # set by registration

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
