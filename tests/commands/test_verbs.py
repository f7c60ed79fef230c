"""One file, one verb; and who may print."""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli
from places import ROOT

from staleharness import commands
from staleharness.commands.shared import command_line_parser

PACKAGE = ROOT / "staleharness"
# A worker's output is its log, and a store says on stderr what does not count.
PRINT = {"cli.py", "training/checkpoint.py", "store/store.py", "language/simulation.py"}

HELLO = '''
from dataclasses import dataclass
from typing import Annotated

from staleharness.commands.shared.arguments import Help

@dataclass(frozen=True)
class Command:
    """Greet."""

    name: Annotated[str, Help("NAME", "you")] = "you"
    """Who."""

def handle(command):
    print(f"hello {command.name}")
    return 1
'''


@pytest.fixture
def hello(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A verb of one file, as if it lay in the folder."""
    (tmp_path / "say_hello.py").write_text(HELLO)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    command_line_parser.verbs.cache_clear()
    yield
    command_line_parser.verbs.cache_clear()
    sys.modules.pop("staleharness.commands.say_hello", None)


def test_every_file_is_a_verb_and_help_lists_them_in_one_order() -> None:
    files = {path.stem for path in (PACKAGE / "commands").glob("[!_]*.py")}
    assert list(command_line_parser.verbs()) == command_line_parser.ORDER and set(command_line_parser.ORDER) == files
    for verb in command_line_parser.verbs().values():
        assert dataclasses.is_dataclass(verb.command) and verb.command.__doc__
        with pytest.raises(dataclasses.FrozenInstanceError):
            object.__new__(verb.command).anything = 1


@pytest.mark.parametrize("verb", ["", *command_line_parser.ORDER])
def test_help_fits_80_columns(verb: str, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = cli(*([verb] if verb else []), "--help")
    assert code == 0 and max(map(len, out.splitlines())) <= 80


def test_a_new_verb_is_one_file(hello: None, cli: Cli) -> None:
    assert list(command_line_parser.verbs())[-1] == "say-hello"
    assert cli("say-hello", "--name", "Ada") == (1, "hello Ada\n", "")
    code, out, _ = cli("say-hello", "--help")
    assert code == 0 and "Greet." in out
    code, out, err = cli("say-hello", "--nme=Ada")
    assert (code, out) == (2, "") and "did you mean '--name'" in err
    code, _, err = cli("say-helo")
    assert code == 2 and "did you mean 'say-hello'" in err


def test_verbs_load_nothing_heavy() -> None:
    """A verb's file imports shared code at its top, and nothing that reads results or trains."""
    light = {"errors", "base", "commands"}
    for path in (PACKAGE / "commands").glob("[!_]*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        above = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 2]
        assert {(node.module or "").partition(".")[0] for node in above} <= light, path.name


def test_only_the_command_line_prints() -> None:
    loud = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        calls = (n.func for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call))
        if any(isinstance(f, ast.Name) and f.id == "print" for f in calls) and place not in PRINT:
            loud.add(place.partition("/")[0])
    assert loud == {"commands"}
