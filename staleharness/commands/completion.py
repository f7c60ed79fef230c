"""`staleharness completion bash|zsh|fish`: what a shell needs to complete commands and options."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

from ..errors import UserError, nearest
from .shared.arguments import positional

CHOICE = re.compile(r"[a-z0-9_]+(?:\|[a-z0-9_]+)+")  # of names, as an option's help writes it
BASH = """_staleharness() {
    local word="${COMP_WORDS[COMP_CWORD]}" flag="${COMP_WORDS[COMP_CWORD-1]}" before=
    COMPREPLY=()
    [ "$flag" = = ] && flag="${COMP_WORDS[COMP_CWORD-2]}"
    [ "$word" = = ] && flag="${COMP_WORDS[COMP_CWORD-1]}" word=
    [[ $word == *,* ]] && before="${word%,*},"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "__VERBS__" -- "$word"))
    elif [[ $word == -* ]]; then
        case "${COMP_WORDS[1]}" in
__CASES__
        esac
    else
        case "${COMP_WORDS[1]} $flag" in
__VALUES__
        esac
    fi
}
complete -o default -F _staleharness staleharness"""

ZSH = """(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_staleharness() {
    local -a known
    if (( CURRENT == 2 )); then
        known=(
__VERBS__
        )
        _describe command known
    elif [[ $words[CURRENT] == -* ]]; then
        case $words[2] in
__CASES__
        esac
        _describe -o option known
    else
        known=()
        case "$words[2] $words[CURRENT-1]" in
__VALUES__
        esac
        if (( $#known )); then
            compset -P '*,'
            compadd -a known
        else
            _files
        fi
    fi
}
compdef _staleharness staleharness"""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a script that lets a shell complete commands and options: eval "$(staleharness completion bash)"."""

    shell: Annotated[str, positional("bash|zsh|fish")]
    """For fish: staleharness completion fish | source."""


def handle(command: Command) -> int:
    if command.shell not in SHELLS:
        raise UserError(f"no completion for {command.shell!r}; {nearest(command.shell, SHELLS)}")
    print(SHELLS[command.shell]())
    return 0


def bash() -> str:
    cases = [
        f'            {verb}) COMPREPLY=($(compgen -W "{" ".join(flags)}" -- "$word")) ;;'
        for verb, flags in options().items()
    ]
    match = 'COMPREPLY=($(compgen -P "$before" -W "__NAMES__" -- "${word##*,}"))'
    choices = [
        f"            '{verb} {flag}') {match.replace('__NAMES__', ' '.join(names))} ;;"
        for verb, flags in values().items()
        for flag, names in flags.items()
    ]
    text = BASH.replace("__VERBS__", " ".join(summaries())).replace("__CASES__", "\n".join(cases))
    return text.replace("__VALUES__", "\n".join(choices))


def zsh() -> str:
    def entries(flags: Mapping[str, str]) -> list[str]:
        return [_quote(f"{name}:{text}" if text else name) for name, text in flags.items()]

    lines = "\n".join(f"            {entry}" for entry in entries(summaries()))
    cases = [f"            {verb}) known=({' '.join(entries(flags))}) ;;" for verb, flags in options().items()]
    choices = [
        f"            '{verb} {flag}') known=({' '.join(names)}) ;;"
        for verb, flags in values().items()
        for flag, names in flags.items()
    ]
    text = ZSH.replace("__VERBS__", lines).replace("__CASES__", "\n".join(cases))
    return text.replace("__VALUES__", "\n".join(choices))


def fish() -> str:
    verb = "complete -c staleharness -n __fish_use_subcommand -f"
    lines = [f"{verb} -a {name} -d {_quote(text)}" for name, text in summaries().items()]
    for name, flags in options().items():
        under = f"complete -c staleharness -n '__fish_seen_subcommand_from {name}'"
        for flag, text in flags.items():
            names = values()[name].get(flag, ())
            choices = f" -x -a '{' '.join(names)}'" if names else ""
            lines.append(f"{under} -l {flag.removeprefix('--')}{choices}" + (f" -d {_quote(text)}" if text else ""))
    return "\n".join(lines)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def summaries() -> dict[str, str]:
    """Command -> what it does, in a few words."""
    from .shared.parser import verbs

    return {name: _short(verb.command.__doc__) for name, verb in verbs().items()}


def options() -> dict[str, dict[str, str]]:
    """Command -> its options, each with what it means in a few words."""
    from .shared.arguments import flag_of
    from .shared.parser import docstrings, verbs

    def of(command: type[Any]) -> dict[str, str]:
        texts = docstrings(command)
        flags = [f.name for f in fields(command) if f.default is not MISSING]
        return {flag_of(name): _short(texts.get(name)) for name in flags} | {"--help": "show help"}

    return {name: of(verb.command) for name, verb in verbs().items()}


@functools.cache
def values() -> dict[str, dict[str, list[str]]]:
    """Command -> option -> the names that it may have, for options that choose among names."""
    from ..algorithm import ALGORITHMS
    from ..lag import LAGS
    from ..pages.paper_figure_specs import experiments
    from ..pipeline.pipeline_settings import PRESETS
    from ..task import all_families
    from .shared.arguments import GridOptions, flag_of
    from .shared.parser import helps_of, verbs

    names_of = {
        "env": sorted({name for family in all_families() for name in (*family.ids, *family.aliases)}),
        "algo": sorted(ALGORITHMS),
        "lag": sorted(LAGS),
        "paper": sorted(path.parent.name for path in experiments().glob("*/paper.toml")),
    }

    presets = sorted({name for family in all_families() for name in family.all_presets()})

    def of(command: type[Any]) -> dict[str, list[str]]:
        of_pipelines = not issubclass(command, GridOptions)
        names_of["preset"] = sorted(PRESETS) if of_pipelines else presets
        texts = {name: text.metavar for name, text in helps_of(command).items()}
        choices = {name: text.split("|") for name, text in texts.items() if CHOICE.fullmatch(text)}
        values_of = {
            f.name: choices.get(f.name, names_of.get(f.name)) for f in fields(command) if f.default is not MISSING
        }
        return {flag_of(name): names for name, names in values_of.items() if names}

    return {name: of(verb.command) for name, verb in verbs().items()}


def _short(text: str | None) -> str:
    """The beginning of a docstring, up to its first full stop, colon or semicolon."""
    return re.split(r"[.:;](?:\s|$)", " ".join((text or "").split()))[0]


def _quote(text: str) -> str:
    """A word for zsh or fish, which both take it as it is but for quotes and backslashes."""
    plain = text.replace("\\", "").replace("'", "’")
    return f"'{plain}'"
