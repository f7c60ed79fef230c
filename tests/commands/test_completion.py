"""`completion`: what the shells themselves make of the scripts. A shell that is not there is skipped by name."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from staleharness.commands.completion import SHELLS, options, summaries

Call = Callable[..., tuple[Any, str, str]]


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed here")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def written(shell: str) -> Path:
        path = tmp_path / f"completion.{shell}"
        path.write_text(SHELLS[shell]())
        return path

    return written


def ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_every_shell_is_told_every_command(call: Call) -> None:
    for shell in SHELLS:
        code, text, _ = call("completion", shell)
        assert code == 0 and all(name in text for name in summaries())
        assert all(flag.removeprefix("--") in text for flag in options()["sweep"])
    code, _, errors = call("completion", "tcsh")
    assert code == 2 and "'tcsh'" in errors


def test_what_is_said_of_a_command_fits_a_line() -> None:
    said = [text for known in (summaries(), *options().values()) for text in known.values()]
    assert all(text and "\n" not in text and "'" not in text for text in said)
    assert options()["sweep"]["--seeds"] == "How many seeds, 0 to N-1, or which"


@needs("bash")
def test_bash_completes_commands_and_options(script: Callable[[str], Path]) -> None:
    def completed(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        asked = (
            f"source {script('bash')}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _staleharness; "
        )
        return ran("bash", "-c", asked + 'echo "${COMPREPLY[@]}"').split()

    assert completed("staleharness", "") == list(summaries())
    assert completed("staleharness", "swe") == ["sweep"]
    assert completed("staleharness", "sweep", "--") == list(options()["sweep"])
    assert completed("staleharness", "sweep", "--see") == ["--seeds"]
    assert completed("staleharness", "sweep", "") == []  # files, by `complete -o default`


@needs("fish")
def test_fish_completes_commands_and_options(script: Callable[[str], Path]) -> None:
    def completed(line: str) -> dict[str, str]:
        found = ran("fish", "--no-config", "-c", f"source {script('fish')}; complete -C '{line}'")
        return dict(row.partition("\t")[::2] for row in found.splitlines())

    assert completed("staleharness ") == summaries()
    assert list(completed("staleharness swe")) == ["sweep"]
    assert completed("staleharness sweep --") == options()["sweep"]
    assert list(completed("staleharness pack --see")) == []


class Terminal:
    """A zsh that somebody types into."""

    def __init__(self, home: Path) -> None:
        self.master, end = pty.openpty()
        own = {"HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb", "PATH": os.environ["PATH"]}
        self.shell = subprocess.Popen(
            ["zsh", "-f", "-i"], stdin=end, stdout=end, stderr=end, env=own, start_new_session=True
        )
        os.close(end)

    def type(self, text: str, until: str) -> str:
        """What the terminal shows from here on, when `until` is in it."""
        os.write(self.master, text.encode())
        shown, end = "", time.monotonic() + 60
        while until not in shown:
            ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{until!r} never came: {shown!r}"
            shown += os.read(self.master, 65536).decode(errors="replace")
        return shown

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@needs("zsh")
def test_zsh_completes_commands_and_options(script: Callable[[str], Path], terminal: Terminal) -> None:
    file = script("zsh")
    assert ran("zsh", "-n", str(file)) == ""
    terminal.type(f"source {file} && print is''there\r", "isthere\r\n")
    terminal.type("staleharness swe\t", "staleharness sweep ")
    terminal.type("--see\t", "--seeds ")
    terminal.type("\x15staleharness export --t\t", "--to ")
    listed = terminal.type("\x15staleharness \t", "verify")
    assert summaries()["status"] in listed
