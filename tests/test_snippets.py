"""README and docs are run: every piece of Python, and every command as far as it goes without training."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from known_plugins import loaded_plugins
from needs import skip_without_extra
from places import ROOT

from staleharness.algorithm import ALGORITHMS
from staleharness.commands.shared.command_line_parser import parse
from staleharness.commands.shared.train_and_report import plan_grid
from staleharness.errors import UserError
from staleharness.pages.paper_figure_specs import read_paper, select_figures
from staleharness.testing import check_algorithm

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.append(ROOT / "results" / "reference" / "README.md")
README = (ROOT / "README.md").read_text(encoding="utf-8")
IDEA = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
HOUSEKEEPING = ("setup", "check", "test", "slow", "golden", "mutants", "lock", "fix", "lint", "docs", "bench-gpu")
HERE = re.compile(r"my_idea|my_lag|gymnasium_robotics|<id>|cuda|~/|gsm8k|smollm2")  # what the reader's own machine has


def snippets() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        name = str(page.relative_to(ROOT))
        found += [(name, code) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


def commands() -> list[tuple[str, str]]:
    """(page, line) of each indented or fenced line that calls make or the program, without its remark."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = re.findall(r"^(?:    |\$ )((?:make|staleharness)(?: .*)?)$", text, re.MULTILINE)
        found += [(str(page.relative_to(ROOT)), re.sub(r"\s+#.*", "", line)) for line in lines]
    return list(dict.fromkeys(found))


def case_ids(cases: list[tuple[str, str]]) -> list[str]:
    return [f"{page}-{i}" for i, (page, _) in enumerate(cases)]


@pytest.mark.parametrize(("page", "code"), snippets(), ids=case_ids(snippets()))
@pytest.mark.long
def test_a_piece_of_python_runs(page: str, code: str, tmp_path: Path) -> None:
    """In a process of its own, in a folder with the README's plugin and with results."""
    (tmp_path / "my_idea.py").write_text(IDEA)
    shutil.copytree(ROOT / "results" / "reference" / "quick_hopper", tmp_path / "results")
    (tmp_path / "snippet.py").write_text(code)
    clean = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "STALEHARNESS_PLUGINS": ""}
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        skip_without_extra(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(("page", "line"), commands(), ids=case_ids(commands()))
def test_a_command_is_one_that_there_is(page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments that make passes on; a sweep is planned, and a figure looked up."""
    words = shlex.split(line)
    if words[0] == "make":
        if len(words) == 1 or words[1] in HOUSEKEEPING:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(f"\n{word}:" in makefile for word in words[1:2])
            return
        words = passed_on(words[1:], tmp_path)
    else:
        words = words[1:]
    verb, command = parse(words)
    if verb.name in ("sweep", "run") and not HERE.search(line):
        monkeypatch.chdir(ROOT)
        try:
            assert plan_grid(command).runs
        except UserError as error:
            skip_without_extra(str(error))
            raise
    if verb.name in ("figures", "reproduce") and command.paper:
        assert select_figures(read_paper(command.paper)[1], command.fig)


def passed_on(words: list[str], scratch: Path) -> list[str]:
    """Return the arguments that make calls the program with."""
    (scratch / "echo.py").write_text(ECHO)
    (scratch / "venv").mkdir()
    (scratch / "venv" / "staleharness-setup.json").write_text('{"extras": "llm,smollm2,ray,tensorboard,wandb"}')
    given = [f"STALEHARNESS={sys.executable} {scratch / 'echo.py'}", f"VENV={scratch / 'venv'}"]
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(["make", *given, *words], cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    argv: list[str] = json.loads(done.stdout)
    return argv


def test_the_readmes_plugin_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "my_idea.py").write_text(IDEA)
    with loaded_plugins(tmp_path / "my_idea.py"):
        check_algorithm(ALGORITHMS["my_idea"])


def test_the_readme_is_one_screen() -> None:
    assert len(README.splitlines()) <= 100
    assert len(snippets()) >= 6 and len(commands()) >= 50


def test_the_readme_begins_with_the_two_commands_that_ci_runs_first() -> None:
    first = re.findall(r"(?:^    make .*\n)+", README, re.MULTILINE)[0]
    begin = [re.sub(r"\s*#.*", "", line).strip() for line in first.splitlines()]
    assert begin == ["make sweep ENV=Hopper K=8", "make test"]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert not any(command in script for command in begin if command != "make test")  # no copy that could differ
    before = script[script.index("\ncommands=()") :]
    assert "README.md" in script and before.index('step "$command" eval "$command"') < before.index("EXTRAS=")
    assert "EXTRAS=" not in script[: script.index("\ncommands=()")]
