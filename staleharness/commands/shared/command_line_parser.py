"""Parser of the command line: one sub-command per file of `commands/`, its help from the docstrings of `Command`."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import itertools
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NoReturn

from ... import commands
from ...base import __version__
from ...base.module_registry import module_names
from ...base.parsing import is_empty
from ...errors import UserError, nearest
from .arguments import Help, flag_of

# order of the help; other verbs follow by name
ORDER = (
    "sweep run list status show report benchmark figures reproduce compare verify export config pack unpack pipeline"
    " advise new completion"
).split()
LAST = ("out", "plugin", "json")  # options at the end of a verb's help
DESCRIPTION = """Policy lag as a controlled, reproducible variable.

`staleharness COMMAND --help` says what each command takes.

exit codes:
  0    all is well
  1    some runs failed or are missing
  2    a mistake in what was asked, one line on stderr (a plugin's mistake may
       show only once its run has begun)
  130  stopped by Ctrl-C; the same command resumes"""


@dataclass(frozen=True)
class Verb:
    """A sub-command: one file of the package `commands`."""

    name: str
    command: type[Any]
    handle: Callable[[Any], int]

    @functools.cached_property
    def helps(self) -> dict[str, Help]:
        """Name of a field -> its metavar and default in the help."""
        hints = typing.get_type_hints(self.command, include_extras=True)
        return {
            f.name: next(x for x in hints[f.name].__metadata__ if isinstance(x, Help)) for f in fields(self.command)
        }

    @functools.cached_property
    def docstrings(self) -> dict[str, str]:
        """Name of a field -> its docstring, in the class and its bases."""
        texts: dict[str, str] = {}
        for cls in reversed(self.command.__mro__[:-1]):
            body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
            for line, below in itertools.pairwise(body):
                if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                    texts[ast.unparse(line.target)] = str(ast.literal_eval(below.value))
        return texts


@functools.cache
def verbs() -> dict[str, Verb]:
    """Name -> verb, in the order of the help."""
    files = module_names(commands.__name__)
    verbs = {}
    for file in sorted(files, key=lambda file: (ORDER.index(file) if file in ORDER else len(ORDER), file)):
        module = importlib.import_module(f"{commands.__name__}.{file}")
        name = file.replace("_", "-")
        verbs[name] = Verb(name, module.Command, module.handle)
    return verbs


def parse(words: Sequence[str]) -> tuple[Verb, Any]:
    """Parse the words after `staleharness` into the verb and its `Command`. Raises `UserError` with the nearest known
    word; prints help or version and exits where requested."""
    first = words[0] if words else "--help"
    if first in ("--version", "-h", "--help"):
        print(__version__ if first == "--version" else full_parser().format_help().rstrip())
        sys.exit(0)
    if first not in verbs():
        raise UserError(f"no command is called {first!r}; {nearest(first, verbs())}")
    verb = verbs()[first]
    switches = {flag_of(f.name): isinstance(f.default, bool) for f in fields(verb.command)}
    words = _join_values(verb.name, words[1:], switches)
    parser = parser_of(verb, {word.partition("=")[0] for word in words})
    values, rest = parser.parse_known_args(words)
    if rest and rest[0].startswith("-"):
        flag = rest[0].partition("=")[0]
        raise UserError(f"{verb.name} has no option {flag}; {nearest(flag, [*switches, '--help'])}")
    if rest:
        raise UserError(f"{verb.name}: {rest[0]!r} belongs to no option; write lists with commas, like --k=1,8")
    return verb, verb.command(**vars(values))


def full_parser() -> argparse.ArgumentParser:
    """Parser that lists the verbs."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("staleharness", description=DESCRIPTION, formatter_class=form)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for verb in verbs().values():
        subparsers.add_parser(verb.name, help=_one_line(verb.command.__doc__))
    return parser


def parser_of(verb: Verb, flags: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Parser of a verb. A positional whose name is among `flags` is parsed as an option."""
    parser = _Parser(verb.name, description=_one_line(verb.command.__doc__))
    for field in sorted(fields(verb.command), key=lambda field: field.name in LAST):
        flag, metavar, default = flag_of(field.name), verb.helps[field.name].metavar, verb.helps[field.name].default
        text = _one_line(verb.docstrings.get(field.name)) + (f" [{default}]" if default else "")
        if isinstance(field.default, bool):
            parser.add_argument(flag, action=_StoreOnce, nargs=0, help=text)
        elif field.default is MISSING and flag not in flags:
            parser.add_argument(field.name, action=_StoreOnce, metavar=metavar, help=text)
        else:
            no_default = field.default is MISSING
            parser.add_argument(flag, action=_StoreOnce, metavar=metavar, help=text, required=no_default)
    return parser


class _Lines(argparse.HelpFormatter):
    """Formatter of help that breaks no option at its hyphens, so that it can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class _Parser(argparse.ArgumentParser):
    """Argument parser of a verb that raises `UserError` in place of exiting."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(f"staleharness {verb}", description=description, allow_abbrev=False, formatter_class=_Lines)
        self.verb = verb

    def error(self, message: str) -> NoReturn:
        names = message.removeprefix("the following arguments are required: ")
        if names != message:
            message = f"needs {names.replace(', ', ' and ')}"
        raise UserError(f"{self.verb} {message}, see {self.verb} --help")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help().rstrip())


class _StoreOnce(argparse.Action):
    """Stores a value, or True for a switch. Refuses a second value, and an empty one, which means neither all nor
    none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "default": argparse.SUPPRESS})

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, flag: str | None = None) -> None:
        if hasattr(namespace, self.dest):
            remedy = "; separate several with commas" if ",..." in str(self.metavar) else ""
            raise UserError(f"{parser.verb}: {flag} is given more than once{remedy}")
        if self.nargs != 0 and is_empty(value):
            option = f"{flag or self.metavar}={value!r}"
            remedy = "" if self.required else ", or leave it out"
            raise UserError(f"{parser.verb}: {option} is empty; give {self.metavar}{remedy}")
        setattr(namespace, self.dest, True if self.nargs == 0 else value)


def _join_values(verb: str, words: Sequence[str], switches: dict[str, bool]) -> list[str]:
    """Write `--option value` as `--option=value`, so that a value may begin with a dash. switches: flag -> whether it
    is a switch."""
    out: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if equals and switches.get(flag):
            raise UserError(f"{verb}: {flag} is a switch, it takes no value")
        if word == "--":
            raise UserError(f"{verb} has no option --, see {verb} --help")
        if word in switches and not switches[word]:
            value = next(rest, "--")
            if value in ("-h", "--help"):
                word = value
            elif value.partition("=")[0] in ("--", *switches):
                raise UserError(f"{verb}: {word} needs a value")
            else:
                word = f"{word}={value}"
        out.append(word)
    return out


def _one_line(text: str | None) -> str:
    """Docstring in one line, escaped for argparse."""
    return " ".join((text or "").split()).replace("%", "%%")
