from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_cli

Call = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, short_report: None
) -> Call:
    """Runs the command line in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("STALEHARNESS_PLUGINS", "")
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    def run(*arguments: str) -> tuple[Any, str, str]:
        return run_cli(monkeypatch, capsys, *arguments)

    return run
