"""From the words of a command line to one verb's `Command`, strictly; and which verbs there are."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ... import commands
from ...base.package_registry import module_names
from ...base.parsing import is_empty
from ...errors import UserError, nearest
from .arguments import flag_of
from .help import of_all, of_verb, shown_as

# how help lists them; others follow by name
ORDER = (
    "sweep run list status report figures reproduce compare verify export config pack unpack pipeline advise new"
    " completion"
).split()
HELP = ("-h", "--help")


@dataclass(frozen=True)
class Verb:
    """One file of the room `commands`."""

    name: str
    command: type[Any]
    handle: Callable[[Any], int]


@functools.cache
def verbs() -> dict[str, Verb]:
    """Name -> verb, in the order of the help."""
    files = set(module_names(commands.__name__))
    known = [name for name in ORDER if name in files]
    found = {}
    for file in [*known, *sorted(files - set(known))]:
        module = importlib.import_module(f"{commands.__name__}.{file}")
        name = file.replace("_", "-")
        found[name] = Verb(name, module.Command, module.handle)
    return found


def parse(arguments: Sequence[str]) -> tuple[Verb, Any]:
    """The verb, and what it was given as its `Command`. Raises `UserError` with the nearest known word; asked for
    help or version, prints it and ends."""
    known = verbs()
    first = arguments[0] if arguments else "--help"
    if first == "--version":
        from ...base.version import __version__

        print(__version__)
        sys.exit(0)
    if first in HELP:
        print(of_all({name: verb.command for name, verb in known.items()}))
        sys.exit(0)
    if first not in known:
        raise UserError(f"no command is called {first!r}; {nearest(first, known)}")
    verb = known[first]
    given = _given(verb, arguments[1:])
    if given is None:
        print(of_verb(verb.name, verb.command))
        sys.exit(0)
    return verb, verb.command(**given)


def _given(verb: Verb, words: Sequence[str]) -> dict[str, str | bool] | None:
    """What is given, by name; None where help is asked for. Raises `UserError` for the first word that is out of
    place, in one line."""
    known = {flag_of(f.name): f for f in fields(verb.command)}
    free = [f.name for f in known.values() if f.default is MISSING]
    given: dict[str, str | bool] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word in HELP:
            return None
        if not word.startswith("-"):
            if not free:
                raise UserError(f"{verb.name}: {word!r} belongs to no option; write lists with commas, like --k=1,8")
            name = free.pop(0)
            given[name] = _filled(verb, name, word)
            continue
        if flag not in known:
            raise UserError(f"{verb.name} has no option {flag}; {nearest(flag, [*known, '--help'])}")
        name = known[flag].name  # what has a place may have its name, too
        if name in given:
            raise UserError(f"{verb.name}: {flag} is given more than once")
        if isinstance(known[flag].default, bool):
            if equals:
                raise UserError(f"{verb.name}: {flag} is a switch, it takes no value")
            given[name] = True
            continue
        if not equals:
            value = next(rest, "--")
            if value in HELP:
                return None
            if value.partition("=")[0] in ("--", *known):
                raise UserError(f"{verb.name}: {flag} needs a value")
        given[name] = _filled(verb, name, value)
        if name in free:
            free.remove(name)
    if free:
        needed = " and ".join(shown_as(verb.command)[name].metavar for name in free)
        raise UserError(f"{verb.name} needs {needed}, see {verb.name} --help")
    return given


def _filled(verb: Verb, name: str, value: str) -> str:
    """The value of an option or place. Raises `UserError` where it is empty, which means neither all nor none."""
    if is_empty(value):
        from .help import shown_as

        place = next(f.default is MISSING for f in fields(verb.command) if f.name == name)
        metavar = shown_as(verb.command)[name].metavar
        option = f"{metavar}={value!r}" if place else f"{flag_of(name)}={value!r}"
        remedy = "" if place else ", or leave it out"
        raise UserError(f"{verb.name}: {option} is empty; give {metavar}{remedy}")
    return value
