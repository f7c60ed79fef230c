"""The command line, in this process."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from staleharness import cli


def run_cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[Any, str, str]:
    """(exit code, standard output, standard error)."""
    monkeypatch.setattr(sys, "argv", ["staleharness", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err
