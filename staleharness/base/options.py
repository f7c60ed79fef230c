"""Options of a plugin: the fields of a frozen dataclass, checked when an instance is created."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar, get_origin

from ..errors import UserError, shorten
from .files import digest
from .parsing import format_value, parse_assignments, parse_value, split_choice
from .plugins import Registry
from .reference_results import portable_name, results_path
from .typed_values import build, convert, type_hints


def later(default: Any, *, before: Any) -> Any:
    """Declare a field of a spec or a plugin that was added after runs were stored: `name: type = later(...)`.

    `before` is the value under which a run does what those runs did. A run whose field has this value has the id that
    it had without the field. The default may change, `before` may not.
    """
    return field(default=default, metadata={"before": before})


def option(
    default: Any = MISSING,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    unit: str = "",
    path: bool = False,
) -> Any:
    """Declare an option with bounds: `name: type = option(default, least=0)`; without a default it is required.

    least, most: the smallest and largest value; above: the value must be larger. unit: of `least`, for the error line.
    path: the value is the path of a file, or empty. Relative to where the run is planned, it becomes absolute, and the
    content of the file is part of a run's id in place of its name.
    """
    if path:
        return field(default=default, metadata={"path": True})
    return field(default=default, metadata={"bounds": (least, above, most, unit)})


def path_digests(instance: Any, title: str) -> dict[str, str]:
    """Return 16 hex digits of the content of each file that an option names, by option. Raises `UserError` where there
    is no such file; `title` is the prefix."""
    digests = {}
    for f in fields(instance):
        if f.metadata.get("path") and (name := getattr(instance, f.name)):
            if not (path := results_path(name)).is_file():
                raise UserError(f"{title}: {f.name}={shorten(name)!r}: there is no such file")
            digests[f.name] = digest(path)[:16]
    return digests


def check_bounds(instance: Any, title: str = "") -> None:
    """Raise `UserError` where a field declared by `option` is out of bounds; None is within them."""
    for f in fields(instance):
        value = getattr(instance, f.name)
        least, above, most, unit = f.metadata.get("bounds", (-math.inf, -math.inf, math.inf, ""))
        if value is None or "bounds" not in f.metadata or (least <= value <= most and value > above):
            continue
        low, high = _short(above if above > -math.inf else least), _short(most)
        if above > -math.inf:
            text = f"above {low}" + (f" and at most {high}" if most < math.inf else "")
        elif most < math.inf:
            text = f"from {low} to {high}"
        else:
            text = f"at least {low} {unit}".rstrip() if least else "0 or above"
        raise UserError(f"{title}{f.name} must be {text}{', or none' if f.default is None else ''}, not {value!r}")


def _short(number: float) -> str:
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", f"{number:g}")


def values_before(cls: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that were added `later`, each with its value `before`."""
    return {f.name: f.metadata["before"] for f in fields(cls) if "before" in f.metadata}


def active_options(instance: Any) -> frozenset[str]:
    """Return the names of the fields that were added `later` and differ from their value `before`."""
    return frozenset(name for name, before in values_before(instance).items() if getattr(instance, name) != before)


def without_retired(values: Mapping[str, Any], retired: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return stored values without the fields that were removed. Raises `UserError` where one of them differs from its
    constant in `retired`, the only value that the code still supports."""
    for key in values.keys() & retired:
        if values[key] != retired[key]:
            raise UserError(f"{where}: {key}={values[key]!r} is no longer supported; {key} is always {retired[key]!r}")
    return {key: value for key, value in values.items() if key not in retired}


TYPES = (bool, int, float, str)  # of an option; or a `Literal`
Choice = TypeVar("Choice", bound="Options")


@dataclass(frozen=True)
class Options:
    """Base of algorithms and lag models: a name, and options of type `bool`, `int`, `float`, `str` or `Literal`.

    Creating an instance checks their types; `UserError` names the field and what would be right."""

    name: ClassVar[str] = ""  # set by registration
    retired: ClassVar[Mapping[str, Any]] = {}
    """Options that were removed, and the value that each had: it stays in the ids of runs."""

    def __post_init__(self) -> None:
        for key, hint in type(self).hyper_parameter_types().items():
            where = f"{self.title() or type(self).__name__}: {key}"
            value = convert(getattr(self, key), hint, where, finite=False)
            object.__setattr__(self, key, value)  # 2 and 2.0 are one run, with one id
        for f in fields(self):
            if f.metadata.get("path") and getattr(self, f.name):  # a run works in a folder of its own
                object.__setattr__(self, f.name, portable_name(getattr(self, f.name)))
        check_bounds(self, f"{self.title() or type(self).__name__}: ")

    @classmethod
    def check_class(cls, where: str) -> None:
        """Raise `UserError` for a class that is no dataclass or has a field of another type; `where` names it."""
        names = [key for key, hint in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(hint)]
        if names and "__dataclass_fields__" not in vars(cls):
            raise UserError(
                f"{where} has the field {names[0]} but is not a dataclass; write @dataclass(frozen=True) above it"
            )
        try:
            types = cls.hyper_parameter_types()
        except Exception as error:
            raise UserError(f"{where}: the type of a field is unknown: {error}") from error
        for key, hint in types.items():
            if hint not in TYPES and get_origin(hint) is not Literal:
                name = hint.__name__ if isinstance(hint, type) else str(hint)
                raise UserError(f"{where}: {key} is of type {name}; a field must be a bool, int, float, str or Literal")

    @classmethod
    def title(cls) -> str:
        """Name of the plugin in an error line."""
        return cls.name

    @classmethod
    def hyper_parameters(cls) -> dict[str, Any]:
        """Name -> default of each option that has one."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @classmethod
    def hyper_parameter_types(cls) -> dict[str, Any]:
        """Name -> `bool`, `int`, `float`, `str` or `Literal[...]` of each option."""
        hints = type_hints(cls)
        return {f.name: hints[f.name] for f in fields(cls)}

    @classmethod
    def usage(cls) -> str:
        """Notation with the options that have no default, such as `fixed:<lag>`."""
        names = list(cls.hyper_parameter_types())
        needs = [f.name for f in fields(cls) if f.default is MISSING]
        if needs == names[:1] and needs:
            return f"{cls.name}:<{needs[0]}>"
        return f"{cls.name}[{','.join(f'{name}=…' for name in needs)}]" if needs else cls.name

    def require(self, key: str, holds: bool, condition: str) -> None:
        """Raise `UserError` naming the option `key` and the `condition` unless `holds`; for `__post_init__`."""
        if not holds:
            raise UserError(f"{self.title()}: {key} must be {condition}, not {getattr(self, key)!r}")


def canonical_text(instance: Options, replacements: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a plugin as it is typed: options in order, without defaults, the first one alone in short form.
    replacements: texts to use in place of the values of some options."""
    default = instance.hyper_parameters()
    values = {name: replacements.get(name, getattr(instance, name)) for name in instance.hyper_parameter_types()}
    changes = {k: v for k, v in values.items() if k not in default or default[k] != v}
    if list(changes) == list(values)[:1] and changes:
        (value,) = changes.values()
        return f"{instance.name}:{value if isinstance(value, str) else format_value(value)}"
    inside = ",".join(f"{key}={format_value(value)}" for key, value in changes.items())
    return f"{instance.name}[{inside}]" if changes else instance.name


def text_by_content(instance: Options, models: Sequence[Any]) -> str:
    """Return the canonical text of a plugin with the digest of each file in place of its name. models: those within it,
    each inside the one before; the last has an `identity` of its own. Raises `UserError` for a file that is missing."""
    text = canonical_text(instance, path_digests(instance, instance.title()))
    if not models:
        return text
    *outer, last = models
    identity: str = last.identity
    contents = {last.text: identity}
    for model in outer:
        contents |= {getattr(model, name): key for name, key in path_digests(model, model.title()).items()}
    for name in sorted(contents, key=len, reverse=True):  # a path may begin like another
        text = text.replace(name, contents[name])
    has_file = identity != canonical_text(last)
    return f"{text} {identity}" if has_file and identity not in text else text  # where `text` is not canonical


def parse_choice_of(
    text: str, classes: Mapping[str, type[Choice]] | Registry[type[Choice]], where: str
) -> tuple[type[Choice], dict[str, Any]] | None:
    """Parse `name`, `name[option=value,...]` or `name:value`, which sets the first option: (class, options), or None
    for a name that is not in `classes`. Raises `UserError`; `where` names the setting."""
    name, inside, value = split_choice(text) or ("", None, None)
    if name not in classes:
        return None
    cls = classes[name]
    if value is None:
        return cls, parse_assignments(inside or "", f"{where}={shorten(text)!r}")
    types = cls.hyper_parameter_types()
    if not types:
        raise UserError(f"{where}={shorten(text)}: {name} has no options")
    first, hint = next(iter(types.items()))
    return cls, {first: value if hint is str else parse_value(value)}


def build_choice(cls: type[Choice], options: Mapping[str, Any], where: str, title: str) -> Choice:
    """Create an instance from parsed options. Raises `UserError`; `where` is the text as typed, `title` the prefix for
    an option's error."""
    types = cls.hyper_parameter_types()
    missing = [key for key in types if key not in {**cls.hyper_parameters(), **options}]
    if missing and set(options) <= set(types):
        raise UserError(f"{where}: {missing[0]} is missing; give {cls.usage()}")
    return build(cls, options, title)
