"""From the words of a command line to one verb's `Command`, strictly; and which verbs there are."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import tyro

from ... import commands
from ...errors import UserError, nearest

DESCRIPTION = """Policy lag as a controlled, reproducible variable.

`staleharness COMMAND --help` says what each takes. Exit code 0: all is well. 1: some runs failed or are missing.
2: a mistake in what was asked, one line on stderr. 130: stopped by Ctrl-C, the same command goes on.
"""
# how help lists them; others follow by name
ORDER = "sweep run list status report figures reproduce compare export pack unpack pipeline new".split()


@dataclass(frozen=True)
class Verb:
    """One file of the room `commands`."""

    name: str
    command: type[Any]
    handle: Callable[[Any], int]


@functools.cache
def verbs() -> dict[str, Verb]:
    """Name -> verb, in the order of the help."""
    files = {m.name for m in pkgutil.iter_modules(commands.__path__) if not m.ispkg}
    known = [name for name in ORDER if name in files]
    found = {}
    for file in [*known, *sorted(files - set(known))]:
        module = importlib.import_module(f"{commands.__name__}.{file}")
        name = file.replace("_", "-")
        found[name] = Verb(name, module.Command, module.handle)
    return found


def parse(arguments: Sequence[str]) -> tuple[Verb, Any]:
    """The verb, and what it was given as its `Command`. Raises `UserError` with the nearest known word."""
    known = verbs()
    first = arguments[0] if arguments else "--help"
    if first == "--version":
        from ... import __version__

        print(__version__)
        sys.exit(0)
    if first in known:
        _check(known[first], arguments[1:])
    elif first not in ("-h", "--help"):
        raise UserError(f"no command is called {first!r}; {nearest(first, known)}")
    union: Any = None
    for name, verb in known.items():
        choice = Annotated[(verb.command, tyro.conf.subcommand(name))]  # type: ignore[name-defined]
        union = choice if union is None else union | choice
    config = (tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff)
    given = tyro.cli(
        union, prog="staleharness", description=DESCRIPTION, args=arguments or ["--help"], config=config
    )
    return known[first], given


def _check(verb: Verb, words: Sequence[str]) -> None:
    """Raise `UserError` for the first word that is out of place, in one line."""
    known = {f"--{f.name}": f for f in fields(verb.command)}
    free = [f.name for f in known.values() if f.default is MISSING]
    seen: set[str] = set()
    rest = iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if word in ("-h", "--help"):
            return
        if not word.startswith("-"):
            if not free:
                raise UserError(
                    f"{verb.name}: {word!r} belongs to no option; write lists with commas, like --k=1,8"
                )
            free.pop(0)
            continue
        if flag not in known or known[flag].default is MISSING:
            raise UserError(f"{verb.name} has no option {flag}; {nearest(flag, [*known, '--help'])}")
        if flag in seen:
            raise UserError(f"{verb.name}: {flag} is given more than once")
        seen.add(flag)
        if isinstance(known[flag].default, bool):
            if equals:
                raise UserError(f"{verb.name}: {flag} is a switch, it takes no value")
        elif not equals and next(rest, "--").partition("=")[0] in ("--", *known):
            raise UserError(f"{verb.name}: {flag} needs a value")
    if free:
        raise UserError(
            f"{verb.name} needs {' and '.join(name.upper() for name in free)}, see {verb.name} --help"
        )
