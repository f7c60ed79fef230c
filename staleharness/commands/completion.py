"""`staleharness completion bash|zsh|fish`: what a shell needs to complete commands and options."""

from __future__ import annotations

import functools
import re
import textwrap
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated

from ..errors import UserError, nearest
from .shared.arguments import GridOptions, Help, flag_of
from .shared.command_line_parser import Verb, verbs

CHOICE = re.compile(r"[a-z0-9_]+(?:\|[a-z0-9_]+)+")  # among names, as an option's help writes it
SHELLS = ("bash", "zsh", "fish")
WIDTH = 60  # of a summary: it fits 80 columns beside the longest option
TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a script that lets a shell complete commands and options: eval "$(staleharness completion bash)"."""

    shell: Annotated[str, Help("bash|zsh|fish")]
    """For fish: staleharness completion fish | source."""


def handle(command: Command) -> int:
    if command.shell not in SHELLS:
        raise UserError(f"no completion for {command.shell!r}; {nearest(command.shell, SHELLS)}")
    print(script(command.shell))
    return 0


def script(shell: str) -> str:
    """Return the script for a shell."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True)
    # a word for zsh or fish, both of which take it literally except for quotes and backslashes
    environment.filters["quoted"] = lambda text: "'" + text.replace("\\", "").replace("'", "’") + "'"
    template = environment.get_template(f"completion.{shell}.j2")
    names = {"summaries": summaries(), "options": options(), "values": values(), "arguments": arguments()}
    return template.render(names).rstrip()


def summaries() -> dict[str, str]:
    """Command -> what it does, in a few words."""
    return {name: _short(verb.command.__doc__) for name, verb in verbs().items()}


def options() -> dict[str, dict[str, str]]:
    """Command -> its options, each with what it means in a few words."""
    return {
        name: {flag_of(field): _short(verb.docstrings.get(field)) for field in _options(verb)} | {"--help": "show help"}
        for name, verb in verbs().items()
    }


@functools.cache
def values() -> dict[str, dict[str, list[str]]]:
    """Command -> option -> the names that it accepts, for options that choose among names."""
    from ..algorithm import ALGORITHMS
    from ..lag import LAGS
    from ..mismatch import MISMATCHES
    from ..pages.paper_figure_specs import paper_names
    from ..pipeline.pipeline_settings import PRESETS
    from ..task import all_families

    names_of = {
        "env": sorted({name for family in all_families() for name in (*family.ids, *family.aliases)}),
        "algo": sorted(ALGORITHMS),
        "lag": sorted(LAGS),
        "mismatch": sorted(MISMATCHES),
        "paper": paper_names(),
    }
    presets = {name for family in all_families() for name in family.all_presets()}

    def of(verb: Verb) -> dict[str, list[str]]:
        trains = issubclass(verb.command, GridOptions)  # its presets are of runs, otherwise of pipelines
        choices = {**names_of, "preset": sorted(presets if trains else PRESETS), **_choices(verb)}
        return {flag_of(name): choices[name] for name in _options(verb) if choices.get(name)}

    return {name: of(verb) for name, verb in verbs().items()}


def arguments() -> dict[str, list[str]]:
    """Command -> the words that its first argument may be, for commands that choose among words."""

    def of(verb: Verb) -> list[str]:
        first = next((f.name for f in fields(verb.command) if f.default is MISSING), "")
        return _choices(verb).get(first, [])

    return {name: words for name, verb in verbs().items() if (words := of(verb))}


def _options(verb: Verb) -> list[str]:
    return [f.name for f in fields(verb.command) if f.default is not MISSING]


def _choices(verb: Verb) -> dict[str, list[str]]:
    """Field of a command -> its words, where the help writes them `a|b`."""
    texts = {name: text.metavar for name, text in verb.helps.items()}
    return {name: text.split("|") for name, text in texts.items() if CHOICE.fullmatch(text)}


def _short(text: str | None) -> str:
    """The beginning of a docstring, up to its first full stop, colon, semicolon or example; in whole words."""
    first = re.split(r"[.:;](?:\s|$)|,? e\.g\.", " ".join((text or "").split()))[0]
    return textwrap.shorten(first, WIDTH, placeholder=" …")
