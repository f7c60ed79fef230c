"""The command line, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

Cli = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs the command line with these arguments: (exit code, standard output, standard error)."""
    from staleharness import cli

    def run(*arguments: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["staleharness", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run
