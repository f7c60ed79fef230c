"""What `--help` prints: the docstrings of a verb's `Command` and of its fields."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from .arguments import Help, flag_of

DESCRIPTION = """Policy lag as a controlled, reproducible variable.

`staleharness COMMAND --help` says what each command takes.

exit codes:
  0    all is well
  1    some runs failed or are missing
  2    a mistake in what was asked, one line on stderr (a plugin's mistake may
       show only once its run has begun)
  130  stopped by Ctrl-C; the same command resumes"""


def of_all(commands: Mapping[str, type[Any]]) -> str:
    """The verbs, each with what it does."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("staleharness", description=DESCRIPTION, formatter_class=form)
    listed = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in commands.items():
        listed.add_parser(name, help=_words(command.__doc__))
    return parser.format_help().rstrip()


def of_verb(name: str, command: type[Any]) -> str:
    """What a verb does, and what it takes."""
    parser = argparse.ArgumentParser(f"staleharness {name}", description=_words(command.__doc__))
    meant, known = docstrings(command), shown_as(command)
    for field in fields(command):
        shown = known[field.name]
        text = _words(meant.get(field.name)) + (f" [{shown.default}]" if shown.default else "")
        if field.default is MISSING:
            parser.add_argument(field.name, metavar=shown.metavar, help=text)
        elif isinstance(field.default, bool):
            parser.add_argument(flag_of(field.name), action="store_true", help=text)
        else:
            parser.add_argument(flag_of(field.name), metavar=shown.metavar, help=text)
    return parser.format_help().rstrip()


def shown_as(command: type[Any]) -> dict[str, Help]:
    """Name -> how a field is shown."""
    hints = typing.get_type_hints(command, include_extras=True)
    return {f.name: next(x for x in hints[f.name].__metadata__ if isinstance(x, Help)) for f in fields(command)}


def docstrings(command: type[Any]) -> dict[str, str]:
    """Name -> the text under a field, in the class and those that it extends."""
    found: dict[str, str] = {}
    for cls in reversed(command.__mro__[:-1]):
        body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
        for line, below in itertools.pairwise(body):
            if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(line.target)] = str(ast.literal_eval(below.value))
    return found


def _words(text: str | None) -> str:
    """A docstring in one line, as argparse takes it."""
    return " ".join((text or "").split()).replace("%", "%%")
