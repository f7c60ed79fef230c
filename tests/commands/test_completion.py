"""`completion`: what the shells themselves make of the scripts. A shell that is not there is skipped by name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli
from needs import needs_tool

from staleharness.commands.completion import SHELLS, WIDTH, arguments, options, summaries, values
from staleharness.commands.completion import script as script_of
from staleharness.commands.shared.command_line_parser import verbs
from staleharness.task import all_families


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(shell: str) -> Path:
        path = tmp_path / f"completion.{shell}"
        path.write_text(script_of(shell))
        return path

    return write


def ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_every_shell_is_told_every_command(call: Cli) -> None:
    for shell in SHELLS:
        code, text, _ = call("completion", shell)
        assert code == 0 and all(name in text for name in summaries())
        assert all(flag.removeprefix("--") in text for flag in options()["sweep"])
    code, _, errors = call("completion", "tcsh")
    assert code == 2 and "'tcsh'" in errors


def test_what_is_said_of_a_command_fits_a_line() -> None:
    said = [text for known in (summaries(), *options().values()) for text in known.values()]
    assert all(text and "\n" not in text and "'" not in text for text in said)
    assert max(map(len, said)) <= WIDTH and not [text for text in said if "e.g" in text]
    longest = max(len(name) for name in [*summaries(), *(flag for flags in options().values() for flag in flags)])
    assert longest + len(" -- ") + WIDTH <= 80
    assert options()["sweep"]["--seeds"] == "Number of seeds, 0 to N-1, or a list"


@needs_tool("bash")
def test_bash_completes_commands_and_options(script: Callable[[str], Path]) -> None:
    def completed(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        asked = f"source {script('bash')}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _staleharness; "
        return ran("bash", "-c", asked + 'echo "${COMPREPLY[@]}"').split()

    assert completed("staleharness", "") == list(summaries())
    assert completed("staleharness", "swe") == ["sweep"]
    assert completed("staleharness", "sweep", "--") == list(options()["sweep"])
    assert completed("staleharness", "sweep", "--see") == ["--seeds"]
    assert completed("staleharness", "sweep", "") == []  # files, by `complete -o default`
    assert completed("staleharness", "sweep", "--env", "Hop") == ["Hopper", "Hopper-v5"]
    assert completed("staleharness", "sweep", "--algo", "spo,vac") == ["spo,vaco"]
    assert completed("staleharness", "sweep", "--preset", "=", "st") == ["standard", "stress"]
    assert completed("staleharness", "sweep", "--out", "st") == []
    assert completed("staleharness", "export", "t") == ["tensorboard"]


@needs_tool("fish")
def test_fish_completes_commands_and_options(script: Callable[[str], Path]) -> None:
    def completed(line: str) -> dict[str, str]:
        found = ran("fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'")
        return dict(row.partition("\t")[::2] for row in found.splitlines())

    assert completed("staleharness ") == summaries()
    assert list(completed("staleharness swe")) == ["sweep"]
    assert completed("staleharness sweep --") == options()["sweep"]
    assert list(completed("staleharness pack --see")) == []
    assert list(completed("staleharness sweep --env Hop")) == ["Hopper", "Hopper-v5"]
    assert list(completed("staleharness sweep --env=Hop")) == ["--env=Hopper", "--env=Hopper-v5"]
    assert list(completed("staleharness sweep --algo spo,vac")) == ["spo,vaco"]
    assert list(completed("staleharness sweep --algo=spo,vac")) == ["--algo=spo,vaco"]
    assert list(completed("staleharness export ")) == sorted(arguments()["export"])


# Stands in for what shows matches to the user (functions of zsh's completion system), so that no terminal is needed.
ZSH_MATCHES = """
_describe() { print -rl -- "${(@P)@[-1]}" }
_files() { print -r -- files }
compset() { }
compadd() { print -rl -- "${(@P)@[-1]}" }
"""


@needs_tool("zsh")
def test_zsh_completes_commands_and_options(script: Callable[[str], Path], tmp_path: Path) -> None:
    file = script("zsh")
    assert ran("zsh", "-n", str(file)) == ""

    def completed(*words: str) -> dict[str, str]:
        quoted = " ".join(f"'{word}'" for word in words)
        asked = f"words=({quoted}); CURRENT={len(words)}; $_comps[staleharness]"  # what Tab after them calls
        text = f"ZDOTDIR={tmp_path}; source {file}; {ZSH_MATCHES}; {asked}"
        return dict(row.partition(":")[::2] for row in ran("zsh", "-f", "-c", text).splitlines())

    assert completed("staleharness", "swe") == summaries()  # zsh itself picks those that begin with the word
    assert completed("staleharness", "sweep", "--see") == options()["sweep"]
    assert completed("staleharness", "pack", "--") == options()["pack"]
    assert completed("staleharness", "sweep", "") == {"files": ""}
    assert list(completed("staleharness", "figures", "--paper", "")) == values()["figures"]["--paper"]
    assert completed("staleharness", "sweep", "--out", "") == {"files": ""}
    assert list(completed("staleharness", "sweep", "--env=")) == values()["sweep"]["--env"]
    assert completed("staleharness", "sweep", "--out=") == {"files": ""}
    assert list(completed("staleharness", "new", "")) == arguments()["new"]


def test_names_that_an_option_chooses_among_are_known() -> None:
    known = values()
    assert {"Hopper", "word-problems", "bit-chain"} <= {*known["sweep"]["--env"]}
    assert {"vaco", "ppo_clip"} <= {*known["sweep"]["--algo"]} and "areal" in known["sweep"]["--lag"]
    assert "vaco" in known["figures"]["--paper"] and known["advise"]["--score"] == ["sampled", "deterministic"]
    assert "--steps" not in known["sweep"] and "--out" not in known["sweep"]
    assert {"fp8", "noise"} <= {*known["sweep"]["--mismatch"]} and "slurm" in known["sweep"]["--runner"]
    assert arguments().keys() == {"completion", "export", "new"} and arguments()["completion"] == [*SHELLS]


def test_the_help_of_a_sweep_has_every_preset() -> None:
    names = {name for family in all_families() for name in family.all_presets()}
    text = verbs()["sweep"].docstrings["preset"]
    assert {*values()["sweep"]["--preset"]} == names and names <= {*re.findall(r"\w+", text)}
    assert "in-flight" in values()["pipeline"]["--preset"]
