"""`staleharness completion bash|zsh|fish`: what a shell needs to complete commands and options."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated

from ..errors import UserError, nearest
from .shared.arguments import place

SHELLS = ("bash", "zsh", "fish")
BASH = """_staleharness() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "__VERBS__" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]}" in
__CASES__
    esac
}
complete -o default -F _staleharness staleharness"""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a script that lets a shell complete commands and options: eval "$(staleharness completion bash)"."""

    shell: Annotated[str, place("|".join(SHELLS))]
    """For fish: staleharness completion fish | source."""


def handle(command: Command) -> int:
    if command.shell not in SHELLS:
        raise UserError(f"no completion for {command.shell!r}; {nearest(command.shell, SHELLS)}")
    print(script(command.shell))
    return 0


def script(shell: str) -> str:
    """To be read by the shell: all commands, and the options of each."""
    known = flags()
    if shell == "fish":
        first = f"complete -c staleharness -n __fish_use_subcommand -f -a '{' '.join(known)}'"
        rest = [
            f"complete -c staleharness -n '__fish_seen_subcommand_from {verb}' -l {flag.removeprefix('--')}"
            for verb, options in known.items()
            for flag in options
        ]
        return "\n".join([first, *rest])
    cases = [
        f'        {verb}) COMPREPLY=($(compgen -W "{" ".join(options)}" -- "$word")) ;;'
        for verb, options in known.items()
    ]
    text = BASH.replace("__VERBS__", " ".join(known)).replace("__CASES__", "\n".join(cases))
    return f"autoload -U +X bashcompinit && bashcompinit\n{text}" if shell == "zsh" else text


def flags() -> dict[str, list[str]]:
    """Command -> its options."""
    from .shared.words import flag_of, verbs

    return {
        name: [flag_of(f.name) for f in fields(verb.command) if f.default is not MISSING] + ["--help"]
        for name, verb in verbs().items()
    }
