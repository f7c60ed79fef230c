"""Values and dataclasses from plain data, checked against type hints."""

from __future__ import annotations

import math
import sys
import types
import typing
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from ..errors import UserError, nearest, shorten, type_and_message
from .parsing import LARGEST, value_text

D = TypeVar("D")
_HINTS: weakref.WeakKeyDictionary[type, Mapping[str, Any]] = weakref.WeakKeyDictionary()
KINDS_OF_VALUE = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def type_hints(cls: type) -> Mapping[str, Any]:
    """Name -> type of each annotation of a class, cached: computing them dominated planning a large grid."""
    if cls not in _HINTS:
        _HINTS[cls] = MappingProxyType(typing.get_type_hints(cls))
    return _HINTS[cls]


def build(cls: type[D], values: Mapping[str, Any], where: str) -> D:
    """Create a frozen dataclass from plain data, strictly. Raises `UserError` naming key, place and remedy."""
    hints = type_hints(cls)
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise UserError(f"{where}: unknown option {key!r}; {nearest(key, names)}")
        arguments[key] = convert(value, hints[key], f"{where}: {key}")
    try:
        return cls(**arguments)
    except (UserError, TypeError):  # a type error: a field is missing
        raise
    except (Exception, SystemExit) as error:  # of a plugin that checks its own options
        raise UserError(f"{where}: {type_and_message(error)}") from error


def convert(value: Any, hint: Any, where: str, finite: bool = True) -> Any:
    """Convert to the annotated type without loss, or raise `UserError`: 1e6 is a whole number, 0.5 is not, NaN is no
    number, and neither is infinity where `finite`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            choices = [str(a) for a in arguments]
            raise UserError(f"{where}={value_text(value)} is not one of {', '.join(choices)}")
        return value
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return convert(value, option, where)
            except UserError:
                continue
    if hint is type(None) and (value is None or value == "none"):
        return None
    if hint is bool and isinstance(value, bool):
        return value
    if hint in (int, float) and isinstance(value, str) and value.lstrip("+-") == "nan":  # see `parse_value`
        raise UserError(f"{where}={value} is not finite, or is too large")
    if hint in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        limit = LARGEST if hint is int else sys.float_info.max if finite else math.inf
        if not abs(value) <= limit:  # true of NaN, too
            raise UserError(f"{where}={shorten(value_text(value))} is not finite, or is too large")
        if hint is float or value == int(value):
            return hint(value)
    if hint is str and isinstance(value, str):
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(convert(item, arguments[0], where) for item in value)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return build(hint, value, where)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return dict(value)
    if hint is str and isinstance(value, (bool, int, float)):
        text = shorten(value_text(value))
        raise UserError(f'{where}={text} is not a string; write "{text}", in double quotes')
    if {int, float} & {hint, *arguments} and isinstance(value, str) and is_number(value):
        raise UserError(f'{where}="{shorten(value)}" is a string, not a number; leave out the quotation marks')
    if origin in (typing.Union, types.UnionType) and {*arguments} <= {*KINDS_OF_VALUE, type(None), tuple[int, ...]}:
        names = {**KINDS_OF_VALUE, type(None): "none", tuple[int, ...]: "a list of whole numbers"}
        choices = [names[option] for option in arguments]
        raise UserError(f"{where}={shorten(value_text(value))} is neither {' nor '.join(choices)}")
    if origin is tuple and arguments[0] in KINDS_OF_VALUE:
        entry = KINDS_OF_VALUE[arguments[0]]
        raise UserError(f"{where}={shorten(value_text(value))} is not a list in brackets, each entry {entry}")
    name = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    if origin is Mapping:
        name = "table, name = value"
    raise UserError(f"{where}={shorten(value_text(value))} is not {KINDS_OF_VALUE.get(hint, f'of type {name}')}")


def is_number(text: str) -> bool:
    """Return whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def plain_value(value: Any) -> Any:
    """Convert NumPy and torch numbers and arrays to Python's; anything else is returned unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value
